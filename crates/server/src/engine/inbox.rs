//! The loop's inbox: everyone else posts here, and the loop takes everything at once.

use super::calls::Server;
use holdfast_gateway::{CallId, Channels, Input, SharedAccounts, SinkId, SubmitError};
use holdfast_node::{self as node, Node};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Posts that may wait for one turn of the loop. The loop drains the inbox many times a
/// millisecond; this many pile up only while it is stalled.
const POSTS_MAX: usize = 131_072;

/// A closure that looks at the node and its subscriptions on the loop's own thread, so it must be
/// short. It gets an error if the state cannot be read.
pub(crate) type Look = Box<dyn FnOnce(Result<(&Node, &Arc<Channels>), SubmitError>) + Send>;

/// A message to the loop.
pub(crate) enum Post {
    /// Passed to the node as it is.
    Node(node::Input),
    /// For the gateway in front of it.
    Gateway(Input<Server>),
    /// Looks at the local state, which may be stale.
    Peek(Look),
    /// Stops the loop.
    Stop(StopReason),
}

/// Why a node stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// It was asked to stop.
    Asked,
    /// This machine or program can no longer be trusted, or the node is no longer a member.
    Fault(String),
    /// This node must never run again under its id.
    Lost {
        /// What happened, and what to do if the node may not rejoin.
        why: String,
        /// Whether the node may come back as a new member that replaces its old id.
        may_rejoin: bool,
    },
}

pub(crate) struct Inbox {
    posts: Mutex<Posts>,
    bell: Condvar,
    /// The next call or sink id.
    next: AtomicU64,
    /// Kept up to date by the loop, for those who authenticate clients.
    pub(crate) accounts: SharedAccounts,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

struct Posts {
    waiting: Vec<Post>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let posts = Posts { waiting: Vec::new(), closed: false };
        Self {
            posts: Mutex::new(posts),
            bell: Condvar::new(),
            next: AtomicU64::new(1),
            accounts: SharedAccounts::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Posts> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fresh call id.
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A fresh sink id.
    pub(crate) fn next_sink(&self) -> SinkId {
        SinkId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Posts something that may be refused: fails if the inbox is full or closed.
    pub(crate) fn post(&self, post: Post) -> Result<(), SubmitError> {
        let posts = self.lock();
        if posts.closed {
            return Err(SubmitError::Stopped);
        }
        if posts.waiting.len() >= POSTS_MAX {
            return Err(SubmitError::QueueFull);
        }
        self.push(posts, post);
        Ok(())
    }

    /// Posts something that must not be lost and is bounded in itself, such as the reports of the
    /// disk and snapshot threads. Dropped only if the loop has ended.
    pub(crate) fn post_always(&self, post: Post) {
        let posts = self.lock();
        if !posts.closed {
            self.push(posts, post);
        }
    }

    fn push(&self, mut posts: MutexGuard<'_, Posts>, post: Post) {
        let was_empty = posts.waiting.is_empty();
        posts.waiting.push(post);
        drop(posts);
        if was_empty {
            self.bell.notify_one();
        }
    }

    /// Takes everything that is waiting. Blocks for up to `at_most` until there is something.
    pub(crate) fn take(&self, into: &mut Vec<Post>, at_most: Duration) {
        let posts = self.lock();
        let waited = self.bell.wait_timeout_while(posts, at_most, |posts| posts.waiting.is_empty());
        let (mut posts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut posts.waiting, into);
    }

    /// The loop has ended: refuses new posts and drops the waiting ones, which fails their callers.
    pub(crate) fn close(&self) {
        let mut posts = self.lock();
        posts.closed = true;
        posts.waiting.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether the inbox is so full that reading from peers' connections should pause.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().waiting.len() >= POSTS_MAX / 16
    }
}
