//! What goes into the gateway and what comes out of it.

use crate::task::Task;
use crate::{ApiError, SubmitError, TicketRef, Topic};
use holdfast_core::{
    Answer, Channel, Command, Effect, Ended, Grant, Message, Refusal, RequestRef, SessionRef,
    TicketStatus, Token,
};
use holdfast_node::{Busy, Change, NotChanged, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the driver of a gateway brings along.
pub trait Driver {
    /// Where the completion of one call goes.
    type ReplyTo;
    /// Where the events of one connection go.
    type Sink: Sink;
    /// What is done step by step beside the state.
    type Task: Task;
}

/// A connection's events go here. It is bounded; one that overflows ends its connection, which is
/// between the two of them.
pub trait Sink: Clone {
    /// Which one it is, among all of the driver.
    fn id(&self) -> SinkId;
}

/// Which call something is about: the driver never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Which sink something is about: the driver never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId(pub u64);

/// What a door wants.
pub enum Input<D: Driver> {
    /// To put a command through the log.
    Submit {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// The client's request id. Without one, a ticket that this draws is given up unless the
        /// completion is delivered.
        request: Option<RequestRef>,
        /// What is to be done.
        command: Command,
        /// Whether a ticket that waits is completed only when its wait has ended.
        wait: bool,
        /// Closed if the ticket is granted, and later taken over in its holder's name.
        follow: Option<D::Sink>,
    },
    /// To tell that a session lives.
    Heartbeat {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// Whose heartbeat.
        session: SessionRef,
    },
    /// To read the state once it is current.
    Read {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
    },
    /// To change the membership; only the leader can. It has no deadline.
    Change {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// What to change.
        change: Change,
        /// Also if no majority of the voters that are left answers.
        force: bool,
    },
    /// To open a session whose events go to a sink.
    Open {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// `Command::OpenSession`.
        command: Command,
        /// Where its events go.
        sink: D::Sink,
    },
    /// To go on with a session: its events go to this sink from now on, and an older one of the same
    /// session is told that it has lost track.
    Attach {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// Which session, and its proof.
        session: SessionRef,
        /// Tickets whose status is wanted.
        tickets: Vec<Token>,
        /// Where its events go.
        sink: D::Sink,
    },
    /// To receive what is about these topics, in place of those that the sink had. It begins when the
    /// state is current: a node that is behind would tell what happened long before.
    Subscribe {
        /// Which call this is.
        call: CallId,
        /// Where its completion goes.
        reply_to: D::ReplyTo,
        /// Where the events go.
        sink: D::Sink,
        /// All that it wants to receive.
        topics: Vec<Topic>,
    },
    /// The same at once, whether or not the state is current: for a sink that knows what is old.
    Listen {
        /// Where the events go.
        sink: D::Sink,
        /// All that it wants to receive.
        topics: Vec<Topic>,
    },
    /// To receive only these of the topics that the sink has.
    Unsubscribe {
        /// Which sink.
        sink: SinkId,
        /// Those that are left.
        left: Vec<Topic>,
    },
    /// To stop following a ticket: its connection is about to take it over itself.
    Unfollow {
        /// Which sink.
        sink: SinkId,
        /// Which ticket.
        token: Token,
    },
    /// To put a command of a session through the log; the reply is an event.
    SubmitOn {
        /// Where the reply goes.
        sink: D::Sink,
        /// The number that it carries.
        number: u64,
        /// The client's request id.
        request: Option<RequestRef>,
        /// What is to be done.
        command: Command,
    },
    /// To tell that a session lives; the reply is an event.
    HeartbeatOn {
        /// Where the reply goes.
        sink: D::Sink,
        /// The number that it carries.
        number: u64,
        /// Whose heartbeat.
        session: SessionRef,
    },
    /// To run a task.
    Start {
        /// Which call this is.
        call: CallId,
        /// The task.
        task: D::Task,
        /// How long it may be blocked; none is forever.
        block_for: Option<Duration>,
    },
    /// To abandon a call, whatever has become of it: nobody receives its completion.
    Abandon {
        /// Which call.
        call: CallId,
        /// The ticket of its completion, if that came and could not be delivered.
        ticket: Option<TicketRef>,
    },
    /// To forget a sink: its connection has ended. Its calls are abandoned.
    Close(SinkId),
}

impl<D: Driver> Input<D> {
    /// Whether it goes through the log, or may.
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

/// Something for the driver to deliver, in this order.
pub enum Output<D: Driver> {
    /// A call is completed.
    Complete(D::ReplyTo, Completion),
    /// Something happened that a sink is to receive.
    Event(D::Sink, SessionEvent),
    /// A task is done: what came of it, it has in itself.
    Finished(D::Task),
    /// A sink's connection must end at once.
    Close(D::Sink),
    /// Too much waits for all sinks together: one for which more than this waits must end.
    CloseIfAbove(D::Sink, usize),
}

/// What became of a call.
#[derive(Debug)]
pub struct Completion {
    /// What came of it, or why nothing did.
    pub outcome: Result<CallOutcome, SubmitError>,
    /// A ticket that only the caller can know of. If the completion can't be delivered, the driver
    /// gives this back with [`Input::Abandon`], and the ticket is given up.
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

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It was applied.
    Answer(Result<Answer, Refusal>),
    /// The ticket waited, and is served.
    Served(Box<Grant>),
    /// The ticket waited, and its wait is over.
    Ended(Box<Ended>),
    /// The session lives.
    Alive,
    /// The session does not live, or not with this secret.
    NotAlive(Refusal),
    /// The state of this node is current.
    Current,
    /// Whether the membership was changed.
    Changed(Result<(), NotChanged>),
    /// The session is attached.
    Attached(Box<Attached>),
    /// The sink receives what it asked for.
    Subscribed,
}

/// What a client that comes back is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// How its tickets stand, without those of others.
    pub statuses: Vec<TicketStatus>,
    /// Revocations that were asked for while it was away.
    pub revocations: Vec<Effect>,
    /// The logical time.
    pub now_ms: u64,
}

/// What comes out of a sink.
#[derive(Debug, Clone)]
pub enum SessionEvent {
    /// The reply to what was asked under that number.
    Reply {
        /// Which.
        number: u64,
        /// What became of it.
        reply: Reply,
    },
    /// The door refused what was asked under that number: the gateway never saw it.
    Refused {
        /// Which.
        number: u64,
        /// Why.
        error: Box<ApiError>,
    },
    /// Something happened to the session, one of its tickets, or a lock that is watched.
    Effect {
        /// What.
        effect: Arc<Effect>,
        /// The logical time then.
        now_ms: u64,
    },
    /// Something was published.
    Published(Arc<Published>),
    /// Nobody knows what happened meanwhile: nothing more comes.
    LostTrack,
}

impl SessionEvent {
    /// Bytes that it keeps, as far as clients choose them.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Published(published) => published.bytes(),
            Self::Reply { .. } | Self::Refused { .. } | Self::Effect { .. } | Self::LostTrack => 0,
        }
    }
}

/// What was published. It counts among all that somebody has yet to receive, until it is dropped.
#[derive(Debug)]
pub struct Published {
    /// Where.
    pub channel: Channel,
    /// What.
    pub message: Message,
    unread_bytes: Arc<AtomicUsize>,
}

impl Published {
    /// Also says how many bytes waited before.
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

/// Why a node's reply is no answer.
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
