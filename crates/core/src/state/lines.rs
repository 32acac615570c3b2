//! The order of tickets in each line.
//!
//! The first ticket of a line stands in the lock itself, so that a lock nobody waits for, the
//! common one, costs nothing here.

use super::records::Lock;
use crate::ids::Token;
use crate::store::Slot;
use std::collections::BTreeSet;

/// Every ticket that is not the first of its line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lines(BTreeSet<(Slot, Token)>);

/// From every ticket that is not the first of its line.
impl FromIterator<(Slot, Token)> for Lines {
    fn from_iter<I: IntoIterator<Item = (Slot, Token)>>(behind: I) -> Self {
        Self(behind.into_iter().collect())
    }
}

impl Lines {
    /// Adds a ticket at the end: its number is higher than all others.
    pub(crate) fn join(&mut self, slot: Slot, lock: &mut Lock, token: Token) {
        if lock.head().is_none() {
            lock.set_head(Some(token));
        } else {
            self.0.insert((slot, token));
        }
        lock.line_len = lock.line_len.saturating_add(1);
    }

    pub(crate) fn leave(&mut self, slot: Slot, lock: &mut Lock, token: Token) {
        if lock.head() == Some(token) {
            let next = self.first_above(slot, token);
            lock.set_head(next);
            if let Some(head) = next {
                self.0.remove(&(slot, head));
            }
        } else {
            self.0.remove(&(slot, token));
        }
        lock.line_len = lock.line_len.saturating_sub(1);
    }

    fn first_above(&self, slot: Slot, token: Token) -> Option<Token> {
        let above = (slot, Token(token.0.saturating_add(1)))..=(slot, Token(u64::MAX));
        self.0.range(above).next().map(|(_, token)| *token)
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
        let rest = self.0.range((slot, Token(0))..=(slot, Token(u64::MAX)));
        lock.head().into_iter().chain(rest.map(|(_, token)| *token))
    }

    /// Those being served, in order.
    pub(crate) fn holders(&self, slot: Slot, lock: &Lock) -> impl Iterator<Item = Token> + '_ {
        self.iter(slot, lock).take(lock.holders as usize)
    }

    /// Those not yet served, in order.
    pub(crate) fn waiters(&self, slot: Slot, lock: &Lock) -> impl Iterator<Item = Token> + '_ {
        let last_served = lock.last_served;
        let head = lock.head().filter(|head| *head > last_served);
        let from = Token(last_served.0.saturating_add(1));
        let rest = self.0.range((slot, from)..=(slot, Token(u64::MAX)));
        head.into_iter().chain(rest.map(|(_, token)| *token))
    }
}
