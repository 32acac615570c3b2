//! Who waits for an answer of the loop, and what reaches them.

use super::undelivered::{TicketRef, Undelivered};
use holdfast_core::{
    Answer, Effect, Ended, Grant, How, Scope, SessionId, Standing, Token, Watches,
};
use holdfast_gateway::{ApiError, Code};
use holdfast_node::Reply;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, mpsc, oneshot};

/// Watches of one node. A slow watcher keeps some 30 KB of pointers, and what they point to: all of
/// them together stay near 300 MB.
const WATCHES_MAX: usize = 10_000;

/// What became of something that was asked.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reply: Reply,
    /// For a ticket that waits: how its wait ends.
    pub(crate) turn: Option<oneshot::Receiver<Turn>>,
    /// Gives the ticket up unless the answer reaches the caller.
    pub(crate) undelivered: Option<Undelivered>,
}

/// How a wait ends.
#[derive(Debug)]
pub enum Turn {
    /// It is served.
    Granted(Box<Grant>),
    /// It is over without having been served.
    Ended(Box<Ended>),
}

/// Where the answer to something that goes through the log is to go.
#[derive(Debug)]
pub(crate) enum Asker {
    /// To somebody who waits for just this.
    One {
        told: oneshot::Sender<Told>,
        /// The ticket that this draws, if nobody but the asker can know of it: if the answer does
        /// not reach the asker, it is given up.
        draws: Option<TicketRef>,
    },
    /// To a session's line, under a number of its own.
    Line { line: Arc<Line>, number: u64 },
    /// To nobody: whoever asked was told that nobody knows. The ticket that it draws, if it does
    /// after all, is given up.
    Nobody { draws: Option<TicketRef> },
}

impl Asker {
    /// Whether whoever asked is gone.
    pub(crate) fn hung_up(&self) -> bool {
        match self {
            Self::One { told, .. } => told.is_closed(),
            Self::Line { line, .. } => line.words.is_closed(),
            Self::Nobody { .. } => false,
        }
    }
}

/// A way from the loop to a session's connection: answers and news, in the order in which they
/// happened.
#[derive(Debug)]
pub(crate) struct Line {
    words: mpsc::Sender<Word>,
    /// The connection did not keep up: something was left out, so it must end.
    overflowed: AtomicBool,
    on_overflow: Notify,
}

/// Why a line has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Its client did not read fast enough.
    TooSlow,
    /// This node jumped over what happened.
    LostTrack,
}

impl From<Missed> for ApiError {
    fn from(missed: Missed) -> Self {
        let hint = "begin again, and look how things are now";
        match missed {
            Missed::TooSlow => {
                let message = "events were not read fast enough: some were missed";
                Self::new(Code::Lagged, message, hint)
            }
            Missed::LostTrack => {
                let message = "this node was behind and has caught up: events were missed";
                Self::new(Code::Missed, message, hint)
            }
        }
    }
}

/// What comes over a line.
#[derive(Debug)]
pub(crate) enum Word {
    /// The answer to what was asked under that number.
    Reply { number: u64, reply: Reply },
    /// It was not handed to the loop, and why.
    Refused { number: u64, error: ApiError },
    /// Something happened to the session, one of its tickets, or a lock that is watched; and the
    /// logical time then.
    News { effect: Arc<Effect>, now_ms: u64 },
    /// The node does not know what happened meanwhile.
    LostTrack,
}

impl Line {
    pub(crate) fn new(words_max: usize) -> (Arc<Self>, mpsc::Receiver<Word>) {
        let (words, receiver) = mpsc::channel(words_max);
        let (overflowed, on_overflow) = (AtomicBool::new(false), Notify::new());
        (Arc::new(Self { words, overflowed, on_overflow }), receiver)
    }

    pub(crate) fn say(&self, word: Word) {
        if self.words.try_send(word).is_err() {
            self.overflowed.store(true, Ordering::Relaxed);
            self.on_overflow.notify_one();
        }
    }

    /// Resolves when something was left out. Only one task may wait for it.
    pub(crate) async fn broken(&self) {
        while !self.is_broken() {
            self.on_overflow.notified().await;
        }
    }

    /// Whether something was left out.
    pub(crate) fn is_broken(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }
}

/// Which sessions have a line here.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    lines: HashMap<SessionId, Arc<Line>, foldhash::fast::RandomState>,
    /// What has just been answered over which line: it needs no news of the same.
    answered: Vec<(Answered, Arc<Line>)>,
    watches: Watches<u64>,
    watching: HashMap<u64, (Arc<Line>, Scope), foldhash::fast::RandomState>,
}

/// What an answer has told a session: just this event of the ticket, not what happens to it next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answered {
    Granted(Token),
    Released(Token),
    Cancelled(Token),
}

impl Answered {
    fn by(reply: &Reply) -> Option<Self> {
        match reply {
            Reply::Answer(Ok(Answer::Standing(Standing::Held(grant)))) => {
                Some(Self::Granted(grant.token))
            }
            Reply::Answer(Ok(Answer::Released(token))) => Some(Self::Released(*token)),
            Reply::Answer(Ok(Answer::Cancelled(token))) => Some(Self::Cancelled(*token)),
            _ => None,
        }
    }

    /// The answer that tells as much as this event does.
    fn telling(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::Granted(grant) => Some(Self::Granted(grant.token)),
            Effect::Ended(Ended { token, how: How::Released, .. }) => Some(Self::Released(*token)),
            Effect::Ended(Ended { token, how: How::Cancelled, .. }) => {
                Some(Self::Cancelled(*token))
            }
            _ => None,
        }
    }
}

impl Listeners {
    /// A line takes the place of an older one of the same session, which ends: it would hear of
    /// nothing any more, and believe that nothing happens.
    pub(crate) fn add(&mut self, session: SessionId, line: Arc<Line>) {
        if let Some(older) = self.lines.insert(session, line) {
            older.say(Word::LostTrack);
        }
    }

    pub(crate) fn remove(&mut self, session: SessionId, line: &Arc<Line>) {
        if self.lines.get(&session).is_some_and(|current| Arc::ptr_eq(current, line)) {
            self.lines.remove(&session);
        }
    }

    /// An answer goes over a line.
    pub(crate) fn answer(&mut self, line: &Arc<Line>, number: u64, reply: Reply) {
        self.answered.extend(Answered::by(&reply).map(|answered| (answered, line.clone())));
        line.say(Word::Reply { number, reply });
    }

    /// Something happened: the session that it concerns hears of it, unless it asked for it, and
    /// so does whoever watches. Nothing is copied if nobody hears.
    pub(crate) fn hear(&mut self, effect: Effect, now_ms: u64) {
        let session = match &effect {
            Effect::Granted(grant) => grant.session,
            Effect::Ended(ended) => ended.session,
            Effect::RevocationAsked { session, .. } => *session,
            Effect::SessionEnded { session, .. } => Some(*session),
            _ => None,
        };
        let telling = Answered::telling(&effect);
        let knows = |line: &&Arc<Line>| {
            let told = |(answered, to): &(Answered, Arc<Line>)| {
                Some(*answered) == telling && Arc::ptr_eq(to, line)
            };
            telling.is_some() && self.answered.iter().any(told)
        };
        let of_session = session.and_then(|id| self.lines.get(&id)).filter(|line| !knows(line));
        let watching = self.watches.hearing(&effect);
        if of_session.is_none() && watching.is_empty() {
            return;
        }
        let effect = Arc::new(effect);
        let watching = watching.iter().filter_map(|watch| self.watching.get(watch));
        for line in of_session.into_iter().chain(watching.map(|(line, _)| line)) {
            line.say(Word::News { effect: effect.clone(), now_ms });
        }
    }

    /// From now on the line hears what happens to these locks; false if there are too many watches.
    pub(crate) fn watch(&mut self, watch: u64, scope: Scope, line: Arc<Line>) -> bool {
        let added = self.watching.len() < WATCHES_MAX && self.watches.add(watch, &scope);
        if added {
            self.watching.insert(watch, (line, scope));
        }
        added
    }

    pub(crate) fn unwatch(&mut self, watch: u64) {
        if let Some((_, scope)) = self.watching.remove(&watch) {
            self.watches.remove(&watch, &scope);
        }
    }

    /// All effects of an entry were heard.
    pub(crate) fn entry_done(&mut self) {
        self.answered.clear();
    }

    pub(crate) fn lose_track(&mut self) {
        let lines = self.lines.values().chain(self.watching.values().map(|(line, _)| line));
        for line in lines {
            line.say(Word::LostTrack);
        }
        self.lines.clear();
    }
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

    /// Whether somebody waits for a ticket.
    pub(crate) fn is_awaited(&self, token: Token) -> bool {
        let waiting = self.by_ticket.get(&token);
        waiting.is_some_and(|waiting| waiting.iter().any(|sender| !sender.is_closed()))
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
