//! What goes into a node's loop and what comes out of it.

use crate::cluster::{Change, Cluster};
use crate::message::PeerMessage;
use crate::types::{NodeId, RaftMessage};
use holdfast_core::{
    Answer, Command, Effect, Refusal, Request, Secret, SessionRef, Snapshot, State,
};
use holdfast_storage::{HardState, LogEntry, Position};

/// The driver's handle for something it asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(pub u64);

/// What a node must know of itself.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which member it is.
    pub id: NodeId,
    /// What tells its folder from any other, [`NodeDisk::birth`](crate::NodeDisk::birth): a node
    /// that lost its folder has forgotten its votes, and must not come back under its id.
    pub birth: u64,
    /// Random: election time-outs are drawn from it.
    pub rng_key: u64,
    /// Random: the secrets of the node's own sessions come from it.
    pub secret: Secret,
    /// Random, drawn at each start: tells what this process says to other nodes from what an
    /// earlier one under the same id said, which may still be on its way.
    pub nonce: u64,
    /// After so many bytes of entries a snapshot is taken.
    pub snapshot_every_bytes: usize,
}

/// What was found on disk, or a new beginning.
#[derive(Debug)]
pub struct Boot {
    /// The state as of the last snapshot.
    pub loaded: Loaded,
    /// The vote.
    pub hard_state: HardState,
    /// All entries after the snapshot.
    pub entries: Vec<LogEntry>,
}

impl Boot {
    /// The last entry that is known to be committed.
    pub fn committed(&self) -> Position {
        let mut entries = self.entries.iter().rev();
        let last = entries.find(|entry| entry.at.index <= self.hard_state.commit);
        last.map_or(self.loaded.at, |entry| entry.at)
    }

    /// Whether the snapshot or the log has that entry.
    pub fn has(&self, at: Position) -> bool {
        at.index <= self.loaded.at.index || self.entries.iter().any(|entry| entry.at == at)
    }

    /// The index of the last entry.
    pub fn last_index(&self) -> u64 {
        self.entries.last().map_or(self.loaded.at.index, |last| last.at.index)
    }
}

/// A snapshot that was read.
#[derive(Debug)]
pub struct Loaded {
    /// Where in the log it stands.
    pub at: Position,
    /// The locks.
    pub state: State,
    /// The members.
    pub cluster: Cluster,
}

/// The time of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// A raw monotonic clock.
    pub mono_ms: u64,
    /// The wall clock, for display only.
    pub wall_ms: u64,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A message came in from a member.
    Peer {
        /// Who is at the other end of the connection.
        from: NodeId,
        /// What it said.
        message: PeerMessage,
    },
    /// Everything up to this number is on disk.
    Persisted(u64),
    /// The disk has no room; or has room again.
    DiskFull(bool),
    /// The snapshot that was asked for is on disk.
    SnapshotWritten(Position),
    /// The snapshot that was asked for could not be written.
    SnapshotNotWritten,
    /// A snapshot came in from a leader, and is on disk.
    SnapshotReceived {
        /// The message that offered it.
        message: RaftMessage,
        /// What it holds.
        loaded: Box<Loaded>,
    },
    /// A snapshot that was to be sent has arrived, or has not.
    SnapshotSent {
        /// To whom.
        to: NodeId,
        /// Whether it arrived.
        arrived: bool,
    },
    /// A member can't be reached.
    Unreachable(NodeId),
    /// The connection over which a member spoke has ended: its process, most likely, as well.
    HungUp(NodeId),
    /// A client of this node asks for something.
    Ask {
        /// Under which handle the reply is to come.
        ask: Ask,
        /// The client's request id.
        request: Option<Request>,
        /// What it asks.
        command: Command,
    },
    /// A client's session was heard of.
    Beat {
        /// Under which handle the reply is to come.
        ask: Ask,
        /// Whose heart beats.
        session: SessionRef,
    },
    /// Somebody wants to read the current state.
    Read(Ask),
    /// Nobody waits any longer for the reply to something that was asked. What was not sent yet
    /// never will be, and `Reply::Withdrawn` comes in this turn, or `Busy::DiskFull` if that is
    /// why the node does not get on. Of what was sent no further copy is; its reply comes when it
    /// is known whether it took effect.
    Withdraw(Ask),
    /// Somebody wants another membership; only the leader can do it.
    Change {
        /// Under which handle the reply is to come.
        ask: Ask,
        /// What to change.
        change: Change,
        /// Also if no majority of the voters that are left answers.
        force: bool,
    },
    /// Somebody wants another leader.
    Transfer(NodeId),
    /// Somebody wants an election now.
    Campaign,
    /// Somebody wants a snapshot now.
    TakeSnapshot,
}

/// Something to be done.
#[derive(Debug)]
pub enum Output {
    /// Send a message; it may be lost.
    Send {
        /// To whom.
        to: NodeId,
        /// What to say.
        message: PeerMessage,
    },
    /// Send the last snapshot on disk with this message; then tell `SnapshotSent`.
    OfferSnapshot {
        /// To whom.
        to: NodeId,
        /// What offers it.
        message: RaftMessage,
    },
    /// Write this, in order, and tell `Persisted` when it is on disk.
    Persist(Persist),
    /// Encode and write a snapshot, off the loop.
    WriteSnapshot(Box<SnapshotTask>),
    /// A snapshot at this position is on disk: the log behind it may go.
    Compact(Position),
    /// What became of something that was asked.
    Reply {
        /// Which.
        ask: Ask,
        /// What became of it.
        reply: Reply,
    },
    /// An entry was applied.
    Applied {
        /// Where.
        at: Position,
        /// What whoever waits or watches must hear.
        effects: Vec<Effect>,
        /// What this node has computed up to here: the same on every node.
        digest: u64,
    },
    /// The node jumped over entries by a snapshot: it does not know what became of its clients'
    /// tickets. Close their connections; they come back and ask.
    LostTrack,
    /// This machine or program is no longer to be trusted: stop.
    Stop(String),
    /// This node no longer knows what it acknowledged: stop, and never start again under this id.
    Lost(String),
}

/// What must be durable before the number is told back.
#[derive(Debug)]
pub struct Persist {
    /// Rises.
    pub number: u64,
    /// An installed snapshot: everything in the log goes.
    pub installed: Option<Position>,
    /// To be appended; an index that is there already replaces it and all after it.
    pub entries: Vec<LogEntry>,
    /// Term and vote, if they changed, and up to where the log is known to be committed.
    pub hard_state: Option<HardState>,
}

/// A snapshot to be written.
#[derive(Debug)]
pub struct SnapshotTask {
    /// Where in the log it stands.
    pub at: Position,
    /// The members.
    pub cluster: Cluster,
    /// The locks; taking it cost next to nothing.
    pub snapshot: Snapshot,
}

/// What became of something that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It was applied.
    Answer(Result<Answer, Refusal>),
    /// Whether the session lives, confirmed by a majority after the heartbeat came.
    Beat(bool),
    /// The state of this node is current as of the read.
    Current,
    /// Whether the membership was changed, and why not.
    Changed(Result<(), NotChanged>),
    /// It was not taken, and has had no effect.
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
    /// Another change is on its way, or the leader is new: try again.
    NotNow,
    /// Another leader came in between: look at the members.
    Lost,
    /// It makes no sense; why.
    Refused(&'static str),
    /// No majority of the voters would answer afterwards; these voters do not.
    NoMajority(Vec<NodeId>),
    /// No majority of the present voters answers, and they must commit the change; these voters do
    /// not answer.
    NotCommittable(Vec<NodeId>),
}

/// Why something was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Too much is in line at this node.
    QueueFull,
    /// The disk of this node has no room.
    DiskFull,
    /// A member runs an older program that could not read it.
    OlderMember,
    /// It does not fit into one entry of the log, and never will.
    TooLarge,
}
