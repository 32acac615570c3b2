//! A hand-off wakes one client: nobody else of those that wait for an exclusive lock watches the child
//! that goes.

use super::ClientKey;
use crate::checks::Violation;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct OneWakeUp {
    woken: BTreeMap<String, ClientKey>,
}

impl OneWakeUp {
    pub(super) fn woken(&mut self, client: ClientKey, path: &str) -> Result<(), Violation> {
        match self.woken.insert(path.to_owned(), client) {
            Some(other) if other != client => Err(format!(
                "one wake-up: the end of {path} woke client {client:?} after client {other:?}"
            )),
            _ => Ok(()),
        }
    }
}
