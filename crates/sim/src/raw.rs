//! Calls without a session, as over HTTP or gRPC, by callers that need not behave: they hang up at any
//! moment, repeat request ids, show secrets that are not theirs, and break other people's locks.

use crate::world::{Status, WireId};
use bytes::Bytes;
use holdfast_core::{Label, LockName, SessionRef, Token};
use holdfast_proto::v1 as proto;

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) enum RawCall {
    Acquire(proto::AcquireAlone),
    Release(proto::TicketRef),
    Outcome(proto::OutcomeAlone),
    Revoke(proto::RevokeRequest),
    Force(proto::ForceRequest),
    /// How far the current state has come.
    Read,
    /// Opens a session that its owner keeps alive by hand.
    Open {
        ttl_ms: u64,
    },
    Heartbeat(SessionRef),
    /// A request of the Redis door, for a lock under a value.
    Redis {
        request: Vec<Bytes>,
        name: LockName,
        value: String,
    },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum RawAnswer {
    TicketStatus(proto::TicketStatus),
    Outcome(proto::OutcomeReply),
    Done,
    /// The tokens drawn so far, as of the state that was read.
    Read {
        counter: u64,
    },
    Opened(SessionRef),
    Alive,
    /// Whether it was done, and the ticket that holds the lock under that value now.
    Redis {
        done: bool,
        token: Option<Token>,
    },
    Failed(Status),
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) kind: RawKind,
    pub(crate) wire: WireId,
    pub(crate) asked_us: u64,
    /// The highest token that anybody had been told when it was made.
    pub(crate) floor: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum RawKind {
    /// A lock that it waits for, and lets go some time later.
    Door {
        name: LockName,
        label: Label,
    },
    /// The same through the Redis door.
    RedisSet {
        name: LockName,
        value: String,
    },
    /// Two that were sent together.
    Pair,
    /// With a request id: somebody asks for its outcome, or sends it again.
    WithId {
        key: Bytes,
        label: Label,
        acquire: Box<proto::AcquireAlone>,
    },
    /// Another request under an id that was used.
    SameId {
        key: Bytes,
    },
    Outcome {
        label: Label,
    },
    Read,
    Open {
        ttl_ms: u64,
        /// Heartbeats that its owner will send by itself.
        left: u32,
    },
    /// The heartbeat of a session that was opened so.
    Heartbeat(RawSession),
    /// With a secret that is not the owner's: it must not be done.
    WrongSecret,
    Other,
}

/// A session without a client that knows when to be afraid: its owner sends heartbeats when it likes, and
/// believes what it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSession {
    pub(crate) session: SessionRef,
    pub(crate) ttl_ms: u64,
    /// Heartbeats that its owner will still send.
    pub(crate) left: u32,
}

/// A caller that was told that it holds a lock.
#[derive(Debug)]
pub(crate) struct RawHolder {
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) proof: Proof,
    pub(crate) until_us: u64,
    pub(crate) ttl_ms: u64,
}

/// What it takes to let go.
#[derive(Debug)]
pub(crate) enum Proof {
    Secret(Bytes),
    /// A value of the Redis door.
    Value(String),
}
