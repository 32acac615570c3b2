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

/// All keys. They may be listed page by page, so that nobody is held up: then it may have a key
/// that was gone before another one came, as in `SCAN`. A transaction that counts on all keys is
/// refused if any has changed since the listing began.
#[derive(Debug, Clone)]
pub struct Listing {
    /// What [`State::keys_changed`] said when it began.
    pub(crate) changed: u64,
    keys: Vec<Listed>,
    /// How many of them are done with.
    passed: usize,
    /// Where the next page begins.
    after: Option<LockName>,
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

/// How many names are asked for at a time: about a millisecond's work.
const PAGE: usize = 1_024;

impl Listing {
    /// Lists nothing yet.
    pub fn begin(state: &State) -> Self {
        Self { changed: state.keys_changed(), keys: Vec::new(), passed: 0, after: None }
    }

    /// Those that are not done with.
    pub(crate) fn keys(&self) -> &[Listed] {
        self.keys.get(self.passed..).unwrap_or_default()
    }

    /// Lists a page more; false if it was the last.
    pub fn more(&mut self, state: &State) -> bool {
        let page = state.keys(b"", self.after.as_ref(), PAGE);
        self.keys.extend(page.keys.into_iter().map(|(name, kind)| {
            let ours = match state.key(&name) {
                Key::Text(text) => text.door == Door::Redis && text.writable,
                Key::Object(_) => true,
                Key::Absent => false,
            };
            Listed { name, kind, ours }
        }));
        self.after = page.next_after;
        self.after.is_some()
    }
}

impl Seen {
    /// Reads what is wanted.
    pub fn read(state: &State, wanted: &Wanted) -> Self {
        let listing = wanted.listing.then(|| {
            let mut listing = Listing::begin(state);
            while listing.more(state) {}
            listing
        });
        Self::read_with(state, wanted, listing)
    }

    /// Reads what is wanted but for the list of all keys, which was made before.
    pub fn read_with(state: &State, wanted: &Wanted, listing: Option<Listing>) -> Self {
        let key = |name: &LockName| (name.clone(), (state.key(name), state.stamp(name)));
        Self {
            rounds: wanted.rounds,
            now_ms: state.now_ms(),
            keys: wanted.names.iter().map(key).collect(),
            listing,
        }
    }

    /// The list of all keys, as it was made.
    pub fn into_listing(self) -> Option<Listing> {
        self.listing
    }

    /// The list of all keys from behind those that were read: what is left for a job that goes
    /// through all of them step by step.
    pub fn into_rest(self) -> Option<Listing> {
        let mut listing = self.listing?;
        let read = |listed: &&Listed| match self.keys.last_key_value() {
            Some((last, _)) => listed.name <= *last,
            None => false,
        };
        listing.passed += listing.keys().iter().take_while(read).count();
        Some(listing)
    }
}
