//! The order of tickets in each line.
//!
//! The first ticket of a line is stored in the lock itself, so that a lock nobody waits for, the
//! common case, costs nothing here.

use super::records::Lock;
use crate::containers::Slot;
use crate::ids::Token;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct LineOrder {
    /// Every ticket that is not the first of its line.
    behind: BTreeSet<(Slot, Token)>,
    /// How many lines have how many tickets, from two upwards.
    lens: BTreeMap<u32, u32>,
}

/// From every ticket that is not the first of its line.
impl FromIterator<(Slot, Token)> for LineOrder {
    fn from_iter<I: IntoIterator<Item = (Slot, Token)>>(behind: I) -> Self {
        let behind: BTreeSet<(Slot, Token)> = behind.into_iter().collect();
        let mut lines = Self { behind, lens: BTreeMap::new() };
        let (mut current, mut len) = (None, 1_u32);
        for (slot, _) in &lines.behind {
            if current.replace(*slot) != Some(*slot) {
                count(&mut lines.lens, std::mem::replace(&mut len, 1));
            }
            len = len.saturating_add(1);
        }
        count(&mut lines.lens, len);
        lines
    }
}

/// Counts a line of this length.
fn count(lens: &mut BTreeMap<u32, u32>, len: u32) {
    if len > 1 {
        let lines = lens.entry(len).or_default();
        *lines = lines.saturating_add(1);
    }
}

/// Uncounts a line of this length.
fn uncount(lens: &mut BTreeMap<u32, u32>, len: u32) {
    if let Entry::Occupied(mut lines) = lens.entry(len) {
        *lines.get_mut() = lines.get().saturating_sub(1);
        if *lines.get() == 0 {
            lines.remove();
        }
    }
}

impl LineOrder {
    /// The length of the longest line; 0 if no line has two tickets.
    pub(crate) fn longest(&self) -> usize {
        self.lens.last_key_value().map_or(0, |(len, _)| *len as usize)
    }

    fn set_len(&mut self, lock: &mut Lock, len: u32) {
        uncount(&mut self.lens, lock.line_len);
        lock.line_len = len;
        count(&mut self.lens, len);
    }

    /// Appends a ticket: its number is higher than all others.
    pub(crate) fn join(&mut self, slot: Slot, lock: &mut Lock, token: Token) {
        if lock.head().is_none() {
            lock.set_head(Some(token));
        } else {
            self.behind.insert((slot, token));
        }
        self.set_len(lock, lock.line_len.saturating_add(1));
    }

    pub(crate) fn leave(&mut self, slot: Slot, lock: &mut Lock, token: Token) {
        if lock.head() == Some(token) {
            let next = self.first_above(slot, token);
            lock.set_head(next);
            if let Some(head) = next {
                self.behind.remove(&(slot, head));
            }
        } else {
            self.behind.remove(&(slot, token));
        }
        self.set_len(lock, lock.line_len.saturating_sub(1));
    }

    fn first_above(&self, slot: Slot, token: Token) -> Option<Token> {
        let above = (slot, Token(token.0.saturating_add(1)))..=(slot, Token(u64::MAX));
        self.behind.range(above).next().map(|(_, token)| *token)
    }

    /// The first ticket that is not served yet.
    pub(crate) fn next_waiter(&self, slot: Slot, lock: &Lock) -> Option<Token> {
        if lock.waiters() == 0 {
            return None;
        }
        match lock.head() {
            Some(head) if head > lock.last_served => Some(head),
            _ => self.first_above(slot, lock.last_served),
        }
    }

    /// The line from its head.
    pub(crate) fn iter(
        &self,
        slot: Slot,
        lock: &Lock,
    ) -> impl DoubleEndedIterator<Item = Token> + '_ {
        let rest = self.behind.range((slot, Token(0))..=(slot, Token(u64::MAX)));
        lock.head().into_iter().chain(rest.map(|(_, token)| *token))
    }

    /// The holders, in order.
    pub(crate) fn holders(&self, slot: Slot, lock: &Lock) -> impl Iterator<Item = Token> + '_ {
        self.iter(slot, lock).take(lock.holders as usize)
    }

    /// The waiters, in order.
    pub(crate) fn waiters(&self, slot: Slot, lock: &Lock) -> impl Iterator<Item = Token> + '_ {
        let last_served = lock.last_served;
        let head = lock.head().filter(|head| *head > last_served);
        let from = Token(last_served.0.saturating_add(1));
        let rest = self.behind.range((slot, from)..=(slot, Token(u64::MAX)));
        head.into_iter().chain(rest.map(|(_, token)| *token))
    }
}
