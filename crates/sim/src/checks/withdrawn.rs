//! Withdrawn is withdrawn: a request that a node said will have no effect had none, and has none
//! later. Each request has a label of its own.

use super::{Applied, Violation};
use holdfast_core::{Effect, Label};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    withdrawn: BTreeSet<Label>,
    granted: BTreeSet<Label>,
}

impl Withdrawn {
    pub(crate) fn withdrawn(&mut self, label: Label) -> Result<(), Violation> {
        if self.granted.contains(&label) {
            return Err(format!("withdrawn: {label} had been granted"));
        }
        self.withdrawn.insert(label);
        Ok(())
    }

    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            if let Effect::Granted(grant) = effect
                && let Some(label) = &grant.label
            {
                if self.withdrawn.contains(label) {
                    return Err(format!("withdrawn: {label} was granted all the same"));
                }
                self.granted.insert(label.clone());
            }
        }
        Ok(())
    }
}
