//! Calls in flight: dropping one before its completion is delivered abandons it.

use super::inbox::{Inbox, Look, Post};
use super::sink::AnySink;
use holdfast_gateway::{
    CallId, CallOutcome, Completion, Driver, Input, Resume, Step, SubmitError, Task, TicketRef,
    View,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// This server's types for the gateway.
pub(crate) struct Server;

impl Driver for Server {
    type ReplyTo = ReplyTo;
    type Sink = AnySink;
    type Task = Box<dyn EngineTask>;
}

/// Where the completion of a call goes.
pub(crate) enum ReplyTo {
    /// To a waiting async task.
    Caller(oneshot::Sender<Completed>),
    /// To a closure that looks at the node, on the loop's own thread.
    Look(Look),
}

/// Work that is done step by step on the loop's thread.
pub(crate) trait EngineTask: Send {
    /// Does the next step.
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step;

    /// Called once when the task is done: hands it back to the connection that started it.
    fn finish(self: Box<Self>);
}

impl Task for Box<dyn EngineTask> {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        (**self).resume(view, resume)
    }
}

/// A completion on its way to the caller.
pub(crate) struct Completed {
    pub(crate) outcome: Result<CallOutcome, SubmitError>,
    pub(crate) undelivered: Option<Undelivered>,
}

impl Completed {
    pub(super) fn new(completion: Completion, inbox: &Arc<Inbox>) -> Self {
        let Completion { outcome, ticket } = completion;
        let inbox = || inbox.clone();
        let undelivered = ticket.map(|ticket| Undelivered { ticket: Some(ticket), inbox: inbox() });
        Self { outcome, undelivered }
    }
}

/// Accompanies the completion of a call that drew a ticket. If the completion gets lost on its way
/// to the caller (nobody receives it, or the receiving task is never polled again), this is dropped
/// with it and the ticket is given up.
#[derive(Debug)]
pub(crate) struct Undelivered {
    /// `None` once the completion has been delivered.
    ticket: Option<TicketRef>,
    inbox: Arc<Inbox>,
}

impl Undelivered {
    /// The caller has the answer, and is responsible for the ticket from now on.
    pub(crate) fn delivered(mut self) {
        self.ticket = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // There is at most one per ticket that this node drew, so `post_always` stays bounded.
            // The call itself is over, so its id does not matter.
            let (call, ticket) = (CallId(0), Some(ticket));
            self.inbox.post_always(Post::Gateway(Input::Abandon { call, ticket }));
        }
    }
}

/// A call that is not yet completed. Dropping it abandons the call.
pub(crate) struct Pending {
    call: Option<CallId>,
    inbox: Arc<Inbox>,
}

impl Pending {
    pub(super) fn new(call: CallId, inbox: Arc<Inbox>) -> Self {
        Self { call: Some(call), inbox }
    }

    /// The call is completed, so there is nothing left to abandon.
    pub(crate) fn completed(mut self) {
        self.call = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.inbox.post_always(Post::Gateway(Input::Abandon { call, ticket: None }));
        }
    }
}
