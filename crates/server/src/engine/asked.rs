//! Who waits for an answer of the loop, and what reaches them.

use holdfast_core::{Ended, Grant, Token};
use holdfast_node::Reply;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokio::sync::oneshot;

/// What became of something that was asked.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reply: Reply,
    /// For a ticket that waits: how its wait ends.
    pub(crate) turn: Option<oneshot::Receiver<Turn>>,
}

/// Why something has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Too much is in line at this node. It had no effect.
    QueueFull,
    /// The disk of this node is full. It had no effect.
    DiskFull,
    /// It may or may not have had an effect: ask for the outcome.
    Unknown,
    /// The node has stopped; the same holds.
    Stopped,
}

/// How a wait ends.
#[derive(Debug)]
pub enum Turn {
    /// It is served.
    Granted(Box<Grant>),
    /// It is over without having been served.
    Ended(Box<Ended>),
}

/// Somebody who asked for something that goes through the log.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) told: oneshot::Sender<Told>,
    /// Nobody else can know of the ticket: if the asker is gone, it is to be given up.
    pub(crate) sole: bool,
}

/// Who waits for which ticket. Usually one; a retry may be a second.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_ticket: HashMap<Token, Vec<oneshot::Sender<Turn>>, foldhash::fast::RandomState>,
}

impl Turns {
    pub(crate) fn wait_for(&mut self, token: Token) -> oneshot::Receiver<Turn> {
        let (sender, receiver) = oneshot::channel();
        let waiting = self.by_ticket.entry(token).or_default();
        // Those who hung up make room.
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        receiver
    }

    /// Tells those who wait for a ticket; false if nobody did.
    pub(crate) fn tell(&mut self, token: Token, turn: impl Fn() -> Turn) -> bool {
        if self.by_ticket.is_empty() {
            return false;
        }
        let Entry::Occupied(entry) = self.by_ticket.entry(token) else { return false };
        for sender in entry.remove() {
            // One that hung up has said what is to become of its ticket.
            let _ = sender.send(turn());
        }
        true
    }

    /// Nobody knows what became of the tickets: whoever waits must ask.
    pub(crate) fn lose_track(&mut self) {
        self.by_ticket.clear();
    }
}
