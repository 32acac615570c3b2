//! What waits for the loop: everybody puts it here, the loop takes all of it at once.

use super::calls::Server;
use holdfast_gateway::{CallId, Channels, Input, SinkId, SubmitError};
use holdfast_node::{self as node, Node};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What may wait for one turn of the loop. It is taken many times a millisecond; so much waits
/// only while the loop stands still.
const POSTS_MAX: usize = 131_072;

/// A look at the node and at who listens, on the loop's own thread: short. Or why there is none.
pub(crate) type Look = Box<dyn FnOnce(Result<(&Node, &Arc<Channels>), SubmitError>) + Send>;

/// Something for the loop.
pub(crate) enum Post {
    /// For the node as it is.
    Node(node::Input),
    /// For the gateway in front of it.
    Gateway(Input<Server>),
    /// A look at the state as it is here.
    Peek(Look),
    /// It is over.
    Stop(End),
}

/// Why a node ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// This machine or program is no longer to be trusted, or no member any more.
    Fault(String),
    /// This node must never run again under its id.
    Lost {
        /// What happened, and what to do unless it may rejoin.
        why: String,
        /// Whether it may come back as a new member that replaces its old id.
        may_rejoin: bool,
    },
}

pub(crate) struct Inbox {
    posts: Mutex<Posts>,
    bell: Condvar,
    /// Calls and sinks are numbered.
    next: AtomicU64,
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
        Self { posts: Mutex::new(posts), bell: Condvar::new(), next: AtomicU64::new(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Posts> {
        // Nobody panics while holding it; if somebody did, what is in it is still whole.
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other call has.
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A number that no other sink has.
    pub(crate) fn next_sink(&self) -> SinkId {
        SinkId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// For what can be refused.
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

    /// For what must not be lost, and is bounded by itself: the disk's and the snapshots' word.
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

    /// Takes all that waits, at the latest after that time.
    pub(crate) fn take(&self, into: &mut Vec<Post>, at_most: Duration) {
        let posts = self.lock();
        let waited = self.bell.wait_timeout_while(posts, at_most, |posts| posts.waiting.is_empty());
        let (mut posts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut posts.waiting, into);
    }

    /// The loop has ended: nothing is taken any more, and whoever waits hears so.
    pub(crate) fn close(&self) {
        let mut posts = self.lock();
        posts.closed = true;
        posts.waiting.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether so much waits that a peer's connection should not be read on.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().waiting.len() >= POSTS_MAX / 16
    }
}
