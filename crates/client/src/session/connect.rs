//! Which server the session talks to. If a server has not answered after a head start, the next one
//! is asked as well, and the first that answers is taken: so servers that hang cost little.
//!
//! An `Open` that was sent may open a session whether or not anybody still wants it. It is
//! followed until its answer has come, and a session that nobody wants is closed.

use super::SessionState;
use super::io::{ConnectionId, Failure, FailureKind, Output, QueryId, Reply, StreamId};
use super::lease::Lease;
use super::lost::EndingLost;
use super::moment::Moment;
use super::send::close_message;
use crate::error::Error;
use holdfast_proto::v1::{self as proto, to_client};
use std::time::Duration;

/// How long one server may take to answer, whatever the session's TTL.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(3);

/// How long one server may take before the next one is asked as well: a twentieth of the session's
/// TTL, within these bounds. A client that leaves a server that hangs has a quarter of the TTL
/// left, so four more that hang are no harm.
const HEAD_START_PARTS: u32 = 20;
const HEAD_START_MIN: Duration = Duration::from_millis(50);
const HEAD_START_MAX: Duration = Duration::from_millis(500);

/// How long to follow an `Open` that nobody waits for. A session whose TTL is longer is left to it
/// then.
const LATE_ANSWER_MAX: Duration = Duration::from_mins(1);

/// How long the close of a session that nobody wants may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long between two rounds of attempts, at first and at most.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// How the session is connected.
#[derive(Debug)]
pub(super) enum Link {
    /// Not at all. If anything is wanted, servers are asked from this moment on.
    Down { retry_at: Moment },
    /// Servers are being asked for a stream.
    Connecting(Round),
    /// Over this stream.
    Up(ConnectionId, StreamId),
    /// The session is being closed. The stream is kept until the server confirms that, or until this
    /// moment: a stream that is dropped at once might take the last messages with it.
    Closing(ConnectionId, StreamId, Moment),
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(..))
    }
}

/// All servers are asked, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// The session is attached; otherwise one is opened.
    attaches: bool,
    asked: usize,
    ask_next_at: Moment,
}

/// A server that is asked for a stream.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) connection: ConnectionId,
    server: usize,
    attaches: bool,
    /// Otherwise it is only followed, to close what it opens.
    wanted: bool,
    until: Moment,
    pub(super) phase: Phase,
}

#[derive(Debug)]
pub(super) enum Phase {
    Connecting,
    /// An earlier session must surely be over first.
    EndingLost(EndingLost),
    /// The session's first message was sent, at that moment.
    Opening(StreamId, Moment),
    /// It has opened a session that nobody wants.
    Closing(StreamId),
}

impl Phase {
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Connecting => None,
            Self::EndingLost(ending) => Some(ending.stream),
            Self::Opening(stream, _) | Self::Closing(stream) => Some(*stream),
        }
    }
}

impl SessionState {
    /// The stream that the session goes over.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self.link {
            Link::Up(_, stream) => Some(stream),
            _ => None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up(..) | Link::Closing(..))
    }

    pub(super) fn wake_link_at(&self) -> Option<Moment> {
        match &self.link {
            Link::Down { retry_at } => (!self.closed && self.wants_stream()).then_some(*retry_at),
            Link::Connecting(round) => {
                (round.asked < self.config.servers.len()).then_some(round.ask_next_at)
            }
            Link::Up(..) => None,
            Link::Closing(_, _, until) => Some(*until),
        }
    }

    pub(super) fn wake_attempts_at(&self) -> Option<Moment> {
        self.attempts.iter().map(|attempt| attempt.until).min()
    }

    /// Decides which server to talk to, and sends what is queued.
    pub(super) fn drive_link(&mut self) {
        if self.closed {
            return;
        }
        match self.link {
            Link::Down { retry_at } => {
                if self.is_done() {
                    self.finish();
                } else if self.now >= retry_at && self.wants_stream() {
                    let (attaches, ask_next_at) = (self.has_session(), self.now);
                    self.link = Link::Connecting(Round { attaches, asked: 0, ask_next_at });
                    self.drive_link();
                }
            }
            Link::Connecting(round) => self.ask_servers(round),
            Link::Up(connection, stream) => {
                self.send_queued(stream);
                if self.session.is_none() || self.leave || self.is_done() {
                    self.disconnect(connection);
                } else if let Some(closes_by) = self.closing.filter(|_| self.may_close()) {
                    self.send_close(stream);
                    let until = closes_by.min(self.now.plus(CONNECT_TIMEOUT_MAX));
                    self.link = Link::Closing(connection, stream, until);
                }
            }
            Link::Closing(connection, _, until) => {
                if self.session.is_none() || self.now >= until {
                    self.end_session(&Error::Closed);
                    self.disconnect(connection);
                }
            }
        }
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        self.outputs.push(Output::Disconnect(connection));
        self.went_down();
    }

    /// The stream is gone, or no server gave one.
    fn went_down(&mut self) {
        self.leave = false;
        self.heartbeats.clear();
        self.stop_searches();
        // A server that took a stream and did nothing with it is no reason to hurry.
        if std::mem::take(&mut self.useful) {
            self.retry = RETRY_FIRST;
        }
        self.link = Link::Down { retry_at: self.now.plus(self.retry) };
        self.retry = (self.retry * 2).min(RETRY_MAX);
        if self.is_done() {
            self.finish();
        }
    }

    fn ask_servers(&mut self, mut round: Round) {
        let servers = self.config.servers.len();
        let wanted = self.wants_stream() && !self.is_done();
        if self.has_session() != round.attaches || !wanted {
            self.discard_attempts();
            return self.went_down();
        }
        while round.asked < servers && self.now >= round.ask_next_at {
            let server = (self.next_server + round.asked) % servers;
            self.attempt(server, round.attaches);
            round.asked += 1;
            let head_start = self.config.ttl / HEAD_START_PARTS;
            round.ask_next_at = self.now.plus(head_start.clamp(HEAD_START_MIN, HEAD_START_MAX));
        }
        self.link = Link::Connecting(round);
        if round.asked == servers && !self.attempts.iter().any(|attempt| attempt.wanted) {
            self.went_down();
        }
    }

    fn attempt(&mut self, server: usize, attaches: bool) {
        let connection = ConnectionId(self.next_id());
        let timeout = (self.config.ttl / 3).clamp(CONNECT_TIMEOUT_MIN, CONNECT_TIMEOUT_MAX);
        let until = self.now.plus(timeout);
        let (wanted, phase) = (true, Phase::Connecting);
        self.attempts.push(Attempt { connection, server, attaches, wanted, until, phase });
        self.outputs.push(Output::Connect(connection, server));
    }

    /// The next server is asked at once.
    fn hurry(&mut self) {
        if let Link::Connecting(round) = &mut self.link {
            round.ask_next_at = self.now;
        }
    }

    /// Ends attempts that take too long.
    pub(super) fn drive_attempts(&mut self) {
        for place in (0..self.attempts.len()).rev() {
            let Some(attempt) = self.attempts.get(place) else { continue };
            if self.now < attempt.until {
                continue;
            }
            if !attempt.wanted {
                self.end_attempt(place);
                continue;
            }
            let server = self.config.servers.get(attempt.server).cloned().unwrap_or_default();
            self.note_trouble(format!("{server} does not answer"));
            self.discard(place);
            self.hurry();
        }
    }

    fn end_attempt(&mut self, place: usize) {
        let Attempt { connection, .. } = self.attempts.swap_remove(place);
        self.outputs.push(Output::Disconnect(connection));
    }

    fn discard_attempts(&mut self) {
        for place in (0..self.attempts.len()).rev() {
            if self.attempts.get(place).is_some_and(|attempt| attempt.wanted) {
                self.discard(place);
            }
        }
    }

    /// Nobody wants its stream any more. If it may have opened a session, that is closed.
    fn discard(&mut self, place: usize) {
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        match attempt.phase {
            // A session that was to be attached goes on elsewhere.
            Phase::Opening(..) if !attempt.attaches => {
                attempt.wanted = false;
                attempt.until = self.now.plus(self.config.ttl.min(LATE_ANSWER_MAX));
            }
            Phase::Closing(_) => {}
            _ => self.end_attempt(place),
        }
    }

    fn attempt_of(&self, stream: StreamId) -> Option<usize> {
        self.attempts.iter().position(|attempt| attempt.phase.stream() == Some(stream))
    }

    pub(super) fn connected(&mut self, connection: ConnectionId) {
        let attempts = &self.attempts;
        let Some(place) = attempts.iter().position(|attempt| attempt.connection == connection)
        else {
            return;
        };
        let lost = self.lost.clone().filter(|_| self.session.is_none());
        match lost {
            Some(lost) => {
                let stream = StreamId(self.next_id());
                let first = lost.first_message();
                self.outputs.push(Output::OpenStream(connection, stream, first));
                if let Some(attempt) = self.attempts.get_mut(place) {
                    attempt.phase = Phase::EndingLost(EndingLost::new(stream, lost));
                }
            }
            None => self.open_stream(place),
        }
    }

    /// Opens the session there, or attaches it.
    pub(super) fn open_stream(&mut self, place: usize) {
        let (stream, sent) = (StreamId(self.next_id()), self.now);
        let first = self.first_message();
        let attaches = self.has_session();
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        // The session was lost meanwhile, or another attempt has opened one.
        if attempt.attaches != attaches {
            return self.end_attempt(place);
        }
        attempt.phase = Phase::Opening(stream, sent);
        self.outputs.push(Output::OpenStream(attempt.connection, stream, first));
    }

    pub(super) fn not_connected(&mut self, connection: ConnectionId, failure: Failure) {
        let attempts = &self.attempts;
        if let Some(place) = attempts.iter().position(|attempt| attempt.connection == connection) {
            self.attempt_failed(place, failure);
        }
    }

    /// A server did not give a stream.
    pub(super) fn attempt_failed(&mut self, place: usize, failure: Failure) {
        let Some(attempt) = self.attempts.get(place) else { return };
        let (wanted, attaches) = (attempt.wanted, attempt.attaches);
        self.end_attempt(place);
        if !wanted || attaches != self.has_session() {
            return;
        }
        if attaches {
            if failure.kind == FailureKind::SessionOver {
                // Everything that lived by it is over.
                self.end_session(&Error::SessionLost);
                self.lost = None;
            }
        } else if !failure.may_work_elsewhere() {
            self.refuse_session(&failure.refused());
        }
        self.note_trouble(failure.message);
        self.hurry();
    }

    pub(super) fn received(&mut self, stream: StreamId, message: proto::ToClient) {
        match self.link {
            Link::Up(_, up) | Link::Closing(_, up, _) if up == stream => {
                return self.handle(message);
            }
            _ => {}
        }
        // What was to be attached may be over by now, by this client's clock.
        self.end_session_if_over();
        let Some(place) = self.attempt_of(stream) else { return };
        let Some(attempt) = self.attempts.get(place) else { return };
        match (&attempt.phase, message.what) {
            (Phase::EndingLost(_), what) => self.end_lost(place, message.number, what),
            (Phase::Opening(_, sent), Some(to_client::What::Opened(opened))) => {
                self.opened(place, opened, *sent);
            }
            (Phase::Opening(..), _) => {
                let failure = Failure::elsewhere("the server began with something else");
                self.attempt_failed(place, failure);
            }
            (Phase::Closing(_), Some(to_client::What::SessionEnded(_))) => self.end_attempt(place),
            (Phase::Closing(_) | Phase::Connecting, _) => {}
        }
    }

    /// The session is open there, or attached.
    fn opened(&mut self, place: usize, opened: proto::Opened, sent: Moment) {
        let attaches = self.has_session();
        let Some(attempt) = self.attempts.get(place) else { return };
        if attempt.wanted && attempt.attaches == attaches {
            // A session that may be over as soon as it is open is of no use.
            let lease = Lease::confirmed(self.config.ttl, sent);
            if attaches || !self.came_too_late(lease) {
                return self.went_up(place, opened, sent);
            }
            self.note_trouble("the server took too long to open a session".to_owned());
            self.hurry();
        }
        self.close_unwanted(place);
    }

    /// Closes a session that nobody wants. If the server does not answer, it ends with its TTL.
    fn close_unwanted(&mut self, place: usize) {
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        match attempt.phase {
            Phase::Opening(stream, _) if !attempt.attaches => {
                (attempt.wanted, attempt.phase) = (false, Phase::Closing(stream));
                attempt.until = self.now.plus(CLOSE_TIMEOUT);
                self.outputs.push(Output::Send(stream, close_message()));
            }
            _ => self.end_attempt(place),
        }
    }

    fn went_up(&mut self, place: usize, opened: proto::Opened, sent: Moment) {
        let Attempt { connection, server, phase, .. } = self.attempts.swap_remove(place);
        let Some(stream) = phase.stream() else { return };
        self.discard_attempts();
        self.link = Link::Up(connection, stream);
        self.next_server = server + 1;
        (self.leave, self.useful) = (false, false);
        self.heartbeats.clear();
        self.attached(opened, sent);
        self.send_pending(stream);
        // After the session was attached: what happens from now on comes over the stream.
        self.begin_searches(connection);
    }

    pub(super) fn stream_ended(&mut self, stream: StreamId, failure: Option<Failure>) {
        let failure = failure.unwrap_or_else(|| Failure::elsewhere("the server hung up"));
        match self.link {
            Link::Up(connection, up) if up == stream => {
                self.note_trouble(failure.message);
                return self.disconnect(connection);
            }
            Link::Closing(connection, up, _) if up == stream => {
                self.end_session(&Error::Closed);
                return self.disconnect(connection);
            }
            _ => {}
        }
        self.end_session_if_over();
        let Some(place) = self.attempt_of(stream) else { return };
        match self.attempts.get(place).map(|attempt| &attempt.phase) {
            // It was over already.
            Some(Phase::EndingLost(ending))
                if failure.kind == FailureKind::SessionOver && ending.is_attaching() =>
            {
                self.open_stream(place);
            }
            Some(Phase::EndingLost(_)) => self.attempt_failed(place, failure.on_the_way()),
            Some(_) => self.attempt_failed(place, failure),
            None => {}
        }
    }

    pub(super) fn replied(&mut self, query: QueryId, reply: Result<Reply, Failure>) {
        let asked = |attempt: &Attempt| match &attempt.phase {
            Phase::EndingLost(ending) => ending.query() == Some(query),
            _ => false,
        };
        match self.attempts.iter().position(asked) {
            Some(place) => self.gave_up(place, reply.map(drop)),
            None => self.search_replied(query, reply),
        }
    }
}

impl Failure {
    /// What goes wrong on the way says nothing about the session that is wanted, unless the server
    /// does not talk to this client at all.
    pub(super) fn on_the_way(self) -> Self {
        match self.kind {
            FailureKind::Unauthenticated => self,
            _ => Self { kind: FailureKind::TryElsewhere, ..self },
        }
    }
}
