//! The latest events, in one bounded ring, indexed by name.

use crate::containers::{Index, Keyed, Slab, Slot};
use crate::effect::{EndReason, Forced};
use crate::ids::Token;
use crate::text::{Label, LockName, Reason};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Events per block. Snapshots share blocks, and a whole block is dropped at once.
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
    /// The ticket it happened to.
    pub token: Token,
    /// The ticket's label.
    pub label: Option<Label>,
    /// What happened.
    pub what: EventKind,
    /// The event before this one on the same lock.
    pub(crate) previous: Option<u64>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A ticket was served.
    Granted,
    /// A holder ended.
    Ended(EndReason),
    /// A holder's lock was broken.
    Broken(Arc<Forced>),
    /// A holder was asked to release.
    RevocationAsked {
        /// Who asked.
        by: Label,
        /// Why.
        reason: Reason,
    },
    /// A writer became a reader.
    Downgraded,
    /// A holder recovered from what a dead one left behind.
    Recovered {
        /// The dead holder.
        death: Token,
    },
    /// The cluster was restored from a backup while the lock was held, and it still is.
    Restored,
    /// A holder was relabelled.
    Relabelled,
}

/// The ring, which snapshots share.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    blocks: VecDeque<Arc<Vec<Event>>>,
    /// Roughly what the events take.
    bytes: usize,
    pub(crate) next_number: u64,
}

/// What an event takes, besides its texts.
const EVENT_BYTES: usize = 128;

impl Event {
    /// How the ticket of this event ended; `None` if it did not.
    pub(crate) fn how_ended(&self) -> Option<EndReason> {
        match self.what {
            EventKind::Ended(how) => Some(how),
            EventKind::Broken(_) => Some(EndReason::Forced),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        let label = self.label.as_ref().map_or(0, |label| label.as_bytes().len());
        let texts = |by: &Label, reason: &Reason| {
            by.as_bytes().len().saturating_add(reason.as_bytes().len())
        };
        let what = match &self.what {
            EventKind::Broken(forced) => texts(&forced.by, &forced.reason),
            EventKind::RevocationAsked { by, reason } => texts(by, reason),
            EventKind::Granted
            | EventKind::Ended(_)
            | EventKind::Downgraded
            | EventKind::Recovered { .. }
            | EventKind::Restored
            | EventKind::Relabelled => 0,
        };
        let all = [self.name.as_bytes().len(), label, what];
        all.into_iter().fold(EVENT_BYTES, usize::saturating_add)
    }
}

impl History {
    /// A ring of these events, oldest first.
    pub(crate) fn of(events: Vec<Event>, next_number: u64) -> Self {
        let mut history = Self { blocks: VecDeque::new(), bytes: 0, next_number };
        for event in events {
            history.keep(event);
        }
        history
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What [`History::bytes`] must be.
    pub(crate) fn weigh(&self) -> usize {
        self.iter().map(Event::bytes).fold(0, usize::saturating_add)
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
            self.bytes = self.bytes.saturating_add(event.bytes());
            Arc::make_mut(block).push(event);
        }
    }

    fn drop_oldest_block(&mut self) -> Option<Arc<Vec<Event>>> {
        let block = self.blocks.pop_front()?;
        let bytes = block.iter().map(Event::bytes).fold(0, usize::saturating_add);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(block)
    }

    /// Whether the oldest block must be dropped. The newest one always stays.
    fn is_too_long(&self, (len_max, bytes_max): (usize, usize)) -> bool {
        // The last block fills up while the first is dropped: both together count as one.
        let too_many =
            self.blocks.len().saturating_mul(BLOCK_LEN) > len_max.saturating_add(BLOCK_LEN);
        too_many || (self.bytes > bytes_max && self.blocks.len() > 1)
    }
}

/// The newest event of each name in the ring, and the ends of tickets. Derived: rebuilt when a
/// snapshot is loaded.
#[derive(Debug)]
pub(crate) struct HistoryIndex {
    newest: Slab<Newest>,
    by_name: Index<Newest>,
    /// The event of a ticket's end; for several names, the last one's.
    ends: BTreeMap<Token, u64>,
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
        let (newest, by_name) = (Slab::default(), Index::new(hash_key));
        let mut index = Self { newest, by_name, ends: BTreeMap::new() };
        for event in history.iter() {
            index.note(&event.name, event.number);
            index.note_end(event);
        }
        index
    }

    fn note_end(&mut self, event: &Event) {
        if event.how_ended().is_some() {
            self.ends.insert(event.token, event.number);
        }
    }

    /// How a holder of this name ended, if the ring still has that event.
    pub(crate) fn how_ended(
        &self,
        history: &History,
        name: &LockName,
        token: Token,
    ) -> Option<EndReason> {
        // A ticket's names are recorded one after the other.
        let last = self.ends.get(&token).copied();
        let of_ticket = std::iter::successors(last, |number| number.checked_sub(1))
            .map_while(|number| history.get(number).filter(|event| event.token == token));
        of_ticket
            .take_while(|event| event.how_ended().is_some())
            .find(|e| e.name == *name)?
            .how_ended()
    }

    fn slot(&self, name: &LockName) -> Option<Slot> {
        self.by_name.get(&self.newest, name)
    }

    /// Records the newest event of a name; returns the one before.
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
        if self.ends.get(&event.token) == Some(&event.number) {
            self.ends.remove(&event.token);
        }
        let Some(slot) = self.slot(&event.name) else { return };
        if self.newest.get(slot).is_some_and(|newest| newest.number == event.number) {
            self.by_name.remove(&self.newest, slot);
            self.newest.remove(slot);
        }
    }

    /// Adds an event, with its number and predecessor filled in here. Drops the oldest ones beyond
    /// the bounds `max`: events, and bytes.
    pub(crate) fn add(&mut self, history: &mut History, mut event: Event, max: (usize, usize)) {
        event.number = history.next_number;
        event.previous = self.note(&event.name, event.number);
        history.next_number = history.next_number.saturating_add(1);
        self.note_end(&event);
        history.keep(event);
        while history.is_too_long(max) {
            for event in history.drop_oldest_block().iter().flat_map(|block| block.iter()) {
                self.forget(event);
            }
        }
    }

    /// The events of a name, newest first.
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
