//! What waits for the loop: everybody puts it here, the loop takes all of it at once.

use super::asked::{Asker, Line};
use super::errand::Errand;
use super::undelivered::TicketRef;
use holdfast_core::{Command, Request, Scope, SessionId, SessionRef};
use holdfast_gateway::SubmitError;
use holdfast_node::{Change, Input, Node};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What may wait for one turn of the loop. It is taken many times a millisecond; so much waits
/// only while the loop stands still.
const POSTS_MAX: usize = 131_072;

/// A look at the node, on the loop's own thread: short. Or why there is none.
pub(crate) type Look = Box<dyn FnOnce(Result<&Node, SubmitError>) + Send>;

/// Something for the loop.
pub(crate) enum Post {
    /// For the node as it is.
    Input(Input),
    /// A request that goes through the log.
    Ask {
        request: Option<Request>,
        command: Command,
        asker: Asker,
        /// If it was not sent to a leader by then, it never is.
        until: Option<Instant>,
    },
    /// A session was heard of.
    Beat {
        session: SessionRef,
        asker: Asker,
    },
    /// A session's connection wants to hear what happens to it; or no longer.
    Listen {
        session: SessionId,
        line: Arc<Line>,
    },
    Unlisten {
        session: SessionId,
        line: Arc<Line>,
    },
    /// A connection wants to hear what happens to some locks; or no longer.
    Watch {
        watch: u64,
        scope: Scope,
        line: Arc<Line>,
        stands: oneshot::Sender<bool>,
    },
    Unwatch(u64),
    /// A look at the state, once it is current.
    Read(Look),
    /// A look at the state as it is here.
    Peek(Look),
    /// Something to be done step by step on the loop's thread.
    Errand(Box<dyn Errand>),
    /// Whoever sent the errand of that number does not want to wait any longer.
    GiveUp(u64),
    /// Nobody knows of this ticket any more: it is to be given up.
    Abandon(TicketRef),
    /// Another membership.
    Change {
        change: Change,
        force: bool,
        asker: Asker,
    },
    /// It is over.
    Stop(End),
}

impl Post {
    /// Whether it asks for something that goes through the log, or may.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::Errand(_))
    }

    /// Whether whoever asked is gone.
    pub(crate) fn is_given_up(&self) -> bool {
        match self {
            Self::Ask { asker, .. } => asker.hung_up(),
            Self::Errand(errand) => errand.nobody_waits(),
            _ => false,
        }
    }
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
        Self { posts: Mutex::new(posts), bell: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Posts> {
        // Nobody panics while holding it; if somebody did, what is in it is still whole.
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
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
