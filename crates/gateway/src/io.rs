//! The inputs and outputs of the gateway.

use crate::task::Task;
use crate::{ApiError, Caller, SubmitError, TicketRef, Topic};
use holdfast_core::{
    Answer, AuditEntry, Channel, Command, Effect, Ended, Grant, Message, Refusal, RequestRef,
    SessionRef, TicketStatus, Token,
};
use holdfast_node::{Busy, Change, NotChanged, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The types that a driver provides.
pub trait Driver {
    /// Where the completion of one call goes.
    type ReplyTo;
    /// Where the events of one connection go.
    type Sink: Sink;
    /// Work that runs step by step on the state.
    type Task: Task;
}

/// Receives the events of one connection. It is bounded; if it overflows, its connection must be
/// closed, which the driver does.
pub trait Sink: Clone {
    /// Its id, unique within the driver.
    fn id(&self) -> SinkId;
}

/// Identifies a call. The driver never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Identifies a sink. The driver never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId(pub u64);

/// A request from a door.
pub enum Input<D: Driver> {
    /// Puts a command through the log.
    Submit {
        /// Who sends it.
        caller: Caller,
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// The client's request id. Without one, a ticket that this draws is given up if the
        /// completion can't be delivered.
        request: Option<RequestRef>,
        /// The command.
        command: Command,
        /// Whether the completion of a waiting ticket is delayed until its wait has ended.
        wait: bool,
        /// Closed if the ticket is granted and later taken over in its holder's name.
        follow: Option<D::Sink>,
    },
    /// Reports that a session is alive.
    Heartbeat {
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// The session.
        session: SessionRef,
    },
    /// Reads the state once it is current.
    Read {
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
    },
    /// Changes the membership; only the leader can. It has no deadline.
    Change {
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// What to change.
        change: Change,
        /// Whether to do it even if no majority of the remaining voters answers.
        force: bool,
    },
    /// Opens a session whose events go to a sink.
    Open {
        /// Who opens it.
        caller: Caller,
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// `Command::OpenSession`.
        command: Command,
        /// Where its events go.
        sink: D::Sink,
    },
    /// Attaches to a session: from now on its events go to this sink. A sink that the session had
    /// before is notified that it lost track.
    Attach {
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// The session and its secret.
        session: SessionRef,
        /// Tickets whose status to return.
        tickets: Vec<Token>,
        /// Where its events go.
        sink: D::Sink,
    },
    /// Replaces the sink's topics. Takes effect once the state is current: a node that lags would
    /// send old events.
    Subscribe {
        /// Who subscribes.
        caller: Caller,
        /// The call's id.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// Where the events go.
        sink: D::Sink,
        /// All its topics from now on.
        topics: Vec<Topic>,
    },
    /// Like `Subscribe`, but immediate, whether or not the state is current: for a sink that
    /// recognises old events.
    Listen {
        /// Where the events go.
        sink: D::Sink,
        /// All its topics from now on.
        topics: Vec<Topic>,
    },
    /// Removes all topics of a sink except these.
    Unsubscribe {
        /// The sink.
        sink: SinkId,
        /// The topics to keep.
        left: Vec<Topic>,
    },
    /// Stops following a ticket: its own connection is about to take it over.
    Unfollow {
        /// The sink.
        sink: SinkId,
        /// The ticket.
        token: Token,
    },
    /// Puts a command of a session through the log; the reply is an event.
    SubmitOn {
        /// Who sends it.
        caller: Caller,
        /// Where the reply goes.
        sink: D::Sink,
        /// The number of the reply.
        number: u64,
        /// The client's request id.
        request: Option<RequestRef>,
        /// The command.
        command: Command,
    },
    /// Reports that a session is alive; the reply is an event.
    HeartbeatOn {
        /// Where the reply goes.
        sink: D::Sink,
        /// The number of the reply.
        number: u64,
        /// The session.
        session: SessionRef,
    },
    /// Runs a task.
    Start {
        /// Who has it run: the commands that it submits are checked.
        caller: Caller,
        /// The call's id.
        call: CallId,
        /// The task.
        task: D::Task,
        /// How long it may be blocked in total; `None` is forever.
        block_for: Option<Duration>,
    },
    /// Records what a client did, or tried to do, that went through no command.
    Record {
        /// Who.
        caller: Caller,
        /// What.
        entry: AuditEntry,
    },
    /// Abandons a call, whatever its state: nobody receives its completion.
    Abandon {
        /// The call.
        call: CallId,
        /// The ticket of its completion, if that arrived and could not be delivered.
        ticket: Option<TicketRef>,
    },
    /// Forgets a sink whose connection has ended. Its calls are abandoned.
    Close(SinkId),
}

impl<D: Driver> Input<D> {
    /// Whether it goes through the log, or may do so.
    pub(crate) fn is_request(&self) -> bool {
        matches!(
            self,
            Self::Submit { .. } | Self::SubmitOn { .. } | Self::Open { .. } | Self::Start { .. }
        )
    }

    pub(crate) fn is_of_call(&self, id: CallId) -> bool {
        match self {
            Self::Submit { call, .. } | Self::Open { call, .. } | Self::Start { call, .. } => {
                *call == id
            }
            _ => false,
        }
    }

    pub(crate) fn is_of_sink(&self, id: SinkId) -> bool {
        matches!(self, Self::SubmitOn { sink, .. } if sink.id() == id)
    }
}

/// Something that the driver must deliver, in order.
pub enum Output<D: Driver> {
    /// A call is completed.
    Complete(D::ReplyTo, Completion),
    /// An event for a sink.
    Event(D::Sink, SessionEvent),
    /// A task is done; it contains its own result.
    Finished(D::Task),
    /// A sink's connection must be closed now.
    Close(D::Sink),
    /// The sinks together have too much unread: close this one if it has more than this many bytes.
    CloseIfAbove(D::Sink, usize),
}

/// The completion of a call.
#[derive(Debug)]
pub struct Completion {
    /// The result, or why there is none.
    pub outcome: Result<CallOutcome, SubmitError>,
    /// A ticket that nobody but the caller can know of. If the completion can't be delivered, the
    /// driver returns this with [`Input::Abandon`], and the ticket is given up.
    pub ticket: Option<TicketRef>,
}

impl From<SubmitError> for Completion {
    fn from(error: SubmitError) -> Self {
        Self { outcome: Err(error), ticket: None }
    }
}

impl From<CallOutcome> for Completion {
    fn from(outcome: CallOutcome) -> Self {
        Self { outcome: Ok(outcome), ticket: None }
    }
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It was applied.
    Answer(Result<Answer, Refusal>),
    /// The ticket waited, and is now held.
    Served(Box<Grant>),
    /// The ticket waited, and has ended without being served.
    Ended(Box<Ended>),
    /// The session is alive.
    Alive,
    /// The session is not alive, or has another secret.
    NotAlive(Refusal),
    /// The state of this node is current.
    Current,
    /// Whether the membership was changed, or why not.
    Changed(Result<(), NotChanged>),
    /// The session is attached.
    Attached(Box<Attached>),
    /// The sink is subscribed.
    Subscribed,
}

/// What a client learns when it attaches to its session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The status of its tickets; tickets of others are left out.
    pub statuses: Vec<TicketStatus>,
    /// Revocations that were requested while it was away.
    pub revocations: Vec<Effect>,
    /// The current logical time.
    pub now_ms: u64,
}

/// An event of a sink.
#[derive(Debug, Clone)]
pub enum SessionEvent {
    /// The reply to a request.
    Reply {
        /// The number of the request.
        number: u64,
        /// The reply.
        reply: Reply,
    },
    /// The door refused a request, which never reached the gateway.
    Refused {
        /// The number of the request.
        number: u64,
        /// Why.
        error: Box<ApiError>,
    },
    /// Something happened to the session, one of its tickets, or a lock that is watched.
    Effect {
        /// The effect.
        effect: Arc<Effect>,
        /// Its logical time.
        now_ms: u64,
    },
    /// A message was published.
    Published(Arc<Published>),
    /// Events were missed. No more will follow.
    LostTrack,
}

impl SessionEvent {
    /// The size of the parts that clients choose, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Published(published) => published.bytes(),
            Self::Reply { .. } | Self::Refused { .. } | Self::Effect { .. } | Self::LostTrack => 0,
        }
    }
}

/// A published message. It counts towards all unread messages until it is dropped.
#[derive(Debug)]
pub struct Published {
    /// The channel.
    pub channel: Channel,
    /// The message.
    pub message: Message,
    unread_bytes: Arc<AtomicUsize>,
}

impl Published {
    /// Also returns how many bytes were unread before.
    pub(crate) fn new(
        channel: &Channel,
        message: &Message,
        unread_bytes: &Arc<AtomicUsize>,
    ) -> (Self, usize) {
        let (channel, message) = (channel.clone(), message.clone());
        let published = Self { channel, message, unread_bytes: unread_bytes.clone() };
        let before = unread_bytes.fetch_add(published.bytes(), Ordering::Relaxed);
        (published, before)
    }

    fn bytes(&self) -> usize {
        self.channel.as_bytes().len().saturating_add(self.message.as_bytes().len())
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.unread_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// Why a reply of the node contains no answer.
pub fn submit_error(reply: &Reply) -> SubmitError {
    match reply {
        Reply::Busy(Busy::QueueFull) => SubmitError::QueueFull,
        Reply::Busy(Busy::DiskFull) => SubmitError::DiskFull,
        Reply::Busy(Busy::OlderMember) => SubmitError::OlderMember,
        Reply::Busy(Busy::TooLarge) => SubmitError::TooLarge,
        Reply::Withdrawn => SubmitError::Withdrawn,
        _ => SubmitError::Unknown,
    }
}
