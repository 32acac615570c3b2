//! One effect: a request that is sent many times is granted under one token. Each request has a
//! label of its own.

use super::{Applied, Violation};
use holdfast_core::{Effect, Label, Token};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct OneEffect {
    tokens: BTreeMap<Label, Token>,
}

impl OneEffect {
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        let mut note = |label: &Option<Label>, token: Token| {
            let Some(label) = label else { return Ok(()) };
            let known = *self.tokens.entry(label.clone()).or_insert(token);
            if known == token {
                return Ok(());
            }
            Err(format!("one effect: request {label} drew ticket {known} and ticket {token}"))
        };
        for effect in applied.effects {
            match effect {
                Effect::Granted(grant) => note(&grant.label, grant.token)?,
                Effect::Ended(ended) => note(&ended.label, ended.token)?,
                _ => {}
            }
        }
        Ok(())
    }
}
