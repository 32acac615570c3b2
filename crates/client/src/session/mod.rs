//! The session as a state machine, with inputs and outputs. It reads no clock, opens no socket and
//! draws no random number, so the driver (`driver/`) can run it on tokio and the simulator can run
//! the same code in virtual time.
//!
//! Call [`SessionState::input`] for everything that has happened, then [`SessionState::step`], and
//! perform the outputs in order. Step again no later than [`SessionState::wake_at`].
//!
//! The path of an acquire: [`Input::Call`] queues it (`calls.rs`). Once there is a stream to a
//! server (`connect.rs`, `attempts.rs`), it gets the session's next request number and is sent
//! (`send.rs`). It is pending until it is answered; if the server fails, the session is attached to
//! a stream of another server, and everything pending is sent again under its old number, so that
//! it takes effect once. The answer (`receive.rs`) is the grant, or a place in line, in which case
//! the grant comes later. A grant completes the call, unless its caller is gone: then it is
//! released.
//!
//! `timers.rs` handles time: heartbeats, renewals, leases in jeopardy or over, timeouts. After a
//! lost session, `lost.rs` gives back what its unanswered acquires got, `orphans.rs` finds out how
//! its upgrades ended, and `survivors.rs` follows the tickets that outlived it.
//!
//! Not part of the crate's public interface: it is visible for the simulator and for tests.
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

/// How far request numbers may run ahead of the lowest unanswered one. The server remembers 1,024
/// per session, and accepts as many at once.
pub const WINDOW: u64 = 1_000;

/// An open session.
#[derive(Debug)]
struct Session {
    id: u64,
    secret: Bytes,
    lease: Lease,
    /// Numbers this client's sessions, from 1.
    number: u64,
    /// Whether its guards were notified that it is in jeopardy.
    in_jeopardy: bool,
}

/// A waiting ticket, kept until the server has reported how the wait ended.
#[derive(Debug)]
struct Waiting {
    request: Request,
    ticket: TicketRef,
    /// Its caller no longer waits, and the server was asked to cancel it.
    cancelled: bool,
    /// The server answered that it was served before the cancel; its grant is on the way.
    served: bool,
}

/// The sizes of a session's collections; see [`SessionState::sizes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Requests that have not been sent.
    pub queued: usize,
    /// Requests that have not been answered.
    pub pending: usize,
    /// Waiting tickets.
    pub waiting: usize,
    /// Held tickets.
    pub held: usize,
    /// Upgrades that were lost with their session.
    pub orphans: usize,
    /// Attempts to get a stream, and unwanted sessions that are being closed.
    pub attempts: usize,
}

/// A client's session, over one server at a time.
#[derive(Debug)]
pub struct SessionState {
    config: Config,
    /// The latest moment at which this was called.
    now: Moment,
    outputs: Vec<Output>,
    session: Option<Session>,
    /// How many sessions have been opened.
    sessions: u64,
    /// A lost session, which must be confirmed over before another one is opened.
    lost: Option<Lost>,
    /// Calls that wait for a session, and until when.
    opening: Vec<(CallId, Moment)>,
    /// Not sent in this session yet.
    queue: VecDeque<Request>,
    next_request: u64,
    /// Sent and not answered, by number.
    pending: BTreeMap<u64, Request>,
    waiting: BTreeMap<u64, Waiting>,
    held: Held,
    orphans: Vec<Orphan>,
    /// Guards whose mode is being changed; settled when nothing refers to the change any more.
    changing: Vec<(CallId, Weak<()>)>,
    /// Watches, each with the token of its ticket.
    watches: BTreeMap<WatchId, u64>,
    /// When a grant that is on the way must have arrived.
    grant_due: Option<Moment>,
    /// The status of tickets, while more parts of it are to come.
    statuses: Vec<proto::TicketStatus>,
    /// The session is being closed, by this moment at the latest.
    closing: Option<Moment>,
    /// It is closed, and accepts nothing any more.
    closed: bool,
    /// Calls that were abandoned since the last step.
    abandoned: Vec<CallId>,
    /// A request may have lost its caller.
    cancel: bool,
    /// Unanswered heartbeats, oldest first.
    heartbeats: VecDeque<(u64, Moment)>,
    heartbeats_sent: u64,
    next_heartbeat: Moment,
    next_look: Moment,
    link: Link,
    attempts: Vec<Attempt>,
    /// The server to start the next round with.
    next_server: usize,
    /// The pause before the next round.
    retry: Duration,
    /// Whether to switch to another server.
    leave: bool,
    /// Whether the server has answered anything.
    useful: bool,
    /// The last failure, for error messages.
    trouble: String,
    /// The last id of a connection, stream, query or watch.
    last_id: u64,
}

impl SessionState {
    /// A client without a session. It opens one as soon as it is needed.
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

    /// Records something that has happened. [`SessionState::step`] returns what to do about it.
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

    /// Decides what to do now.
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

    /// When to step again if nothing happens before; `None` if nothing is due at any time.
    pub fn wake_at(&self) -> Option<Moment> {
        let looks = (!self.closed && (self.is_connected() || self.wants_stream()))
            .then_some(self.next_look);
        [looks, self.wake_link_at(), self.wake_attempts_at()].into_iter().flatten().min()
    }

    /// Whether everything that was dropped is released.
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

    /// Whether it is closed and there is nothing left to do.
    pub fn is_finished(&self) -> bool {
        self.closed && self.attempts.is_empty()
    }

    /// The sizes of its collections.
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

    /// Whether there is anything to keep alive or to send.
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

    /// A change is settled when its request is gone, however it ended.
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

    /// Stops everything, except closing unwanted sessions.
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
