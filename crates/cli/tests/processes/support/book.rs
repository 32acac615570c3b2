//! What clients were told: it must be true.

use std::collections::BTreeMap;
use std::time::Instant;

/// What the clients know.
#[derive(Default)]
pub(crate) struct Book {
    /// Every token that was ever granted, and to which client.
    pub(crate) granted: BTreeMap<u64, String>,
    /// From the moment a client learns of its grant until it starts to release.
    pub(crate) holding: BTreeMap<String, u64>,
    /// The last token of each lock.
    last: BTreeMap<String, u64>,
    pub(crate) acquired_at: Vec<Instant>,
    pub(crate) wrong: Vec<String>,
}

impl Book {
    pub(crate) fn grant(&mut self, to: &str, name: &str, token: u64) {
        if let Some(earlier) = self.granted.insert(token, to.to_owned()) {
            self.wrong.push(format!("token {token} was given to {earlier} and to {to}"));
        }
        if let Some(other) = self.holding.insert(name.to_owned(), token) {
            self.wrong.push(format!("{name} was given to {token} while {other} held it"));
        }
        if let Some(last) = self.last.insert(name.to_owned(), token).filter(|last| *last >= token) {
            self.wrong.push(format!("{name} was given to {token} after {last}"));
        }
        self.acquired_at.push(Instant::now());
    }
}
