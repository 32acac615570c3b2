//! The locks themselves: a line of tickets for each name.

use crate::clock::Moment;
use crate::guard::Ending;
use crate::token::Token;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Deaths that are remembered in one space; the oldest names in byte order go first.
const DEATHS_MAX: usize = 10_000;

/// A space of names.
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
    /// When the lease ends; `None` while the ticket waits, and after its turn came until its owner
    /// has seen it.
    pub(super) deadline: Option<Moment>,
    /// Tells the owner that its turn came, or that the ticket in front has another deadline.
    pub(super) moved: Arc<Notify>,
}

/// What the owner of a new ticket keeps.
pub(super) struct Entered {
    pub(super) token: Token,
    pub(super) moved: Arc<Notify>,
}

impl Space {
    /// The space of this name in this process.
    pub(super) fn named(name: &str) -> Arc<Self> {
        static SPACES: Mutex<BTreeMap<String, Arc<Space>>> = Mutex::new(BTreeMap::new());
        let mut spaces = SPACES.lock().unwrap_or_else(PoisonError::into_inner);
        spaces.entry(name.to_owned()).or_default().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the line of a name, without tickets whose lease is over.
    pub(super) fn with_line<T>(&self, name: &str, work: impl FnOnce(&mut Line) -> T) -> T {
        let mut inner = self.lock();
        let mut line = inner.lines.remove(name).unwrap_or_default();
        while let Some(dead) =
            line.tickets.pop_front_if(|ticket| ticket.deadline.is_some_and(Moment::has_passed))
        {
            let label = crate::driver::label_of(&dead.owner);
            let ending = Ending::of_death(Some(dead.token), Some(label), dead.note);
            inner.deaths.insert(name.to_owned(), ending);
            if inner.deaths.len() > DEATHS_MAX {
                inner.deaths.pop_first();
            }
            line.wake_first();
        }
        let result = work(&mut line);
        if !line.tickets.is_empty() {
            inner.lines.insert(name.to_owned(), line);
        }
        result
    }

    /// Draws the next ticket and puts it at the end of the line, in one step: tokens rise along it.
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

    /// Takes a ticket out, wherever it is; false if it is not in line.
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
