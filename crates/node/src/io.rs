//! The inputs and outputs of a node's loop.

use crate::cluster::{Change, Cluster};
use crate::message::PeerMessage;
use crate::types::{NodeId, RaftMessage};
use holdfast_core::{
    Answer, Command, Effect, Refusal, RequestRef, Secret, SessionRef, Snapshot, State,
};
use holdfast_storage::{HardState, LogEntry, Position};

/// The driver's handle for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTag(pub u64);

/// A node's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's member id.
    pub id: NodeId,
    /// Identifies its data folder, [`NodeDisk::birth`](crate::NodeDisk::birth): a node that lost
    /// its folder has forgotten its votes, and must not come back under its id.
    pub birth: u64,
    /// Random: election timeouts are drawn from it.
    pub rng_key: u64,
    /// Random: the secrets of the node's own sessions are derived from it.
    pub secret: Secret,
    /// Random, drawn at each start: distinguishes this process's messages from those that an
    /// earlier process under the same id sent, which may still be on their way.
    pub nonce: u64,
    /// A snapshot is taken after this many bytes of entries.
    pub snapshot_every_bytes: usize,
    /// The highest behaviour level that this program supports, [`LEVEL`](crate::LEVEL). The
    /// simulator sets a lower one for nodes that have not been upgraded yet.
    pub level: u16,
}

/// What was found on disk, or a fresh start.
#[derive(Debug)]
pub struct Boot {
    /// The state as of the last snapshot.
    pub loaded: Loaded,
    /// Term, vote and commit index.
    pub hard_state: HardState,
    /// All entries after the snapshot.
    pub entries: Vec<LogEntry>,
}

impl Boot {
    /// The last entry known to be committed.
    pub fn committed(&self) -> Position {
        let mut entries = self.entries.iter().rev();
        let last = entries.find(|entry| entry.at.index <= self.hard_state.commit);
        last.map_or(self.loaded.at, |entry| entry.at)
    }

    /// Whether the snapshot or the log includes that entry.
    pub fn has(&self, at: Position) -> bool {
        at.index <= self.loaded.at.index || self.entries.iter().any(|entry| entry.at == at)
    }

    /// The index of the last entry.
    pub fn last_index(&self) -> u64 {
        self.entries.last().map_or(self.loaded.at.index, |last| last.at.index)
    }
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct Loaded {
    /// Its position in the log.
    pub at: Position,
    /// The core's state: locks, sessions and keys.
    pub state: State,
    /// The replicated membership.
    pub cluster: Cluster,
}

/// The current time, as of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// A raw monotonic clock, in milliseconds.
    pub mono_ms: u64,
    /// The wall clock in milliseconds since 1970, for display only.
    pub wall_ms: u64,
}

/// Something that has happened.
#[derive(Debug)]
pub enum Input {
    /// A message arrived from a member.
    Peer {
        /// The member at the other end of the connection.
        from: NodeId,
        /// What it sent.
        message: PeerMessage,
    },
    /// Everything up to this number is on disk.
    Persisted(u64),
    /// The disk is full, or has room again.
    DiskFull(bool),
    /// The requested snapshot is on disk.
    SnapshotWritten(Position),
    /// The requested snapshot could not be written.
    SnapshotNotWritten,
    /// A snapshot arrived from a leader, and is on disk.
    SnapshotReceived {
        /// The message that offered it.
        message: RaftMessage,
        /// Its content.
        loaded: Box<Loaded>,
    },
    /// Whether a snapshot that was to be sent has arrived.
    SnapshotSent {
        /// The receiver.
        to: NodeId,
        /// Whether it arrived.
        arrived: bool,
    },
    /// A member can't be reached.
    Unreachable(NodeId),
    /// A member's incoming connection was closed: most likely its process has ended.
    HungUp(NodeId),
    /// A client of this node makes a request.
    Submit {
        /// The handle for the reply.
        ask: RequestTag,
        /// The client's request id.
        request: Option<RequestRef>,
        /// What it asks for.
        command: Command,
    },
    /// A heartbeat of a client's session.
    Beat {
        /// The handle for the reply.
        ask: RequestTag,
        /// The session.
        session: SessionRef,
    },
    /// A client wants to read current state.
    Read(RequestTag),
    /// Nobody waits for the reply to a request any more. If it has not been sent yet, it never will
    /// be, and `Reply::Withdrawn` comes in this turn, or `Busy::DiskFull` if that is why the node
    /// makes no progress. If it has been sent, no further copy of it will be; its reply comes once
    /// it is known whether it took effect.
    Withdraw(RequestTag),
    /// Changes the membership; only the leader can do it.
    Change {
        /// The handle for the reply.
        ask: RequestTag,
        /// What to change.
        change: Change,
        /// Whether to do it even if no majority of the remaining voters answers.
        force: bool,
    },
    /// Transfers leadership to another node.
    Transfer(NodeId),
    /// Starts an election now.
    Campaign,
    /// Takes a snapshot now.
    TakeSnapshot,
}

/// Something the driver must do.
#[derive(Debug)]
pub enum Output {
    /// Send a message; it may be lost.
    Send {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: PeerMessage,
    },
    /// Send the latest snapshot on disk with this message, then report `SnapshotSent`.
    OfferSnapshot {
        /// The receiver.
        to: NodeId,
        /// The message that offers it.
        message: RaftMessage,
    },
    /// Write this, in order, and report `Persisted` once it is on disk.
    Persist(Persist),
    /// Encode and write a snapshot, off the loop.
    WriteSnapshot(Box<SnapshotTask>),
    /// A snapshot at this position is on disk: the log before it may be deleted.
    Compact(Position),
    /// The reply to a request.
    Reply {
        /// The request.
        ask: RequestTag,
        /// Its outcome.
        reply: Reply,
    },
    /// An entry was applied.
    Applied {
        /// Its position.
        at: Position,
        /// What waiting and watching clients must be notified of.
        effects: Vec<Effect>,
        /// The digest of everything computed so far: the same on every node.
        digest: u64,
    },
    /// The node skipped entries by installing a snapshot, and does not know the status of its
    /// clients' tickets. Close their connections; they reconnect and ask.
    LostTrack,
    /// This machine or program can no longer be trusted: stop.
    Stop(String),
    /// This node no longer knows what it acknowledged: stop, and never start again under this id.
    Lost(String),
}

/// What must be durable before its number is reported back.
#[derive(Debug)]
pub struct Persist {
    /// Increases with each write.
    pub number: u64,
    /// An installed snapshot: the whole log is discarded.
    pub installed: Option<Position>,
    /// Entries to append; an index that exists already replaces that entry and all after it.
    pub entries: Vec<LogEntry>,
    /// Term and vote, if they changed, and the index up to which the log is known to be committed.
    pub hard_state: Option<HardState>,
}

/// A snapshot to be written.
#[derive(Debug)]
pub struct SnapshotTask {
    /// Its position in the log.
    pub at: Position,
    /// The replicated membership.
    pub cluster: Cluster,
    /// The core's state; taking it costs next to nothing.
    pub snapshot: Snapshot,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It was applied, with this answer.
    Answer(Result<Answer, Refusal>),
    /// Whether the session is alive, confirmed by a majority after the heartbeat arrived.
    Beat(bool),
    /// The state of this node is current as of the read.
    Current,
    /// Whether the membership was changed, or why not.
    Changed(Result<(), NotChanged>),
    /// It was not accepted, and has had no effect.
    Busy(Busy),
    /// It was withdrawn: it had no effect, and never will.
    Withdrawn,
    /// It may or may not have had an effect: ask for the outcome.
    Unknown,
}

/// Why the membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotChanged {
    /// Only the leader can.
    NotLeader,
    /// Another change is in progress, or the leader is new: try again.
    NotNow,
    /// Another leader took over in the meantime: check the members.
    Lost,
    /// It makes no sense, for this reason.
    Refused(&'static str),
    /// No majority of the remaining voters would answer; these do not.
    NoMajority(Vec<NodeId>),
    /// No majority of the current voters, which must commit the change, is answering; these are
    /// not.
    NotCommittable(Vec<NodeId>),
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Too much is queued at this node.
    QueueFull,
    /// This node's disk is full.
    DiskFull,
    /// A member runs an older version that could not read it.
    OlderMember,
    /// It does not fit into one entry of the log, and never will.
    TooLarge,
}
