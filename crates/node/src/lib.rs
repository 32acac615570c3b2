//! One Holdfast node: Raft, the log and the core in one loop, without any I/O of its own.
//!
//! The driver of a [`Node`] (threads and sockets in production, the simulator in tests) calls
//! [`Node::turn`] with what has happened and performs the outputs. So both run the same code.
//!
//! The path of one acquire that arrives at a follower:
//!
//! 1. `Input::Submit` queues the command (`proposals.rs`). The node numbers it within its own session
//!    and forwards it to the leader, repeatedly until it sees the command applied.
//! 2. The leader (`lead.rs`) gathers what arrives while the last entry is being made durable, and
//!    appends one batch: one entry and one fsync, with how much time the leader saw pass.
//! 3. `consensus.rs` drives the Raft library: entries go to the disk (`Output::Persist`) and to
//!    the followers at the same time.
//! 4. Once a majority has the entry, every node applies it (`apply.rs`): the core accepts each
//!    numbered command once and in order.
//! 5. The follower recognises its own number and answers with `Output::Reply`. If the ticket is
//!    waiting, its grant comes with the effects of a later entry.

mod apply;
mod batch;
mod cluster;
mod consensus;
mod digest;
mod disk;
mod heartbeats;
mod io;
mod lead;
mod liveness;
mod message;
mod node;
mod proposals;
mod read_index;
mod types;

pub use batch::level_needed;
pub use cluster::{Change, Cluster, LEVEL, Member};
pub use disk::{
    NodeDisk, Salvage, backup, load, read_backup, read_snapshot, salvage, verify_backup,
    write_snapshot,
};
pub use holdfast_storage::{EntryKind, HardState, LogEntry, Position};
pub use io::{
    Boot, Busy, Config, Input, Loaded, Moment, NotChanged, Output, Persist, Reply, RequestTag,
    SnapshotTask,
};
pub use message::{FRAME_BYTES_MAX, PeerMessage};
pub use node::Node;
pub use types::{NodeId, RaftMessage, Voters};
