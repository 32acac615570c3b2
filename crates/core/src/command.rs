//! Everything that can be asked of the core. The log contains nothing else.

use crate::access::{Actor, Operation};
use crate::ids::{RequestId, Secret, SessionId, Term, Token};
use crate::text::{Label, LockName, Note, Reason, RequestKey, Value};
use crate::transaction::Transaction;
use crate::tree::TreeCommand;
use serde::{Deserialize, Serialize};

/// One command in the log: who proposed it, and under which request id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The node that proposed it, with a sequence number; `None` for commands that the leader adds.
    pub from: Option<Numbered>,
    /// The client's request id, so that a retry has no second effect.
    pub request: Option<RequestRef>,
    /// What to do.
    pub command: Command,
}

impl From<Command> for Proposal {
    fn from(command: Command) -> Self {
        Self { from: None, request: None, command }
    }
}

/// A sequence number within a node's session: the core applies n+1 only after n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// The session that the node opened for itself when it started.
    pub session: SessionId,
    /// 1 for the first proposal of that session.
    pub number: u64,
}

/// A session and the proof of owning it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRef {
    /// Which session.
    pub id: SessionId,
    /// The secret that it was opened with.
    pub secret: Secret,
}

/// A request id, by which a retry is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestRef {
    /// Numbered by the client within its session.
    InSession {
        /// The session of the request.
        session: SessionRef,
        /// The id of this request.
        id: RequestId,
        /// The lowest id still unanswered: those below are forgotten.
        lowest: RequestId,
    },
    /// A random string, for doors without sessions. Only for commands that draw a ticket.
    Alone(RequestKey),
}

/// Everything that can be asked. The arms of [`State::apply`](crate::State::apply) are the core's
/// table of contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "Acquire is the common one: boxing it would cost an allocation a request"
)]
pub enum Command {
    /// Advances logical time and does what is due. The first command of every entry.
    Tick(Tick),
    /// Opens a session; the core assigns its id.
    OpenSession(OpenSession),
    /// Ends a session at its owner's request; its tickets end as closed.
    CloseSession(SessionRef),
    /// Ends a session that fell silent; its tickets end as expired. Only a leader decides this.
    ExpireSession {
        /// The silent session.
        session: SessionId,
        /// The term of the leader that decided it; refused in an entry of any other term.
        decided_in: Term,
    },
    /// Draws a ticket and enters the lines of one or several names.
    Acquire(Acquire),
    /// Draws an exclusive ticket for the holder of a shared one, served when the other readers are
    /// gone.
    Upgrade {
        /// The shared ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
        /// How long to wait for the other readers.
        wait: Wait,
        /// Other tokens that are held meanwhile; the shared ticket itself is claimed anyway.
        claims: Vec<Token>,
    },
    /// Turns a held exclusive ticket into a shared one with the same number.
    Downgrade {
        /// The exclusive ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
    },
    /// Gives up waiting.
    Cancel {
        /// The waiting ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
    },
    /// Ends a held ticket: the work is done.
    Release {
        /// The held ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
    },
    /// Sets the lease to a deadline that counts from now.
    Renew {
        /// The held ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
        /// How long from now.
        ttl_ms: u64,
    },
    /// Makes the lease permanent.
    Persist {
        /// The held ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
    },
    /// Replaces the note.
    Note {
        /// The ticket, waiting or held.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
        /// The new note; `None` removes it.
        note: Option<Note>,
    },
    /// Removes the mark "needs recovery": the holder has repaired what a dead one left behind.
    Recovered {
        /// The held ticket.
        target: Target,
        /// Proof of ownership.
        proof: Proof,
    },
    /// Asks the holders to release by a deadline.
    Revoke(Revoke),
    /// Ends the holders without their consent.
    Force {
        /// Which lock.
        name: LockName,
        /// Which ticket, held or waiting; `None` for all holders.
        token: Option<Token>,
        /// Who does it.
        by: Label,
        /// Why.
        reason: Reason,
    },
    /// What happened to a request. A request that has not been seen yet is barred from ever taking
    /// effect.
    Outcome(RequestRef),
    /// Writes to the fenced register, unless the token is too old.
    Put {
        /// The key; the rules for names apply.
        key: LockName,
        /// The value to store.
        value: Value,
        /// The writer's token.
        token: Token,
        /// The mode in which the token was granted.
        mode: Mode,
    },
    /// Shows a token to the fence without writing: what a new holder does before it reads.
    Raise {
        /// The key; the rules for names apply.
        key: LockName,
        /// The new holder's token.
        token: Token,
        /// The mode in which the token was granted.
        mode: Mode,
    },
    /// Writes several keys at once, if none of those that were read has changed.
    Transact(Transaction),
    /// Attaches to a session of the ZooKeeper door, or changes znodes.
    Tree(TreeCommand),
    /// Does what only operators may do, and records who did it.
    Operate {
        /// Who.
        by: Actor,
        /// What.
        operation: Box<Operation>,
    },
}

/// How the leader advances logical time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Time since the previous entry, by the leader's raw monotonic clock.
    pub elapsed_ms: u64,
    /// The leader's wall clock, for display only.
    pub wall_ms: u64,
    /// The term of the entry that contains this; set when the entry is applied, from the entry
    /// itself.
    pub term: Term,
}

/// The parameters of a new session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// Proves later requests.
    pub secret: Secret,
    /// How long it may stay silent.
    pub ttl_ms: u64,
    /// The label of its tickets, unless they have their own.
    pub label: Option<Label>,
    /// A client's session, or a node's own.
    pub kind: SessionKind,
}

/// Whose liveness a session represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionKind {
    /// A client's.
    Client,
    /// A node's own, one per start: numbers what the node proposes, and owns the waits of clients
    /// that have no session.
    Node,
    /// The same, of the node with this id: opening it ends the node's earlier session, whose
    /// process is gone.
    NodeOf {
        /// Which node.
        node: u64,
    },
}

impl SessionKind {
    /// Whether it is a node's own.
    pub fn is_node(self) -> bool {
        !matches!(self, Self::Client)
    }
}

/// The ticket to draw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// One name, or several that are taken in one step.
    pub names: Vec<LockName>,
    /// How many tickets may be served together.
    pub mode: Mode,
    /// The owner of the wait; `None` only with a request id of its own.
    pub session: Option<SessionRef>,
    /// What keeps the ticket alive once it is served.
    pub lease: Lease,
    /// How long to wait in line.
    pub wait: Wait,
    /// The holder's label; `None` for its session's label.
    pub label: Option<Label>,
    /// The initial note.
    pub note: Option<Note>,
    /// Proves later requests, besides the session's secret; `None` in doors without secrets.
    pub secret: Option<Secret>,
    /// Tokens that the client keeps while it waits.
    pub claims: Vec<Token>,
    /// If this holder dies, nobody is served for this long.
    pub lock_delay_ms: u64,
    /// The door through which the request came.
    pub door: Door,
}

/// How many tickets at the head of a line are served together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// One.
    Exclusive,
    /// All shared ones up to the next exclusive one.
    Shared,
    /// Up to `of`; the first ticket in the line fixes the number.
    Permit {
        /// How many permits there are.
        of: u32,
    },
}

/// What keeps a ticket alive once it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lease {
    /// Its session's heartbeat.
    Session,
    /// A deadline, counted from the grant and from each renewal.
    Deadline {
        /// How long.
        ttl_ms: u64,
    },
    /// Nothing: only a release or force ends it.
    Permanent,
    /// A deadline, once it is known that the holder learns of its grant. A ticket that had to wait
    /// lives by its session's heartbeat until its lease is set (`Renew`), and no longer than the
    /// deadline: until then nobody has been notified that it holds anything. One that is served at
    /// once has a deadline at once.
    Unconfirmed {
        /// How long, counted from the grant and from each renewal.
        ttl_ms: u64,
    },
}

/// How long to wait in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// Not at all: served at once or refused.
    Try,
    /// Until a deadline.
    For {
        /// How long from now.
        ms: u64,
    },
    /// Forever. Only for a session's ticket, because its heartbeat ends it.
    Forever,
}

/// The door through which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Door {
    /// gRPC, HTTP, the Rust client.
    Native,
    /// RESP.
    Redis,
    /// The ZooKeeper protocol.
    ZooKeeper,
    /// Cassandra's CQL.
    Cql,
}

/// Identifies a ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The lock; for a ticket of several names, any of them.
    pub name: LockName,
    /// The ticket's number; `None` for the only holder of the name.
    pub token: Option<Token>,
}

/// Proves that the request comes from the ticket's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The ticket's secret or its session's.
    Secret(Secret),
    /// The ticket's label: only for a ticket drawn without a secret, through a door that has none.
    Label(Label),
}

/// A request to release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoke {
    /// Which lock.
    pub name: LockName,
    /// Which holder; `None` for all.
    pub token: Option<Token>,
    /// Who asks.
    pub by: Label,
    /// Why.
    pub reason: Reason,
    /// How long the holder has, from now.
    pub within_ms: u64,
    /// Whether the ticket is ended as forced after that time.
    pub force: bool,
}
