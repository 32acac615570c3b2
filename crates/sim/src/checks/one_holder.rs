//! One at a time: an exclusive holder is alone, and no more permits are held than there are.

use super::{Applied, Violation};
use holdfast_core::{Effect, LockName, Mode, Token};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct OneHolder {
    holders: BTreeMap<LockName, BTreeMap<Token, Mode>>,
}

impl OneHolder {
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            match effect {
                Effect::Granted(grant) => {
                    for name in grant.names.as_slice() {
                        let holders = self.holders.entry(name.clone()).or_default();
                        holders.insert(grant.token, grant.mode);
                        let most = match grant.mode {
                            Mode::Permit { of } => of as usize,
                            Mode::Exclusive => 1,
                            Mode::Shared => usize::MAX,
                        };
                        let exclusive = holders.values().any(|mode| *mode == Mode::Exclusive);
                        if holders.len() > most.min(if exclusive { 1 } else { usize::MAX }) {
                            return Err(format!("one at a time: {name} is held by {holders:?}"));
                        }
                    }
                }
                Effect::Ended(ended) if ended.held => {
                    for name in ended.names.as_slice() {
                        let gone =
                            self.holders.get_mut(name).and_then(|held| held.remove(&ended.token));
                        if gone.is_none() {
                            return Err(format!(
                                "one at a time: {name} token {} ended unheld",
                                ended.token
                            ));
                        }
                    }
                }
                Effect::Downgraded { token, names } => {
                    for name in names.as_slice() {
                        let held = self.holders.get_mut(name);
                        if let Some(mode) = held.and_then(|held| held.get_mut(token)) {
                            *mode = Mode::Shared;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
