//! In order: what one connection asks first is taken first.

use super::Violation;
use holdfast_core::{Answer, Token};
use holdfast_node::Reply;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct InOrder {
    /// By client and pair: the token of the one that was answered.
    tokens: BTreeMap<(usize, u64, bool), Token>,
}

impl InOrder {
    pub(crate) fn pair(
        &mut self,
        client: usize,
        pair: u64,
        second: bool,
        reply: &Reply,
    ) -> Result<(), Violation> {
        let Reply::Answer(Ok(Answer::Standing(standing))) = reply else { return Ok(()) };
        self.tokens.insert((client, pair, second), standing.token());
        let first = self.tokens.get(&(client, pair, false));
        let second = self.tokens.get(&(client, pair, true));
        match (first, second) {
            (Some(first), Some(second)) if first > second => Err(format!(
                "in order: client {client} asked for {first} before {second}, but it was taken after it"
            )),
            _ => Ok(()),
        }
    }
}
