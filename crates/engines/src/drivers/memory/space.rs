//! The locks themselves: a line of tickets per name.

use crate::clock::Moment;
use crate::guard::Ending;
use crate::token::Token;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Deaths remembered per space. Beyond this, the oldest are forgotten.
const DEATHS_MAX: usize = 10_000;

/// A namespace.
#[derive(Default)]
pub(super) struct Space {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last_token: u64,
    lines: BTreeMap<String, Line>,
    deaths: BTreeMap<String, Ending>,
}

/// The tickets of one lock; the first one holds it. Never empty in the map.
#[derive(Default)]
pub(super) struct Line {
    pub(super) tickets: VecDeque<Ticket>,
}

pub(super) struct Ticket {
    pub(super) token: Token,
    pub(super) owner: String,
    pub(super) note: Option<String>,
    /// When the lease ends; `None` while the ticket is waiting, and from its turn until its owner
    /// has noticed it.
    pub(super) deadline: Option<Moment>,
    /// Tells the owner that its turn has come, or that the deadline of the ticket ahead has
    /// changed.
    pub(super) moved: Arc<Notify>,
}

/// What the owner of a new ticket keeps.
pub(super) struct Entered {
    pub(super) token: Token,
    pub(super) moved: Arc<Notify>,
}

impl Space {
    /// The space of this name, shared by the whole process.
    pub(super) fn named(name: &str) -> Arc<Self> {
        static SPACES: Mutex<BTreeMap<String, Arc<Space>>> = Mutex::new(BTreeMap::new());
        let mut spaces = SPACES.lock().unwrap_or_else(PoisonError::into_inner);
        spaces.entry(name.to_owned()).or_default().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the line of a name, after removing tickets whose lease is over.
    pub(super) fn with_line<T>(&self, name: &str, work: impl FnOnce(&mut Line) -> T) -> T {
        let mut inner = self.lock();
        let mut line = inner.lines.remove(name).unwrap_or_default();
        while let Some(dead) =
            line.tickets.pop_front_if(|ticket| ticket.deadline.is_some_and(Moment::has_passed))
        {
            let label = crate::driver::label_of(&dead.owner);
            let ending = Ending::of_death(Some(dead.token), Some(label), dead.note);
            remember(&mut inner.deaths, name, ending, DEATHS_MAX);
            line.wake_first();
        }
        let result = work(&mut line);
        if !line.tickets.is_empty() {
            inner.lines.insert(name.to_owned(), line);
        }
        result
    }

    /// Draws the next ticket and appends it to the line, in one step: tokens rise along the line.
    pub(super) fn enter(&self, name: &str, owner: String, note: Option<String>) -> Entered {
        let mut inner = self.lock();
        inner.last_token += 1;
        let (token, moved) = (Token::new(inner.last_token), Arc::new(Notify::new()));
        let ticket = Ticket { token, owner, note, deadline: None, moved: moved.clone() };
        inner.lines.entry(name.to_owned()).or_default().tickets.push_back(ticket);
        Entered { token, moved }
    }

    pub(super) fn take_death(&self, name: &str) -> Option<Ending> {
        self.lock().deaths.remove(name)
    }
}

impl Line {
    pub(super) fn wake_first(&self) {
        if let Some(first) = self.tickets.front() {
            first.moved.notify_one();
        }
    }

    /// Removes a ticket, wherever it is; returns false if it is not in line.
    pub(super) fn remove(&mut self, owner: &str) -> bool {
        let place = self.tickets.iter().position(|ticket| ticket.owner == owner);
        let Some(place) = place else { return false };
        self.tickets.remove(place);
        if place == 0 {
            self.wake_first();
        }
        true
    }
}

/// Remembers a death, and forgets the one with the lowest token if there are more than `max`.
fn remember(deaths: &mut BTreeMap<String, Ending>, name: &str, ending: Ending, max: usize) {
    deaths.insert(name.to_owned(), ending);
    if deaths.len() > max {
        let oldest = deaths.iter().min_by_key(|(_, ending)| ending.token);
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            deaths.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first name in the alphabet was forgotten, even if its holder had died last.
    #[test]
    fn oldest_death_is_forgotten_first() {
        let mut deaths = BTreeMap::new();
        for (token, name) in [(1, "b"), (2, "c"), (3, "a")] {
            let ending = Ending::of_death(Some(Token::new(token)), None, None);
            remember(&mut deaths, name, ending, 2);
        }
        assert_eq!(deaths.keys().collect::<Vec<_>>(), ["a", "c"]);
    }
}
