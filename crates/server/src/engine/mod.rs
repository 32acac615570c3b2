//! The engine of a node: the pure loop on its own thread, a disk thread and a snapshot thread.
//!
//! The loop's thread owns the node and the gateway in front of it, and drives both in one turn
//! (`driver`). Everyone else talks to it through an [`Engine`], which posts requests to the inbox;
//! a dropped call turns into an `Abandon` (`calls`). The engine knows nothing of any door.

mod acquire;
mod calls;
mod disk;
mod driver;
mod inbox;
mod sink;
mod snapshots;

pub(crate) use acquire::AcquireResult;
pub(crate) use calls::{EngineTask, Pending, Undelivered};
pub use inbox::StopReason;
pub(crate) use inbox::{Inbox, Post};
pub(crate) use sink::{EventSink, Listener, Listening, Missed, Subscriber};
pub(crate) use snapshots::{NotTaken, Piece, Snapshots};

use crate::metrics::Metrics;
use crate::peers::Peers;
use calls::{Completed, ReplyTo, Server};
use driver::Driver;
use holdfast_core::{Accounts, AuditEntry, Right};
use holdfast_core::{Answer, Command, Refusal, RequestRef, Scope, SessionRef, Token};
use holdfast_gateway::{ApiError, Caller};
use holdfast_gateway::{CallId, CallOutcome, Channels, Input, Sink, SubmitError, TIMEOUT, Topic};
use holdfast_node::{self as node, Change, Node, NodeDisk, NodeId, NotChanged};
use holdfast_storage::RealDisk;
use sink::AnySink;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// When a caller stops waiting for the loop. The loop itself answers within [`TIMEOUT`], and then
/// knows whether the request took effect; this longer timeout only matters if the loop hangs.
pub(crate) const TIMEOUT_OF_THE_LOOP: Duration = TIMEOUT.saturating_add(Duration::from_secs(2));

/// A handle to the loop. Every future may be dropped, which abandons a call that is not yet
/// completed: a request that has not been sent to a leader then has no effect; any other may still
/// take effect. A ticket that only the caller can know of is given up.
#[derive(Clone)]
pub struct Engine {
    inbox: Arc<Inbox>,
    /// On whose behalf it makes requests.
    caller: Caller,
}

/// Starts a node's threads. The receiver resolves when the node has stopped, with the reason.
pub(crate) fn start(
    node: Node,
    files: NodeDisk<RealDisk>,
    snapshots: Arc<Snapshots>,
    inbox: Arc<Inbox>,
    peers: Peers,
    metrics: Arc<Metrics>,
) -> io::Result<oneshot::Receiver<StopReason>> {
    let (jobs, jobs_taken) = mpsc::channel();
    let (tasks, tasks_taken) = mpsc::channel();
    let (disk_inbox, disk_metrics) = (inbox.clone(), metrics.clone());
    let disk = thread::Builder::new()
        .name("disk".into())
        .spawn(move || disk::run(files, &jobs_taken, &disk_inbox, &disk_metrics))?;
    let snapshot_inbox = inbox.clone();
    let writer = thread::Builder::new()
        .name("snapshots".into())
        .spawn(move || snapshots.run(&tasks_taken, &snapshot_inbox))?;
    let (ended, wait) = oneshot::channel();
    thread::Builder::new().name("loop".into()).spawn(move || {
        let end = Driver::new(node, inbox, jobs, tasks, peers, metrics).run();
        // The driver is dropped, and with it the senders that the other threads read from: they
        // finish what they have and end.
        let _ = disk.join();
        let _ = writer.join();
        let _ = ended.send(end);
    })?;
    Ok(wait)
}

impl Engine {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox, caller: Caller::NODE }
    }

    /// The same engine, for requests of a client.
    pub(crate) fn for_caller(&self, caller: Caller) -> Self {
        Self { inbox: self.inbox.clone(), caller }
    }

    /// On whose behalf it makes requests.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// All users and roles, as this node knows them.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        self.inbox.accounts.get()
    }

    /// Records what a client did, or tried to do, that went through no command.
    pub(crate) fn record(&self, caller: &Caller, entry: AuditEntry) {
        let input = Input::Record { caller: caller.clone(), entry };
        // What can't be recorded is still in the log of this process.
        let _ = self.post(input);
    }

    /// Whether the caller may do something that concerns the whole cluster.
    pub(crate) async fn require_admin(&self) -> Result<(), ApiError> {
        let caller = self.caller.clone();
        let look = move |node: &Node| caller.require_prefix(node.state(), Right::Admin, None);
        Ok(self.peek(look).await??)
    }

    fn post(&self, input: Input<Server>) -> Result<(), SubmitError> {
        self.inbox.post(Post::Gateway(input))
    }

    /// Makes a call and waits for its completion without a timeout.
    async fn call_for_long(
        &self,
        input: impl FnOnce(CallId, ReplyTo) -> Input<Server>,
    ) -> Result<(CallOutcome, Option<Undelivered>), SubmitError> {
        let (reply_to, wait) = oneshot::channel();
        let call = self.inbox.next_call();
        self.post(input(call, ReplyTo::Caller(reply_to)))?;
        let pending = Pending::new(call, self.inbox.clone());
        let completed = wait.await;
        pending.completed();
        let Completed { outcome, undelivered } = completed.map_err(|_| SubmitError::Stopped)?;
        Ok((outcome?, undelivered))
    }

    async fn call(
        &self,
        input: impl FnOnce(CallId, ReplyTo) -> Input<Server>,
    ) -> Result<CallOutcome, SubmitError> {
        let completed = timeout(TIMEOUT_OF_THE_LOOP, self.call_for_long(input)).await;
        let (outcome, undelivered) = completed.unwrap_or(Err(SubmitError::Unknown))?;
        if let Some(undelivered) = undelivered {
            undelivered.delivered();
        }
        Ok(outcome)
    }

    /// Puts a command through the log, within 10s. `SubmitError::Withdrawn` means that it had no
    /// effect.
    pub async fn submit(
        &self,
        request: Option<RequestRef>,
        command: Command,
    ) -> Result<Result<Answer, Refusal>, SubmitError> {
        let (wait, follow) = (false, None);
        let caller = self.caller.clone();
        let submitted = self.call(|call, reply_to| Input::Submit {
            caller,
            call,
            reply_to,
            request,
            command,
            wait,
            follow,
        });
        answer(submitted.await?)
    }

    /// Like [`Engine::submit`], but the caller waits until its ticket is served, without a timeout.
    async fn submit_for_turn(
        &self,
        request: Option<RequestRef>,
        command: Command,
        follow: Option<EventSink>,
    ) -> Result<(CallOutcome, Option<Undelivered>), SubmitError> {
        let (wait, follow) = (true, follow.as_ref().map(AnySink::from));
        let caller = self.caller.clone();
        let submit = |call, reply_to| Input::Submit {
            caller,
            call,
            reply_to,
            request,
            command,
            wait,
            follow,
        };
        self.call_for_long(submit).await
    }

    /// Sends a session's heartbeat, within 10s. The inner error says why the session is not alive.
    pub async fn heartbeat(&self, session: SessionRef) -> Result<Result<(), Refusal>, SubmitError> {
        match self.call(|call, reply_to| Input::Heartbeat { call, reply_to, session }).await? {
            CallOutcome::Alive => Ok(Ok(())),
            CallOutcome::NotAlive(refusal) => Ok(Err(refusal)),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// Opens a session whose events go to a sink.
    pub(crate) async fn open(
        &self,
        command: Command,
        sink: &EventSink,
    ) -> Result<CallOutcome, SubmitError> {
        let sink = sink.into();
        let caller = self.caller.clone();
        self.call(|call, reply_to| Input::Open { caller, call, reply_to, command, sink }).await
    }

    /// Resumes a session: its events go to this sink from now on.
    pub(crate) async fn attach(
        &self,
        session: SessionRef,
        tickets: Vec<Token>,
        sink: &EventSink,
    ) -> Result<CallOutcome, SubmitError> {
        let sink = sink.into();
        self.call(|call, reply_to| Input::Attach { call, reply_to, session, tickets, sink }).await
    }

    /// Puts a command of a session through the log; the reply arrives as an event within 10s.
    pub(crate) fn submit_on(
        &self,
        sink: &EventSink,
        number: u64,
        request: Option<RequestRef>,
        command: Command,
    ) -> Result<(), SubmitError> {
        let (caller, sink) = (self.caller.clone(), sink.into());
        self.post(Input::SubmitOn { caller, sink, number, request, command })
    }

    /// Sends a session's heartbeat; the reply arrives as an event.
    pub(crate) fn heartbeat_on(
        &self,
        sink: &EventSink,
        number: u64,
        session: SessionRef,
    ) -> Result<(), SubmitError> {
        self.post(Input::HeartbeatOn { sink: sink.into(), number, session })
    }

    /// Creates the receiver for a connection's events. Its queue is bounded by `events_max`, and
    /// for published messages by `bytes_max`.
    pub(crate) fn subscriber(&self, events_max: usize, bytes_max: usize) -> Subscriber {
        Subscriber::new(self.inbox.clone(), events_max, bytes_max)
    }

    /// Subscribes a connection to these topics, replacing the ones it had.
    pub(crate) async fn subscribe(
        &self,
        subscriber: &Subscriber,
        topics: Vec<Topic>,
    ) -> Result<(), ApiError> {
        let (caller, sink) = (self.caller.clone(), subscriber.sink().into());
        let subscribe = |call, reply_to| Input::Subscribe { caller, call, reply_to, sink, topics };
        match self.call(subscribe).await? {
            CallOutcome::Answer(Err(refusal)) => Err(refusal.into()),
            _ => Ok(()),
        }
    }

    /// Subscribes a listener to these topics from now on: before anything that is posted later.
    pub(crate) fn listen(&self, listener: Arc<dyn Listener>, topics: Vec<Topic>) -> Listening {
        let listening = Listening::new(self.inbox.clone(), listener);
        let sink = listening.sink();
        self.inbox.post_always(Post::Gateway(Input::Listen { sink, topics }));
        listening
    }

    /// Sends a session's heartbeat; the listener receives the reply.
    pub(crate) fn heartbeat_to(
        &self,
        listening: &Listening,
        number: u64,
        session: SessionRef,
    ) -> Result<(), SubmitError> {
        self.post(Input::HeartbeatOn { sink: listening.sink(), number, session })
    }

    /// Drops all of a connection's topics except `left`.
    pub(crate) fn unsubscribe(&self, subscriber: &Subscriber, left: Vec<Topic>) {
        let sink = subscriber.sink().id();
        self.inbox.post_always(Post::Gateway(Input::Unsubscribe { sink, left }));
    }

    /// Stops following a ticket: the connection is about to take it over itself, which must not
    /// close it.
    pub(crate) fn unfollow(&self, sink: &EventSink, token: Token) {
        let sink = sink.id();
        self.inbox.post_always(Post::Gateway(Input::Unfollow { sink, token }));
    }

    /// Subscribes to the events of these locks until the subscriber is dropped.
    pub(crate) async fn watch(
        &self,
        scope: Scope,
        events_max: usize,
    ) -> Result<Subscriber, ApiError> {
        let subscriber = self.subscriber(events_max, usize::MAX);
        self.subscribe(&subscriber, vec![Topic::Locks(scope)]).await?;
        Ok(subscriber)
    }

    /// Starts a task on the loop's thread; it is handed back through `finish`. `block_for` bounds
    /// how long it may stay blocked; `None` means forever.
    pub(crate) fn start(
        &self,
        task: Box<dyn EngineTask>,
        block_for: Option<Duration>,
    ) -> Result<Pending, SubmitError> {
        let call = self.inbox.next_call();
        let caller = self.caller.clone();
        self.post(Input::Start { caller, call, task, block_for })?;
        Ok(Pending::new(call, self.inbox.clone()))
    }

    /// Looks at the current state, within 10s: it includes everything acknowledged before the call.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        let call = self.inbox.next_call();
        let pending = Pending::new(call, self.inbox.clone());
        let post = |look| Post::Gateway(Input::Read { call, reply_to: ReplyTo::Look(look) });
        let looked = self.look_at(move |node, _| look(node), post).await;
        pending.completed();
        looked
    }

    /// Looks at this node's local state, which may be stale.
    pub async fn peek<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        self.look_at(move |node, _| look(node), Post::Peek).await
    }

    /// Looks at local state if `stale`, otherwise at current state.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        stale: bool,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        if stale { self.peek(look).await } else { self.read(look).await }
    }

    /// This node's channel subscriptions.
    pub(crate) async fn channels(&self) -> Result<Arc<Channels>, SubmitError> {
        self.look_at(|_, channels| channels.clone(), Post::Peek).await
    }

    async fn look_at<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node, &Arc<Channels>) -> T + Send + 'static,
        post: impl FnOnce(inbox::Look) -> Post,
    ) -> Result<T, SubmitError> {
        let (reply_to, wait) = oneshot::channel();
        let look: inbox::Look = Box::new(move |seen| {
            // The receiver is gone if the caller has given up.
            let _ = reply_to.send(seen.map(|(node, channels)| look(node, channels)));
        });
        self.inbox.post(post(look))?;
        let looked = timeout(TIMEOUT_OF_THE_LOOP, wait).await;
        looked.map_or(Err(SubmitError::Unknown), |seen| seen.unwrap_or(Err(SubmitError::Stopped)))
    }

    /// Changes the membership; only the leader can.
    pub async fn change(
        &self,
        change: Change,
        force: bool,
    ) -> Result<Result<(), NotChanged>, SubmitError> {
        let change = |call, reply_to| Input::Change { call, reply_to, change, force };
        match self.call_for_long(change).await? {
            (CallOutcome::Changed(changed), _) => Ok(changed),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// Asks for leadership to be transferred to another node.
    pub fn transfer(&self, to: NodeId) {
        self.inbox.post_always(Post::Node(node::Input::Transfer(to)));
    }

    /// Requests a snapshot now.
    pub fn take_snapshot(&self) {
        self.inbox.post_always(Post::Node(node::Input::TakeSnapshot));
    }

    /// Stops the node.
    pub fn stop(&self) {
        self.inbox.post_always(Post::Stop(StopReason::Asked));
    }
}

fn answer(outcome: CallOutcome) -> Result<Result<Answer, Refusal>, SubmitError> {
    match outcome {
        CallOutcome::Answer(answer) => Ok(answer),
        _ => Err(SubmitError::Unknown),
    }
}
