//! The inputs and outputs of a session.

use super::lease::Lease;
use super::moment::Moment;
use super::room::Room;
use crate::code::ErrorCode;
use crate::error::{EndReason, Error};
use crate::guard_state::{Health, Revocation};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, to_client};
use std::time::Duration;

/// Identifies a ticket, with the proof that a request comes from its holder.
pub use proto::TicketRef;

/// A call of the application, which numbers them. A guard is identified by the call that acquired
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// A session stream over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// A unary request over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(pub u64);

/// A watch on the lock of one ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// The parameters of a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// The servers' names in error messages. Outputs identify a server by its index here.
    pub servers: Vec<String>,
    /// How long the session may be silent before the server ends it.
    pub ttl: Duration,
    /// The label of the session's tickets.
    pub label: Option<Bytes>,
    /// How long a request without a limit of its own may take.
    pub timeout: Duration,
}

/// Something that has happened.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub enum Input {
    /// Completes with [`Answer::Opened`] when there is a session.
    Open(CallId),
    /// A request to the server.
    Call(Call),
    /// The caller of this call no longer waits.
    Abandon(CallId),
    /// A held ticket whose guard was dropped, or could not be handed out. If the holder knew that
    /// it is lost, it is left to expire, because its holder did not finish.
    Drop {
        /// The ticket.
        ticket: TicketRef,
        /// Whether its holder knew that it is lost.
        lost: bool,
        /// The room of the guard.
        room: Room,
    },
    /// A ticket with a lease of its own that is renewed and released elsewhere from now on.
    Detach(TicketRef),
    /// Closes the session.
    Close,
    /// [`Output::Connect`] has succeeded.
    Connected(ConnectionId),
    /// [`Output::Connect`] has failed.
    NotConnected(ConnectionId, Failure),
    /// A message from the server.
    Received(StreamId, proto::ToClient),
    /// A stream has ended or could not be opened; without a failure, the server closed it.
    StreamEnded(StreamId, Option<Failure>),
    /// The answer to a query.
    Replied(QueryId, Result<Reply, Failure>),
    /// An update from a watch.
    Watched(WatchId, WatchUpdate),
}

/// A request of the application.
#[derive(Debug)]
pub struct Call {
    /// Its number.
    pub call: CallId,
    /// The request.
    pub what: request::What,
    /// The room reserved for it.
    pub room: Room,
    /// For an upgrade or a downgrade.
    pub change: Option<ModeChange>,
}

/// The guard whose mode is to be changed.
#[derive(Debug)]
pub struct ModeChange {
    /// The guard.
    pub guard: CallId,
    /// All names of its ticket.
    pub names: Vec<Bytes>,
    /// The mode before the change.
    pub before: proto::Mode,
    /// The TTL of its own lease; `None` if it depends on the session.
    pub own_ttl: Option<Duration>,
}

/// Something that the driver must do.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub enum Output {
    /// Connect to a server.
    Connect(ConnectionId, usize),
    /// Open a session stream with this first message.
    OpenStream(ConnectionId, StreamId, proto::ToServer),
    /// Send a message.
    Send(StreamId, proto::ToServer),
    /// Send a request that needs no session.
    Query(ConnectionId, QueryId, Query),
    /// Drop a connection with all its streams and queries. Whatever still arrives from it is
    /// ignored.
    Disconnect(ConnectionId),
    /// Watch a lock until [`Output::Unwatch`], for updates about one ticket.
    Watch {
        /// The watch's id.
        watch: WatchId,
        /// The lock.
        name: Bytes,
        /// The ticket.
        token: u64,
    },
    /// End a watch.
    Unwatch(WatchId),
    /// A session was opened. Guards without a lease of their own depend on its lease from now on.
    SessionOpened(Lease),
    /// The session's lease was confirmed, and counts from this moment.
    SessionConfirmed(Moment),
    /// A call is done. If its caller no longer waits and the answer is a guard, the application
    /// answers with [`Input::Drop`].
    Complete(CallId, Result<Answer, Error>),
    /// A guard has a new ticket: its upgrade was served. If the guard is gone, or was lost by its
    /// own clock, the application answers with [`Input::Drop`] of the new ticket.
    Upgraded {
        /// The guard.
        guard: CallId,
        /// The call to complete, if its caller still waits.
        call: Option<CallId>,
        /// The writer's ticket.
        grant: proto::Grant,
        /// The upgrade's room, for the new ticket unless the guard already has room.
        room: Room,
    },
    /// The state of a guard has changed.
    Guard(CallId, GuardChange),
}

/// The result of a call.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub enum Answer {
    /// There is a session.
    Opened,
    /// The server's answer.
    Reply(to_client::What),
    /// For an acquire: the ticket is held.
    Granted {
        /// The ticket.
        grant: proto::Grant,
        /// Its own lease; `None` if it depends on the session.
        lease: Option<Lease>,
        /// The room from the call.
        room: Room,
    },
}

/// A change to a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardChange {
    /// Its lease is good again, in jeopardy or lost.
    Health(Health),
    /// Its own lease was confirmed, and counts from this moment.
    Confirmed(Moment),
    /// The holder is asked to release; from the given moment on, the lock may be broken.
    Revocation(Revocation, Option<Moment>),
    /// The server has refused a downgrade: the ticket is held in this mode.
    Mode(proto::Mode),
    /// Its upgrade was served, or may have been, and the writer's ticket is over. The server would
    /// report the reader's ticket as released.
    OverAsWriter(EndReason),
    /// No upgrade or downgrade is in flight any more.
    Settled,
}

/// A request that needs no session.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    /// The state of a lock.
    Show(Bytes),
    /// Cancels a waiting ticket.
    Cancel(TicketRef),
    /// Releases a held ticket.
    Release(TicketRef),
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub enum Reply {
    /// To [`Query::Show`].
    Lock(proto::Lock),
    /// To the others.
    Done,
}

/// An update about a ticket whose lock is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchUpdate {
    /// The watch has started, perhaps again: something may have been missed.
    Begun,
    /// The ticket is over.
    Ended(EndReason),
    /// The holder is asked to release.
    Revocation(Revocation),
}

/// Why a server did not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it means for the client.
    pub kind: FailureKind,
    /// The server's text, `code: message (hint)`, or why it could not be reached.
    pub message: String,
}

/// What a failure means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Another server, or the same one later, may answer differently.
    TryElsewhere,
    /// The session to attach is over.
    SessionOver,
    /// The password is wrong.
    Unauthenticated,
    /// The server refuses it.
    Refused,
}

impl FailureKind {
    /// From the number of a gRPC status.
    pub fn of_status(code: i32) -> Self {
        match code {
            // FAILED_PRECONDITION, PERMISSION_DENIED
            9 | 7 => Self::SessionOver,
            // UNAUTHENTICATED
            16 => Self::Unauthenticated,
            // INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, RESOURCE_EXHAUSTED, OUT_OF_RANGE
            3 | 5 | 12 | 8 | 11 => Self::Refused,
            _ => Self::TryElsewhere,
        }
    }
}

impl Failure {
    pub(super) fn elsewhere(message: &str) -> Self {
        Self { kind: FailureKind::TryElsewhere, message: message.to_owned() }
    }

    pub(crate) fn may_work_elsewhere(&self) -> bool {
        self.kind == FailureKind::TryElsewhere
    }

    /// The error for the caller.
    pub(crate) fn refused(&self) -> Error {
        let (code, rest) = self.message.split_once(": ").unwrap_or(("", &self.message));
        let parts = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
        let (message, hint) = parts.unwrap_or((rest, ""));
        Error::local(code.into(), message, hint)
    }

    pub(super) fn is_already_served(&self) -> bool {
        let served = ErrorCode::AlreadyServed;
        matches!(self.refused(), Error::Refused { code, .. } if code == served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_are_parsed() {
        let refused = |message: &str| {
            let failure = Failure { kind: FailureKind::Refused, message: message.to_owned() };
            match failure.refused() {
                Error::Refused { code, message, hint, .. } => (code, message, hint),
                other => panic!("{other:?}"),
            }
        };
        let (code, message, hint) = refused("bad_request: no name (none at all) (name one)");
        assert_eq!(code, ErrorCode::BadRequest);
        assert_eq!([message, hint], ["no name (none at all)", "name one"]);
        let (code, message, _) = refused("what is that?");
        assert_eq!((code.as_str(), message.as_str()), ("", "what is that?"));
    }
}
