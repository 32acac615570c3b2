//! Tokens rise: a grant's token is greater than that of every earlier conflicting grant.

use super::{Applied, Violation};
use holdfast_core::{Effect, LockName, Mode, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct TokensRise {
    /// By name: the highest exclusive token and the highest of any mode.
    highest: BTreeMap<LockName, (Token, Token)>,
    granted: BTreeSet<Token>,
}

impl TokensRise {
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            let Effect::Granted(grant) = effect else { continue };
            if !self.granted.insert(grant.token) {
                return Err(format!("tokens rise: token {} was granted twice", grant.token));
            }
            for name in grant.names.as_slice() {
                let (exclusive, any) =
                    self.highest.entry(name.clone()).or_insert((Token(0), Token(0)));
                let conflicting = if grant.mode == Mode::Exclusive { *any } else { *exclusive };
                if grant.token <= conflicting {
                    return Err(format!("tokens rise: {name} {} after {conflicting}", grant.token));
                }
                *any = (*any).max(grant.token);
                if grant.mode == Mode::Exclusive {
                    *exclusive = grant.token;
                }
            }
        }
        Ok(())
    }
}
