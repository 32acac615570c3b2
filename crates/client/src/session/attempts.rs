//! Attempts to get a stream from a server.
//!
//! An `Open` that was sent may open a session that is no longer wanted. It is followed until its
//! answer arrives, and an unwanted session is closed.

use super::SessionState;
use super::io::{ConnectionId, Failure, FailureKind, Output, StreamId};
use super::lease::Lease;
use super::lost::EndingLost;
use super::moment::Moment;
use super::send::close_message;
use crate::error::Error;
use holdfast_proto::v1 as proto;
use std::time::Duration;

/// How long one server may take to answer, whatever the session's TTL.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub(super) const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(3);

/// How long to follow an `Open` that is no longer wanted. A session with a longer TTL is then left
/// to expire.
const LATE_ANSWER_MAX: Duration = Duration::from_mins(1);

/// How long closing an unwanted session may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// An attempt to get a stream from a server.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) connection: ConnectionId,
    pub(super) server: usize,
    attaches: bool,
    /// If false, it is only followed in order to close what it opens.
    pub(super) wanted: bool,
    until: Moment,
    pub(super) phase: Phase,
}

#[derive(Debug)]
pub(super) enum Phase {
    Connecting,
    /// Makes sure that an earlier session is over first.
    EndingLost(EndingLost),
    /// The first message was sent, at this moment.
    Opening(StreamId, Moment),
    /// It has opened an unwanted session, which is being closed.
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
    pub(super) fn wake_attempts_at(&self) -> Option<Moment> {
        self.attempts.iter().map(|attempt| attempt.until).min()
    }

    pub(super) fn attempt(&mut self, server: usize, attaches: bool) {
        let connection = ConnectionId(self.next_id());
        let timeout = (self.config.ttl / 3).clamp(CONNECT_TIMEOUT_MIN, CONNECT_TIMEOUT_MAX);
        let until = self.now.plus(timeout);
        let (wanted, phase) = (true, Phase::Connecting);
        self.attempts.push(Attempt { connection, server, attaches, wanted, until, phase });
        self.outputs.push(Output::Connect(connection, server));
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

    pub(super) fn end_attempt(&mut self, place: usize) {
        let Attempt { connection, .. } = self.attempts.swap_remove(place);
        self.outputs.push(Output::Disconnect(connection));
    }

    pub(super) fn discard_attempts(&mut self) {
        for place in (0..self.attempts.len()).rev() {
            if self.attempts.get(place).is_some_and(|attempt| attempt.wanted) {
                self.discard(place);
            }
        }
    }

    /// Its stream is no longer wanted. If it may have opened a session, that is closed.
    fn discard(&mut self, place: usize) {
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        match attempt.phase {
            // An attach is simply dropped: the session continues elsewhere.
            Phase::Opening(..) if !attempt.attaches => {
                attempt.wanted = false;
                attempt.until = self.now.plus(self.config.ttl.min(LATE_ANSWER_MAX));
            }
            Phase::Closing(_) => {}
            _ => self.end_attempt(place),
        }
    }

    pub(super) fn attempt_of(&self, stream: StreamId) -> Option<usize> {
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

    /// Opens or attaches the session on a connection.
    pub(super) fn open_stream(&mut self, place: usize) {
        let (stream, sent) = (StreamId(self.next_id()), self.now);
        let first = self.first_message();
        let attaches = self.has_session();
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        // The session was lost in the meantime, or another attempt has opened one.
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

    /// A server did not provide a stream.
    pub(super) fn attempt_failed(&mut self, place: usize, failure: Failure) {
        let Some(attempt) = self.attempts.get(place) else { return };
        let (wanted, attaches) = (attempt.wanted, attempt.attaches);
        self.end_attempt(place);
        if !wanted || attaches != self.has_session() {
            return;
        }
        if attaches {
            if failure.kind == FailureKind::SessionOver {
                // Everything that depended on it is over.
                self.end_session(&Error::SessionLost);
                self.lost = None;
            }
        } else if !failure.may_work_elsewhere() {
            self.refuse_session(&failure.refused());
        }
        self.note_trouble(failure.message);
        self.hurry();
    }

    /// The server has opened or attached the session.
    pub(super) fn opened(&mut self, place: usize, opened: proto::Opened, sent: Moment) {
        let attaches = self.has_session();
        let Some(attempt) = self.attempts.get(place) else { return };
        if attempt.wanted && attempt.attaches == attaches {
            // A session that may already be over when it is opened is of no use.
            let lease = Lease::confirmed(self.config.ttl, sent);
            if attaches || !self.came_too_late(lease) {
                return self.went_up(place, opened, sent);
            }
            self.note_trouble("the server took too long to open a session".to_owned());
            self.hurry();
        }
        self.close_unwanted(place);
    }

    /// Closes an unwanted session. If the server does not answer, it expires.
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
}

impl Failure {
    /// A failure before the session's first message says nothing about the session, unless the
    /// server rejects this client altogether.
    pub(super) fn on_the_way(self) -> Self {
        match self.kind {
            FailureKind::Unauthenticated => self,
            _ => Self { kind: FailureKind::TryElsewhere, ..self },
        }
    }
}
