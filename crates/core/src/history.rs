//! The last events, in one bounded ring, found by name.

use crate::effect::{Forced, How};
use crate::ids::Token;
use crate::store::{Index, Keyed, Slab, Slot};
use crate::text::{Label, LockName, Reason};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events in a block. A snapshot shares the blocks; a whole block is dropped at once.
const BLOCK_LEN: usize = 256;

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Events are numbered from 0.
    pub number: u64,
    /// Logical time.
    pub at_ms: u64,
    /// The leader's wall clock, for display.
    pub wall_ms: u64,
    /// Which lock.
    pub name: LockName,
    /// Whose ticket.
    pub token: Token,
    /// What that one calls itself.
    pub label: Option<Label>,
    /// What happened.
    pub what: What,
    /// The event before this one on the same lock.
    pub(crate) previous: Option<u64>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It was served.
    Granted,
    /// A holder ended.
    Ended(How),
    /// A holder was broken.
    Broken(Arc<Forced>),
    /// A holder was asked to let go.
    RevocationAsked {
        /// Who asked.
        by: Label,
        /// Why.
        reason: Reason,
    },
    /// A writer became a reader.
    Downgraded,
    /// A holder put right what a dead one had left.
    Recovered {
        /// The dead one.
        death: Token,
    },
    /// The cluster was restored from a backup while it was held, and it still is.
    Restored,
    /// A holder calls itself something else.
    Relabelled,
}

/// The ring, as a snapshot shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    blocks: VecDeque<Arc<Vec<Event>>>,
    pub(crate) next_number: u64,
}

impl History {
    /// The ring that holds these events, the oldest first.
    pub(crate) fn of(events: Vec<Event>, next_number: u64) -> Self {
        let mut history = Self { blocks: VecDeque::new(), next_number };
        for event in events {
            history.keep(event);
        }
        history
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    fn first_number(&self) -> u64 {
        self.blocks.front().and_then(|block| block.first()).map_or(self.next_number, |e| e.number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Event> {
        let offset = usize::try_from(number.checked_sub(self.first_number())?).ok()?;
        self.blocks.get(offset / BLOCK_LEN)?.get(offset % BLOCK_LEN)
    }

    fn keep(&mut self, event: Event) {
        if self.blocks.back().is_none_or(|block| block.len() >= BLOCK_LEN) {
            self.blocks.push_back(Arc::new(Vec::with_capacity(BLOCK_LEN)));
        }
        if let Some(block) = self.blocks.back_mut() {
            Arc::make_mut(block).push(event);
        }
    }

    fn drop_oldest_block(&mut self) -> Option<Arc<Vec<Event>>> {
        self.blocks.pop_front()
    }

    fn len_max_reached(&self, len_max: usize) -> bool {
        // The last block fills up while the first is dropped: both together count as one.
        self.blocks.len().saturating_mul(BLOCK_LEN) > len_max.saturating_add(BLOCK_LEN)
    }
}

/// The newest event of each name in the ring. Derived: rebuilt when a snapshot is loaded.
#[derive(Debug)]
pub(crate) struct HistoryIndex {
    newest: Slab<Newest>,
    by_name: Index<Newest>,
}

#[derive(Debug, Clone, PartialEq)]
struct Newest {
    name: LockName,
    number: u64,
}

impl Keyed for Newest {
    type Key = LockName;
    fn key(&self) -> &LockName {
        &self.name
    }
}

impl HistoryIndex {
    pub(crate) fn of(history: &History, hash_key: u64) -> Self {
        let mut index = Self { newest: Slab::default(), by_name: Index::new(hash_key) };
        for event in history.iter() {
            index.note(&event.name, event.number);
        }
        index
    }

    fn slot(&self, name: &LockName) -> Option<Slot> {
        self.by_name.get(&self.newest, name)
    }

    /// Notes the newest event of a name; returns the one before.
    fn note(&mut self, name: &LockName, number: u64) -> Option<u64> {
        let slot = self.slot(name);
        if let Some(newest) = slot.and_then(|slot| self.newest.get_mut(slot)) {
            return Some(std::mem::replace(&mut newest.number, number));
        }
        let slot = self.newest.insert(Newest { name: name.clone(), number });
        self.by_name.insert(&self.newest, slot);
        None
    }

    fn forget(&mut self, event: &Event) {
        let Some(slot) = self.slot(&event.name) else { return };
        if self.newest.get(slot).is_some_and(|newest| newest.number == event.number) {
            self.by_name.remove(&self.newest, slot);
            self.newest.remove(slot);
        }
    }

    /// Adds an event; its number and predecessor are filled in here.
    pub(crate) fn add(&mut self, history: &mut History, mut event: Event, len_max: usize) {
        event.number = history.next_number;
        event.previous = self.note(&event.name, event.number);
        history.next_number = history.next_number.saturating_add(1);
        history.keep(event);
        if history.len_max_reached(len_max) {
            for event in history.drop_oldest_block().iter().flat_map(|block| block.iter()) {
                self.forget(event);
            }
        }
    }

    /// The events of a name, the newest first.
    pub(crate) fn events<'a>(
        &self,
        history: &'a History,
        name: &LockName,
    ) -> impl Iterator<Item = &'a Event> + use<'a> {
        let newest = self.slot(name).and_then(|slot| Some(self.newest.get(slot)?.number));
        let newest = newest.and_then(|number| history.get(number));
        std::iter::successors(newest, |event| history.get(event.previous?))
    }
}
