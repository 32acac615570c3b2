//! The session as a state machine: what happened goes in, what is to be done comes out. It reads no
//! clock, opens no socket and draws no random number, so the driver (`driver/`) runs it on tokio,
//! and a simulator can run the very same code in virtual time.
//!
//! Call [`SessionState::input`] for everything that has happened, then [`SessionState::step`], and do
//! what that returns, in order. Step again at the latest at [`SessionState::wake_at`].
//!
//! The story of an acquire: [`Input::Call`] puts it into the queue (`calls.rs`). Once there is a stream
//! to a server (`connect.rs`, `attempts.rs`), it gets the session's next request number and is sent (`send.rs`). It
//! stays pending until it is answered; if the server goes away, the session is attached to a stream
//! of another server, and everything pending is sent again under its old number, which has one
//! effect. The answer (`receive.rs`) is the grant, or a place in line; then the grant comes later. A
//! grant completes the call, unless its caller is gone: then it is released.
//!
//! `timers.rs` looks at the clock: heartbeats, renewals, leases in jeopardy or over, timeouts.
//! After a lost session, `lost.rs` gives back what its unanswered acquires got, `orphans.rs` finds
//! out what became of its upgrades, and `survivors.rs` follows the tickets that outlived it.
//!
//! This is not part of the crate's public interface: it is visible for the simulator and for tests.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod attempts;
mod calls;
mod connect;
mod held;
mod io;
mod lease;
mod lost;
mod moment;
mod orphans;
mod receive;
mod request;
mod room;
mod send;
mod survivors;
mod timers;

pub use io::{
    Answer, Call, CallId, Config, ConnectionId, Failure, FailureKind, GuardChange, Input,
    ModeChange, Output, Query, QueryId, Reply, StreamId, TicketRef, WatchId, WatchUpdate,
};
pub use lease::{Lease, LeaseHealth, guard_health};
pub use moment::Moment;
pub use room::{Room, RoomLimit};

use crate::error::Error;
use attempts::Attempt;
use bytes::Bytes;
use connect::Link;
use held::Held;
use holdfast_proto::v1 as proto;
use lost::Lost;
use orphans::Orphan;
use request::Request;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;

/// How far request numbers may run ahead of the lowest one that is not answered. The server
/// remembers 1,024 of a session, and takes as many at once.
pub const WINDOW: u64 = 1_000;

/// An open session.
#[derive(Debug)]
struct Session {
    id: u64,
    secret: Bytes,
    lease: Lease,
    /// Which of this client's sessions it is, from 1.
    number: u64,
    /// Its guards were notified that it is in jeopardy.
    in_jeopardy: bool,
}

/// A ticket in line: kept until the server has answered what became of it.
#[derive(Debug)]
struct Waiting {
    request: Request,
    ticket: TicketRef,
    /// Nobody waits for it any more, and the server is asked to take it out of the line.
    cancelled: bool,
    /// The server has answered that it was served before that; its grant is on its way.
    served: bool,
}

/// How many of everything a session keeps; see [`SessionState::sizes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Requests that were not sent yet.
    pub queued: usize,
    /// Requests that were not answered yet.
    pub pending: usize,
    /// Tickets in line.
    pub waiting: usize,
    /// Tickets that are held.
    pub held: usize,
    /// Upgrades that were lost with their session.
    pub orphans: usize,
    /// Servers that are asked for a stream, and sessions being closed that nobody wants.
    pub attempts: usize,
}

/// A client's session, over one server after the other.
#[derive(Debug)]
pub struct SessionState {
    config: Config,
    /// The latest moment this was called at.
    now: Moment,
    outputs: Vec<Output>,
    session: Option<Session>,
    /// How many sessions were opened.
    sessions: u64,
    /// A session that was lost, and must surely be over before another one begins.
    lost: Option<Lost>,
    /// Who waits for a session, and until when.
    opening: Vec<(CallId, Moment)>,
    /// Not yet sent in this session.
    queue: VecDeque<Request>,
    next_request: u64,
    /// Sent, and not answered.
    pending: BTreeMap<u64, Request>,
    waiting: BTreeMap<u64, Waiting>,
    held: Held,
    orphans: Vec<Orphan>,
    /// Guards whose mode is being changed; settled when nothing refers to the change any more.
    changing: Vec<(CallId, Weak<()>)>,
    /// Watches, each with the token of its ticket.
    watches: BTreeMap<WatchId, u64>,
    /// When a grant that is on its way must have come.
    grant_due: Option<Moment>,
    /// The state of tickets, as long as further parts of it are to come.
    statuses: Vec<proto::TicketStatus>,
    /// The session is being closed, by this moment at the latest.
    closing: Option<Moment>,
    /// It is closed, and nothing is taken any more.
    closed: bool,
    /// Calls that were abandoned since the last step.
    abandoned: Vec<CallId>,
    /// A request may be without a caller.
    cancel: bool,
    /// Heartbeats that are not answered, the oldest first.
    heartbeats: VecDeque<(u64, Moment)>,
    heartbeats_sent: u64,
    next_heartbeat: Moment,
    next_look: Moment,
    link: Link,
    attempts: Vec<Attempt>,
    /// Where to begin with the servers.
    next_server: usize,
    /// How long until the next attempt.
    retry: Duration,
    /// Another server should be asked.
    leave: bool,
    /// The server has answered something.
    useful: bool,
    /// What went wrong last.
    trouble: String,
    /// Numbers connections, streams, queries and watches.
    last_id: u64,
}

impl SessionState {
    /// A client without a session: it opens one as soon as something is wanted.
    pub fn new(config: Config, now: Moment) -> Self {
        Self {
            config,
            now,
            outputs: Vec::new(),
            session: None,
            sessions: 0,
            lost: None,
            opening: Vec::new(),
            queue: VecDeque::new(),
            next_request: 1,
            pending: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: Held::default(),
            orphans: Vec::new(),
            changing: Vec::new(),
            watches: BTreeMap::new(),
            grant_due: None,
            statuses: Vec::new(),
            closing: None,
            closed: false,
            abandoned: Vec::new(),
            cancel: false,
            heartbeats: VecDeque::new(),
            heartbeats_sent: 0,
            next_heartbeat: now,
            next_look: now,
            link: Link::Down { retry_at: now },
            attempts: Vec::new(),
            next_server: 0,
            retry: connect::RETRY_FIRST,
            leave: false,
            useful: false,
            trouble: "no server has answered yet".to_owned(),
            last_id: 0,
        }
    }

    /// Takes note of something that happened. What follows from it, [`SessionState::step`] returns.
    pub fn input(&mut self, now: Moment, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Open(call) => self.open(call),
            Input::Call(call) => self.call(call),
            Input::Abandon(call) => self.abandoned.push(call),
            Input::Drop { ticket, lost, room } => self.dropped(ticket, lost, room),
            Input::Detach(ticket) => {
                self.unfollow(&ticket);
            }
            Input::Close => self.close(),
            Input::Connected(connection) => self.connected(connection),
            Input::NotConnected(connection, failure) => self.not_connected(connection, failure),
            Input::Received(stream, message) => self.received(stream, message),
            Input::StreamEnded(stream, failure) => self.stream_ended(stream, failure),
            Input::Replied(query, reply) => self.replied(query, reply),
            Input::Watched(watch, news) => self.watched(watch, news),
        }
    }

    /// Decides what is to be done now.
    pub fn step(&mut self, now: Moment) -> impl Iterator<Item = Output> {
        self.now = self.now.max(now);
        if self.now >= self.next_look && !self.closed {
            self.look();
        }
        self.cancel_abandoned();
        self.drive_attempts();
        self.drive_link();
        self.report_settled();
        self.end_watches();
        self.outputs.drain(..)
    }

    /// When to step again if nothing happens before; none if nothing is to be done by itself.
    pub fn wake_at(&self) -> Option<Moment> {
        let looks = (!self.closed && (self.is_connected() || self.wants_stream()))
            .then_some(self.next_look);
        [looks, self.wake_link_at(), self.wake_attempts_at()].into_iter().flatten().min()
    }

    /// Whether everything that was dropped is let go.
    pub fn is_flushed(&self) -> bool {
        let mut requests = self.queue.iter().chain(self.pending.values());
        let mut waiting = self.waiting.values();
        !requests.any(Request::is_unsettled)
            && !waiting.any(|waiting| waiting.cancelled)
            && self.orphans.is_empty()
            && !self.has_lost_acquires()
    }

    /// Whether it is closed: calls are refused from now on.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is closed and nothing is left to be done.
    pub fn is_finished(&self) -> bool {
        self.closed && self.attempts.is_empty()
    }

    /// How much is kept.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            queued: self.queue.len(),
            pending: self.pending.len(),
            waiting: self.waiting.len(),
            held: self.held.len(),
            orphans: self.orphans.len(),
            attempts: self.attempts.len(),
        }
    }

    fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether there is anything to keep alive or to ask for.
    fn wants_stream(&self) -> bool {
        self.session.is_some()
            || !self.queue.is_empty()
            || !self.opening.is_empty()
            || !self.orphans.is_empty()
            || self.has_lost_acquires()
            || (self.closing.is_none() && self.held.has_own_leases())
    }

    fn note_trouble(&mut self, why: String) {
        if !why.is_empty() {
            self.trouble = why;
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn notify_guard(&mut self, guard: CallId, change: GuardChange) {
        self.outputs.push(Output::Guard(guard, change));
    }

    /// A change is settled when its request is gone, whichever way it went.
    fn report_settled(&mut self) {
        let outputs = &mut self.outputs;
        self.changing.retain(|(guard, change)| {
            let unsettled = change.strong_count() > 0;
            if !unsettled {
                outputs.push(Output::Guard(*guard, GuardChange::Settled));
            }
            unsettled
        });
    }

    fn is_done(&self) -> bool {
        let Some(until) = self.closing else { return false };
        let asked = !self.queue.is_empty() || !self.pending.is_empty();
        let lost = !self.orphans.is_empty() || self.has_lost_acquires();
        (self.session.is_none() && !asked && !lost) || self.now >= until
    }

    /// Nothing more is done; sessions that nobody wants are still closed.
    fn finish(&mut self) {
        self.closed = true;
        self.end_session(&Error::Closed);
        self.orphans.clear();
        self.lost = None;
        for (call, _) in std::mem::take(&mut self.opening) {
            self.outputs.push(Output::Complete(call, Err(Error::Closed)));
        }
        for mut request in std::mem::take(&mut self.queue) {
            request.fail(&mut self.outputs, Error::Closed);
        }
    }
}
