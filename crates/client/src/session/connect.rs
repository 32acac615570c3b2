//! Which server the session uses. If a server has not answered after a head start, the next one is
//! asked as well, and the first to answer is used, so that servers that hang cost little.

use super::SessionState;
use super::attempts::{Attempt, CONNECT_TIMEOUT_MAX, Phase};
use super::io::{ConnectionId, Failure, FailureKind, Output, QueryId, Reply, StreamId};
use super::moment::Moment;
use crate::error::Error;
use holdfast_proto::v1::{self as proto, to_client};
use std::time::Duration;

/// How long one server may take before the next one is asked as well: a twentieth of the session's
/// TTL, within these limits. A client that leaves a hanging server has a quarter of the TTL left,
/// so four more of them do no harm.
const HEAD_START_PARTS: u32 = 20;
const HEAD_START_MIN: Duration = Duration::from_millis(50);
const HEAD_START_MAX: Duration = Duration::from_millis(500);

/// The pause between two rounds of attempts, at first and at most.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// The session's connection.
#[derive(Debug)]
pub(super) enum Link {
    /// Not connected. If a stream is needed, attempts start at this moment.
    Down { retry_at: Moment },
    /// Servers are being asked for a stream.
    Connecting(Round),
    /// Connected over this stream.
    Up(ConnectionId, StreamId),
    /// The session is being closed. The stream is kept until the server confirms that, or until
    /// this moment: dropping it immediately might lose the last messages.
    Closing(ConnectionId, StreamId, Moment),
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(..))
    }
}

/// One round of attempts, in which all servers are asked in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// Whether to attach the session; otherwise one is opened.
    attaches: bool,
    asked: usize,
    ask_next_at: Moment,
}

impl SessionState {
    /// The session's current stream.
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

    /// Decides which server to use, and sends what is queued.
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

    /// The stream is gone, or no server provided one.
    fn went_down(&mut self) {
        self.leave = false;
        self.heartbeats.clear();
        self.stop_searches();
        // Don't hurry after a server that accepted a stream and did nothing with it.
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

    /// Asks the next server immediately.
    pub(super) fn hurry(&mut self) {
        if let Link::Connecting(round) = &mut self.link {
            round.ask_next_at = self.now;
        }
    }

    pub(super) fn received(&mut self, stream: StreamId, message: proto::ToClient) {
        match self.link {
            Link::Up(_, up) | Link::Closing(_, up, _) if up == stream => {
                return self.handle(message);
            }
            _ => {}
        }
        // The session may be over by now, by this client's clock.
        self.end_session_if_over();
        let Some(place) = self.attempt_of(stream) else { return };
        let Some(attempt) = self.attempts.get(place) else { return };
        match (&attempt.phase, message.what) {
            (Phase::EndingLost(_), what) => self.end_lost(place, message.number, what),
            (Phase::Opening(_, sent), Some(to_client::What::Opened(opened))) => {
                self.opened(place, opened, *sent);
            }
            (Phase::Opening(..), _) => {
                let failure = Failure::elsewhere("the server sent an unexpected first message");
                self.attempt_failed(place, failure);
            }
            (Phase::Closing(_), Some(to_client::What::SessionEnded(_))) => self.end_attempt(place),
            (Phase::Closing(_) | Phase::Connecting, _) => {}
        }
    }

    pub(super) fn went_up(&mut self, place: usize, opened: proto::Opened, sent: Moment) {
        let Attempt { connection, server, phase, .. } = self.attempts.swap_remove(place);
        let Some(stream) = phase.stream() else { return };
        self.discard_attempts();
        self.link = Link::Up(connection, stream);
        self.next_server = server + 1;
        (self.leave, self.useful) = (false, false);
        self.heartbeats.clear();
        self.attached(opened, sent);
        self.send_pending(stream);
        // Only after the session was attached: later events come over the stream.
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
            // It was already over.
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
