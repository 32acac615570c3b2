//! Keys as they were read, all at one moment.

use holdfast_core::{Door, Key, KeyKind, LockName, Stamp, State};
use std::collections::{BTreeMap, BTreeSet};

/// What a job wants to have read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// These keys.
    pub names: BTreeSet<LockName>,
    /// A list of all keys.
    pub listing: bool,
    /// How often something was missing.
    pub(crate) rounds: usize,
}

impl Wanted {
    /// Adds what somebody else wants.
    pub fn and(&mut self, other: Self) {
        self.names.extend(other.names);
        self.listing |= other.listing;
    }
}

/// What was read, and when.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// How often something was missing before.
    pub(crate) rounds: usize,
    /// Logical time.
    pub(crate) now_ms: u64,
    pub(crate) keys: BTreeMap<LockName, (Key, Stamp)>,
    pub(crate) listing: Option<Listing>,
}

/// All keys.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    /// What [`State::keys_changed`] said.
    pub(crate) changed: u64,
    pub(crate) keys: Vec<Listed>,
}

/// One of all keys.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: LockName,
    /// What it is.
    pub kind: KeyKind,
    /// Whether this door may delete it.
    pub ours: bool,
}

/// How many names are asked for at a time: the names are copied once more for each page.
const PAGE: usize = 4_096;

impl Seen {
    /// Reads what is wanted.
    pub fn read(state: &State, wanted: &Wanted) -> Self {
        let key = |name: &LockName| (name.clone(), (state.key(name), state.stamp(name)));
        Self {
            rounds: wanted.rounds,
            now_ms: state.now_ms(),
            keys: wanted.names.iter().map(key).collect(),
            listing: wanted
                .listing
                .then(|| Listing { changed: state.keys_changed(), keys: listed(state) }),
        }
    }
}

fn listed(state: &State) -> Vec<Listed> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = state.keys(b"", after.as_ref(), PAGE);
        all.extend(page.keys.into_iter().map(|(name, kind)| {
            let ours = match state.key(&name) {
                Key::Text(text) => text.door == Door::Redis && text.writable,
                Key::Object(_) => true,
                Key::Absent => false,
            };
            Listed { name, kind, ours }
        }));
        match page.next_after {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}
