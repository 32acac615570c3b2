//! Withdrawn is withdrawn: a request that a node said will have no effect had none, and has none
//! later. Each request has a label of its own.

use super::{Applied, Violation};
use holdfast_core::{Effect, Label};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    withdrawn: BTreeSet<Label>,
    /// Those that were granted, or are over.
    drawn: BTreeSet<Label>,
}

impl Withdrawn {
    pub(crate) fn withdrawn(&mut self, label: Label) -> Result<(), Violation> {
        if self.drawn.contains(&label) {
            return Err(format!("withdrawn: {label} had drawn a ticket"));
        }
        self.withdrawn.insert(label);
        Ok(())
    }

    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            let label = match effect {
                Effect::Granted(grant) => &grant.label,
                Effect::Ended(ended) => &ended.label,
                _ => continue,
            };
            if let Some(label) = label {
                if self.withdrawn.contains(label) {
                    return Err(format!("withdrawn: {label} drew a ticket all the same"));
                }
                self.drawn.insert(label.clone());
            }
        }
        Ok(())
    }
}
