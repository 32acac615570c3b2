//! Calls on their way: whoever drops one before its completion is delivered abandons it.

use super::inbox::{Inbox, Look, Post};
use super::sink::EventSink;
use holdfast_gateway::{
    CallId, Completion, Driver, Input, Outcome, Resume, Step, SubmitError, Task, TicketRef, View,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The gateway's driver: this server.
pub(crate) struct Server;

impl Driver for Server {
    type ReplyTo = ReplyTo;
    type Sink = EventSink;
    type Task = Box<dyn EngineTask>;
}

/// Where the completion of a call goes.
pub(crate) enum ReplyTo {
    /// To a task that waits for it.
    Caller(oneshot::Sender<Completed>),
    /// To a look at the node, on the loop's own thread.
    Look(Look),
}

/// Something that is done step by step on the loop's thread.
pub(crate) trait EngineTask: Send {
    /// Does the next step.
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step;

    /// It is done: goes back to whoever started it.
    fn finish(self: Box<Self>);
}

impl Task for Box<dyn EngineTask> {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        (**self).resume(view, resume)
    }
}

/// A completion on its way to the caller.
pub(crate) struct Completed {
    pub(crate) outcome: Result<Outcome, SubmitError>,
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

/// Travels with the completion about a ticket. Wherever that gets lost on its way to the caller
/// (nobody receives it, or its task is never polled again), this is dropped with it, and the ticket is
/// given up.
#[derive(Debug)]
pub(crate) struct Undelivered {
    /// None once the completion has been delivered.
    ticket: Option<TicketRef>,
    inbox: Arc<Inbox>,
}

impl Undelivered {
    /// The caller has the answer: what becomes of the ticket is up to the caller from now on.
    pub(crate) fn delivered(mut self) {
        self.ticket = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // There is one for each ticket that this node drew, so their number is bounded. The call
            // itself is over: its number is not needed any more.
            let (call, ticket) = (CallId(0), Some(ticket));
            self.inbox.post_always(Post::Gateway(Input::Abandon { call, ticket }));
        }
    }
}

/// A call that is not completed. Abandons it when it is dropped.
pub(crate) struct Pending {
    call: Option<CallId>,
    inbox: Arc<Inbox>,
}

impl Pending {
    pub(super) fn new(call: CallId, inbox: Arc<Inbox>) -> Self {
        Self { call: Some(call), inbox }
    }

    /// It is completed: there is nothing to abandon.
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
