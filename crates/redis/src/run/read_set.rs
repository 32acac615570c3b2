//! Keys as they were read, all at the same moment.

use holdfast_core::{Door, Key, KeyKind, LockName, Refusal, Right, Stamp, State};
use holdfast_gateway::Caller;
use std::collections::{BTreeMap, BTreeSet};

/// What a job wants to have read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// These keys.
    pub names: BTreeSet<LockName>,
    /// Whether a list of all keys is wanted.
    pub listing: bool,
    /// How often something was missing.
    pub(crate) rounds: usize,
}

impl ReadRequest {
    /// Adds what another one wants.
    pub fn and(&mut self, other: Self) {
        self.names.extend(other.names);
        self.listing |= other.listing;
    }
}

/// What was read, and when.
#[derive(Debug, Clone, Default)]
pub struct ReadSet {
    /// How often something was missing before.
    pub(crate) rounds: usize,
    /// Logical time.
    pub(crate) now_ms: u64,
    pub(crate) keys: BTreeMap<LockName, (Key, Stamp)>,
    pub(crate) listing: Option<Listing>,
}

/// A list of all keys. It may be built page by page, so that nothing is held up: it may then
/// contain a key that was gone before another one was added, as in `SCAN`. A transaction that
/// depends on all keys is refused if any has changed since the listing began.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The value of [`State::keys_changed`] when the listing began.
    pub(crate) changed: u64,
    keys: Vec<Listed>,
    /// How many of them have been dealt with.
    passed: usize,
    /// Where the next page starts.
    after: Option<LockName>,
}

/// One key of a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: LockName,
    /// Its type.
    pub kind: KeyKind,
    /// Whether this door may delete it.
    pub ours: bool,
}

/// How many names are read at a time: about a millisecond's work.
const PAGE: usize = 1_024;

impl Listing {
    /// Starts a listing, which is empty at first.
    pub fn begin(state: &State) -> Self {
        Self { changed: state.keys_changed(), keys: Vec::new(), passed: 0, after: None }
    }

    /// Those that have not been dealt with.
    pub(crate) fn keys(&self) -> &[Listed] {
        self.keys.get(self.passed..).unwrap_or_default()
    }

    /// Reads one more page of the keys that the caller may look at; returns false if it was the last.
    pub fn more(&mut self, caller: &Caller, state: &State) -> bool {
        let page = state.keys(b"", self.after.as_ref(), PAGE);
        let may_look =
            |(name, _): &(LockName, KeyKind)| caller.may(state, Right::Read, name.as_bytes());
        self.keys.extend(page.keys.into_iter().filter(may_look).map(|(name, kind)| {
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

impl ReadSet {
    /// Reads everything that is wanted, if the caller may look at it.
    pub fn read(caller: &Caller, state: &State, wanted: &ReadRequest) -> Result<Self, Refusal> {
        let listing = wanted.listing.then(|| {
            let mut listing = Listing::begin(state);
            while listing.more(caller, state) {}
            listing
        });
        Self::read_with(caller, state, wanted, listing)
    }

    /// Like [`ReadSet::read`], but with a list of all keys that was built before.
    pub fn read_with(
        caller: &Caller,
        state: &State,
        wanted: &ReadRequest,
        listing: Option<Listing>,
    ) -> Result<Self, Refusal> {
        wanted.names.iter().try_for_each(|name| caller.require(state, Right::Read, name))?;
        let key = |name: &LockName| (name.clone(), (state.key(name), state.stamp(name)));
        Ok(Self {
            rounds: wanted.rounds,
            now_ms: state.now_ms(),
            keys: wanted.names.iter().map(key).collect(),
            listing,
        })
    }

    /// The list of all keys, as it was built.
    pub fn into_listing(self) -> Option<Listing> {
        self.listing
    }

    /// The list of all keys after those that were read: what is left for a job that goes through
    /// all of them step by step.
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
