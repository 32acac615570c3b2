//! Errands: what is done on the loop's own thread, step by step, without going back to whoever
//! sent it. A door that knows keys reads the state, proposes what came of it, and if something has
//! changed meanwhile, reads again.

use holdfast_core::{Command, LockName};
use holdfast_node::{Node, Reply};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Names that errands of one node may wait for. At about 100 bytes each, all stay near 10 MB.
const NAMES_MAX: usize = 100_000;

/// Something that is done on the loop's thread: each step is short.
pub(crate) trait Errand: Send {
    /// Does the next step. The state is as this node has it.
    fn step(self: Box<Self>, node: &Node, now: Now) -> Next;

    /// Which one it is, among those that sleep.
    fn number(&self) -> u64;

    /// Whether nobody wants to know any more what comes of it.
    fn nobody_waits(&self) -> bool;
}

/// What happened to an errand.
#[derive(Debug)]
pub(crate) enum Now {
    /// It begins.
    Begun,
    /// The node replied to what it asked; after a read the state is current.
    Told(Reply),
    /// One of the names that it waited for has changed, or nobody knows whether.
    Woken,
    /// Whoever sent it does not want to wait any longer.
    GivenUp,
    /// Too many names are waited for.
    NoRoom,
}

/// What an errand wants next.
pub(crate) enum Next {
    /// To put this through the log.
    Ask(Box<dyn Errand>, Command),
    /// To go on when the state is current.
    Read(Box<dyn Errand>),
    /// To go on when something has been put under one of these names.
    Sleep(Box<dyn Errand>, Vec<LockName>),
    /// It is over. If something was there that it did not take, the next one may.
    Over,
}

/// Errands that sleep, by when they began to.
#[derive(Default)]
pub(crate) struct Sleepers {
    asleep: BTreeMap<u64, Sleeper>,
    /// When each began, by its own number.
    since: HashMap<u64, u64, foldhash::fast::RandomState>,
    by_name: BTreeSet<(LockName, u64)>,
    next: u64,
}

struct Sleeper {
    errand: Box<dyn Errand>,
    names: Vec<LockName>,
}

impl Sleepers {
    /// Lets an errand sleep. One that was woken for nothing sleeps on in its old place. If there
    /// is no room, it is given back.
    pub(crate) fn put(
        &mut self,
        errand: Box<dyn Errand>,
        names: Vec<LockName>,
        place: Option<u64>,
    ) -> Result<(), Box<dyn Errand>> {
        if self.by_name.len().saturating_add(names.len()) > NAMES_MAX {
            return Err(errand);
        }
        let place = place.unwrap_or_else(|| {
            self.next = self.next.saturating_add(1);
            self.next
        });
        for name in &names {
            self.by_name.insert((name.clone(), place));
        }
        self.since.insert(errand.number(), place);
        self.asleep.insert(place, Sleeper { errand, names });
        Ok(())
    }

    /// Takes the errand out that has waited longest for a name, with its place.
    pub(crate) fn wake(&mut self, name: &LockName) -> Option<(Box<dyn Errand>, u64)> {
        if self.by_name.is_empty() {
            return None;
        }
        let range = (name.clone(), 0)..=(name.clone(), u64::MAX);
        let (_, place) = self.by_name.range(range).next()?;
        let place = *place;
        Some((self.take(place)?, place))
    }

    /// Takes out the one that has slept longest, with what it waited for.
    pub(crate) fn wake_any(&mut self) -> Option<(Box<dyn Errand>, Vec<LockName>, u64)> {
        let (place, sleeper) = self.asleep.first_key_value()?;
        let (place, names) = (*place, sleeper.names.clone());
        Some((self.take(place)?, names, place))
    }

    /// Whether anybody sleeps.
    pub(crate) fn any(&self) -> bool {
        !self.asleep.is_empty()
    }

    /// Takes out the one of that number, if it sleeps.
    pub(crate) fn find(&mut self, number: u64) -> Option<Box<dyn Errand>> {
        let place = *self.since.get(&number)?;
        self.take(place)
    }

    fn take(&mut self, place: u64) -> Option<Box<dyn Errand>> {
        let Sleeper { errand, names } = self.asleep.remove(&place)?;
        for name in names {
            self.by_name.remove(&(name, place));
        }
        self.since.remove(&errand.number());
        Some(errand)
    }
}
