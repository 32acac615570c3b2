//! What can be asked of the core. The log holds nothing else.

use crate::ids::{RequestId, Secret, SessionId, Term, Token};
use crate::text::{Label, LockName, Note, Reason, RequestKey, Value};
use crate::transaction::Transaction;
use serde::{Deserialize, Serialize};

/// One command as it stands in the log: who proposed it, and under which request id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The node that proposed it and its running number; none for what the leader adds itself.
    pub from: Option<Numbered>,
    /// The client's request id, so that a retry has one effect.
    pub request: Option<Request>,
    /// What to do.
    pub command: Command,
}

impl From<Command> for Proposal {
    fn from(command: Command) -> Self {
        Self { from: None, request: None, command }
    }
}

/// A node session's running number: the core takes n+1 only after n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// The session that the node opened for itself at its start.
    pub session: SessionId,
    /// 1 for the first proposal of that session.
    pub number: u64,
}

/// A session and the proof that one owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRef {
    /// Which session.
    pub id: SessionId,
    /// The secret that it was opened with.
    pub secret: Secret,
}

/// A request id: how a retry is known to be a retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Numbered by the client within its session.
    InSession {
        /// Whose request it is.
        session: SessionRef,
        /// This request.
        id: RequestId,
        /// The lowest id still unanswered: what is below is forgotten.
        lowest: RequestId,
    },
    /// A random string, for doors without sessions. Only a command that draws a ticket takes one.
    Alone(RequestKey),
}

/// Everything that can be asked. The arms of [`State::apply`](crate::State::apply) are the table
/// of contents of the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "Acquire is the common one: boxing it would cost an allocation a request"
)]
pub enum Command {
    /// Moves logical time and does what is due. The first command of every entry.
    Tick(Tick),
    /// Opens a session; the core draws its id.
    OpenSession(OpenSession),
    /// Ends a session at its owner's wish; its tickets end as closed.
    CloseSession(SessionRef),
    /// Ends a session that fell silent; its tickets end as expired. Only a leader decides this.
    ExpireSession {
        /// The silent session.
        session: SessionId,
        /// The term of the leader that decided it; refused in an entry of any other term.
        decided_in: Term,
    },
    /// Draws a ticket and enters the line of one or several names.
    Acquire(Acquire),
    /// Draws an exclusive ticket for the holder of a shared one; served when the other readers
    /// are gone.
    Upgrade {
        /// The shared ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
        /// How long to wait for the other readers.
        wait: Wait,
        /// Other tokens kept meanwhile; the shared ticket itself is claimed anyway.
        claims: Vec<Token>,
    },
    /// Turns a held exclusive ticket into a shared one with the same number.
    Downgrade {
        /// The exclusive ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
    },
    /// Gives up a wait.
    Cancel {
        /// The waiting ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
    },
    /// Ends a held ticket: the work is done.
    Release {
        /// The held ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
    },
    /// Makes the lease a deadline that counts from now.
    Renew {
        /// The held ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
        /// How long from now.
        ttl_ms: u64,
    },
    /// Makes the lease permanent.
    Persist {
        /// The held ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
    },
    /// Replaces the note.
    Note {
        /// The ticket, waiting or held.
        target: Target,
        /// That one owns it.
        proof: Proof,
        /// The new note; none removes it.
        note: Option<Note>,
    },
    /// Takes away the mark "needs recovery": the holder has put right what a dead one left.
    Recovered {
        /// The held ticket.
        target: Target,
        /// That one owns it.
        proof: Proof,
    },
    /// Asks the holders to let go by a deadline.
    Revoke(Revoke),
    /// Ends the holders without their consent.
    Force {
        /// Which lock.
        name: LockName,
        /// Which ticket, held or waiting; none for all holders.
        token: Option<Token>,
        /// Who does it.
        by: Label,
        /// Why.
        reason: Reason,
    },
    /// What became of a request. One that was not seen by now is barred from ever taking effect.
    Outcome(Request),
    /// Writes to the fenced register, if the token is not too old.
    Put {
        /// The key; a name's rules hold for it.
        key: LockName,
        /// What to keep there.
        value: Value,
        /// The token of the writer.
        token: Token,
        /// The mode that the token was granted in.
        mode: Mode,
    },
    /// Shows a token to the fence without writing: what a new holder does before it reads.
    Raise {
        /// The key; a name's rules hold for it.
        key: LockName,
        /// The token of the new holder.
        token: Token,
        /// The mode that the token was granted in.
        mode: Mode,
    },
    /// Writes to several keys at once, if what was read of them has not changed.
    Transact(Transaction),
}

/// How the leader moves logical time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// What the leader saw pass since the entry before, on its raw monotonic clock.
    pub elapsed_ms: u64,
    /// The leader's wall clock, for display only.
    pub wall_ms: u64,
    /// The term of the entry that this stands in; set by whoever applies, from the entry itself.
    pub term: Term,
}

/// How a session begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// What proves later requests.
    pub secret: Secret,
    /// How long it may stay silent.
    pub ttl_ms: u64,
    /// What its tickets are called if they have no label of their own.
    pub label: Option<Label>,
    /// A client's, or a node's own.
    pub kind: SessionKind,
}

/// Whose liveness a session stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionKind {
    /// A client's.
    Client,
    /// A node's own, per start: numbers what the node proposes and owns the waits of clients
    /// that have no session.
    Node,
    /// The same of the node with that id: opening it ends the node's earlier session, whose process
    /// is gone.
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

/// A ticket to be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// One name, or several to be taken in one step.
    pub names: Vec<LockName>,
    /// How many are served together.
    pub mode: Mode,
    /// Who owns the wait; none only with a request id of its own.
    pub session: Option<SessionRef>,
    /// What keeps the ticket alive once it is served.
    pub lease: Lease,
    /// How long to stand in line.
    pub wait: Wait,
    /// What the holder calls itself; none for its session's label.
    pub label: Option<Label>,
    /// The first note.
    pub note: Option<Note>,
    /// What proves later requests, beside the session's secret; none in doors without secrets.
    pub secret: Option<Secret>,
    /// Tokens that the asker keeps while it waits.
    pub claims: Vec<Token>,
    /// If this holder dies, nobody is served for so long.
    pub lock_delay_ms: u64,
    /// Where the request came in.
    pub door: Door,
}

/// How many tickets at the head of a line are served together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// One.
    Exclusive,
    /// All shared ones up to the next exclusive.
    Shared,
    /// Up to `of`; the first ticket in the line fixes it.
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
    /// A deadline once the holder is known to hear of its grant. A ticket that had to wait lives by
    /// its session's heartbeat until its lease is set (`Renew`), and not longer than the deadline:
    /// until then nobody has been told that it holds anything. One that is served at once has a
    /// deadline at once.
    Unconfirmed {
        /// How long, counted from the grant and from each renewal.
        ttl_ms: u64,
    },
}

/// How long to stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// Not at all: served at once or refused.
    Try,
    /// Until a deadline.
    For {
        /// How long from now.
        ms: u64,
    },
    /// For ever; only a session's ticket may, because its heartbeat ends it.
    Forever,
}

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Door {
    /// gRPC, HTTP, the Rust client.
    Native,
    /// RESP.
    Redis,
    /// The ZooKeeper protocol.
    ZooKeeper,
    /// Cassandra's.
    Cql,
}

/// Which ticket is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The lock; for a ticket of several names, any of them.
    pub name: LockName,
    /// The ticket's number; none for the only holder of the name.
    pub token: Option<Token>,
}

/// Why the core should believe that the ticket's owner is asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The ticket's secret or its session's.
    Secret(Secret),
    /// The ticket's label: only for a ticket drawn without a secret, through a door that has none.
    Label(Label),
}

/// A request to let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoke {
    /// Which lock.
    pub name: LockName,
    /// Which holder; none for all.
    pub token: Option<Token>,
    /// Who asks.
    pub by: Label,
    /// Why.
    pub reason: Reason,
    /// By when, from now.
    pub within_ms: u64,
    /// Whether the ticket is ended as forced when that time is over.
    pub force: bool,
}
