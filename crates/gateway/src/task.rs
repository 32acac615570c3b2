//! Tasks: work on the state, step by step, without going back to the connection that started it. A
//! door that knows keys reads the state, submits a command, and reads again if something has
//! changed in the meantime.

use crate::{Caller, Channels};
use holdfast_core::{Command, KeyKind, LockName, State};
use holdfast_node::Reply;
use std::sync::Arc;

/// Work that runs step by step. Each step must be short: it blocks the loop.
pub trait Task {
    /// Runs the next step. The state is this node's, which may be stale.
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step;
}

/// What a task sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Who has the task run.
    pub caller: &'a Caller,
    /// This node's state, which may be stale.
    pub state: &'a State,
    /// The channels that have subscribers on this node.
    pub channels: &'a Arc<Channels>,
}

/// Why a task is resumed.
#[derive(Debug)]
pub enum Resume {
    /// It has just started.
    Started,
    /// The node replied to its step; after a read the state is current.
    Replied(Reply),
    /// An object was put under one of the names that it was blocked on, or may have been.
    Woken,
    /// It was blocked for too long. The next step must be `Done`.
    TimedOut,
    /// Too many names are being waited for. The next step must be `Done`.
    NoRoom,
}

/// What a task does next.
#[derive(Debug)]
pub enum Step {
    /// Puts a command through the log.
    Submit(Command),
    /// Resumes once the state is current.
    Read,
    /// Resumes once an object of this kind has been put under one of these names.
    Block {
        /// The names.
        names: Vec<LockName>,
        /// The kind.
        kind: KeyKind,
    },
    /// Ends. An object that it did not take is left for the next task.
    Done,
}
