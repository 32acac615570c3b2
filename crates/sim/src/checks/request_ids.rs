//! A request id names one request: however often it is sent, it draws one ticket, and something else
//! under the same id is refused.

use super::Violation;
use bytes::Bytes;
use holdfast_core::Token;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    /// By id, and whether it is the other request: the ticket that it was told of.
    tokens: BTreeMap<(Bytes, bool), Token>,
}

impl RequestIds {
    pub(crate) fn answered(
        &mut self,
        key: &Bytes,
        other: bool,
        token: Token,
    ) -> Result<(), Violation> {
        let known = *self.tokens.entry((key.clone(), other)).or_insert(token);
        if known != token {
            return Err(format!("request ids: {key:?} drew ticket {known} and ticket {token}"));
        }
        if let Some(first) = self.tokens.get(&(key.clone(), !other)) {
            return Err(format!(
                "request ids: {key:?} is two requests, for ticket {first} and ticket {token}"
            ));
        }
        Ok(())
    }
}
