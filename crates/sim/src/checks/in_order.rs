//! In order: what one connection asks first is taken first.

use super::Violation;
use holdfast_core::Token;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct InOrder {
    /// By pair, and whether it is the second: the token of the one that was answered.
    tokens: BTreeMap<(u64, bool), Token>,
}

impl InOrder {
    pub(crate) fn pair(&mut self, pair: u64, second: bool, token: Token) -> Result<(), Violation> {
        self.tokens.insert((pair, second), token);
        match (self.tokens.get(&(pair, false)), self.tokens.get(&(pair, true))) {
            (Some(first), Some(second)) if first > second => Err(format!(
                "in order: {first} was asked for before {second}, but it was taken after it"
            )),
            _ => Ok(()),
        }
    }
}
