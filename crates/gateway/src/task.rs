//! Tasks: what is done beside the state, step by step, without going back to the connection that
//! started it. A door that knows keys reads the state, submits what came of it, and if something has
//! changed meanwhile, reads again.

use crate::Channels;
use holdfast_core::{Command, KeyKind, LockName, State};
use holdfast_node::Reply;
use std::sync::Arc;

/// Something that is done step by step. Each step is short: everything else waits for it.
pub trait Task {
    /// Does the next step. The state is as this node has it.
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step;
}

/// What a task sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The state, as this node has it.
    pub state: &'a State,
    /// List the subscribers on this node.
    pub channels: &'a Arc<Channels>,
}

/// What happened to a task.
#[derive(Debug)]
pub enum Resume {
    /// It begins.
    Started,
    /// The node replied to its step; after a read the state is current.
    Replied(Reply),
    /// An object was put under one of the names that it was blocked on, or nobody knows whether.
    Woken,
    /// It has been blocked for as long as it may. The next step must be `Done`.
    TimedOut,
    /// Too many names are waited for. The next step must be `Done`.
    NoRoom,
}

/// What a task wants next.
#[derive(Debug)]
pub enum Step {
    /// To put this through the log.
    Submit(Command),
    /// To go on when the state is current.
    Read,
    /// To go on when an object of that kind has been put under one of these names.
    Block {
        /// The names.
        names: Vec<LockName>,
        /// The kind.
        kind: KeyKind,
    },
    /// Nothing more: it is done. If something was there that it did not take, the next one may.
    Done,
}
