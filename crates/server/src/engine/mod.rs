//! A running node: the pure loop on a thread of its own, a disk thread, a snapshot thread.

mod asked;
mod disk;
mod driver;
mod errand;
mod inbox;
mod snapshots;
mod undelivered;

pub use asked::Turn;
pub(crate) use asked::{Line, Missed, Word};
pub(crate) use driver::trouble;
pub(crate) use errand::{Errand, Next, Now};
use holdfast_gateway::SubmitError;
pub use inbox::End;
pub(crate) use inbox::{Inbox, Post};
pub(crate) use snapshots::{NotTaken, Piece, Snapshots};
pub(crate) use undelivered::Undelivered;

use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::redis::Channels;
use asked::{Asker, Told};
use driver::Driver;
use holdfast_core::{Answer, Command, Effect, Refusal, Request, Scope, SessionId, SessionRef};
use holdfast_node::{Change, Input, Node, NodeDisk, NodeId, NotChanged, Reply};
use holdfast_storage::RealDisk;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use undelivered::TicketRef;

/// How long a request waits for the cluster to take it. An election takes about a second.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// When a caller stops waiting for the loop, which answers after [`TIMEOUT`] by itself.
pub(crate) const TIMEOUT_OF_THE_LOOP: Duration = Duration::from_secs(12);

/// The answer to something that went through the log.
#[derive(Debug)]
pub struct Answered {
    /// What it was.
    pub answer: Result<Answer, Refusal>,
    /// For a ticket that waits: resolves when its turn has come or its wait is over. Fails if the
    /// node lost track of it: then ask.
    pub turn: Option<oneshot::Receiver<Turn>>,
}

/// How everybody else talks to the loop.
#[derive(Clone)]
pub struct Handle {
    inbox: Arc<Inbox>,
}

/// Starts the threads of a node. The receiver tells when and why it ended.
pub(crate) fn start(
    node: Node,
    files: NodeDisk<RealDisk>,
    snapshots: Arc<Snapshots>,
    inbox: Arc<Inbox>,
    peers: Peers,
    channels: Arc<Channels>,
    metrics: Arc<Metrics>,
) -> io::Result<oneshot::Receiver<End>> {
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
        let end = Driver::new(node, inbox, jobs, tasks, peers, channels, metrics).run();
        // The driver is gone, and with it what the others wait for: they finish what they have.
        let _ = disk.join();
        let _ = writer.join();
        let _ = ended.send(end);
    })?;
    Ok(wait)
}

/// Watches of this process are numbered: the number says whose news it is.
static NEXT_WATCH: AtomicU64 = AtomicU64::new(1);

/// A watch that stands.
pub(crate) struct Watch {
    handle: Handle,
    watch: u64,
    line: Arc<Line>,
    words: tokio::sync::mpsc::Receiver<Word>,
}

impl Watch {
    /// What happens next, and the logical time then; or why something was missed: watch anew.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(Arc<Effect>, u64), Missed>> {
        if self.line.is_broken() {
            return Poll::Ready(Err(Missed::TooSlow));
        }
        match self.words.poll_recv(context) {
            Poll::Ready(Some(Word::News { effect, now_ms })) => Poll::Ready(Ok((effect, now_ms))),
            Poll::Ready(_) => Poll::Ready(Err(Missed::LostTrack)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Resolves when the watcher has missed something because it did not read. Only one task may
    /// wait for it.
    pub(crate) fn too_slow(&self) -> impl Future<Output = ()> + Send + 'static {
        let line = self.line.clone();
        async move { line.broken().await }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.inbox.post_always(Post::Unwatch(self.watch));
    }
}

impl Handle {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    /// Puts something into the inbox and waits for what it is told.
    async fn put(
        &self,
        draws: Option<TicketRef>,
        post: impl FnOnce(Asker) -> Post,
    ) -> Result<Told, SubmitError> {
        let (told, wait) = oneshot::channel();
        self.inbox.post(post(Asker::One { told, draws }))?;
        wait.await.map_err(|_| SubmitError::Stopped)
    }

    /// Puts a command through the log. If the caller hangs up before the answer, the command is
    /// withdrawn if no leader was sent it yet; otherwise it may still take effect. The ticket of an
    /// acquire without a request id is given up then.
    pub async fn ask(
        &self,
        request: Option<Request>,
        command: Command,
    ) -> Result<Answered, SubmitError> {
        self.ask_until(request, command, None).await
    }

    /// The same, but answered within 10 seconds: `SubmitError::Withdrawn` says that it had no effect.
    pub async fn ask_within_timeout(
        &self,
        request: Option<Request>,
        command: Command,
    ) -> Result<Answered, SubmitError> {
        self.ask_until(request, command, Some(Instant::now() + TIMEOUT)).await
    }

    async fn ask_until(
        &self,
        request: Option<Request>,
        command: Command,
        until: Option<Instant>,
    ) -> Result<Answered, SubmitError> {
        let (answered, undelivered) = self.ask_undelivered(request, command, until).await?;
        if let Some(undelivered) = undelivered {
            undelivered.delivered();
        }
        Ok(answered)
    }

    /// The same for a caller whose answer has some way to go yet: it says when that is delivered.
    pub(crate) async fn ask_undelivered(
        &self,
        request: Option<Request>,
        command: Command,
        until: Option<Instant>,
    ) -> Result<(Answered, Option<Undelivered>), SubmitError> {
        // With a request id a retry finds the ticket; without one only the caller knows of it.
        let draws = if request.is_none() { TicketRef::drawn_by(&command) } else { None };
        match self.put(draws, |asker| Post::Ask { request, command, asker, until }).await? {
            Told { reply: Reply::Answer(answer), turn, undelivered } => {
                Ok((Answered { answer, turn }, undelivered))
            }
            Told { reply, .. } => Err(trouble(&reply)),
        }
    }

    /// Tells that a session lives; whether it still does, confirmed by a majority, within
    /// 10 seconds.
    pub async fn beat(&self, session: SessionRef) -> Result<bool, SubmitError> {
        match self.put(None, |asker| Post::Beat { session, asker }).await?.reply {
            Reply::Beat(alive) => Ok(alive),
            reply => Err(trouble(&reply)),
        }
    }

    /// Puts a command through the log; its answer comes over the line under that number, within
    /// 10 seconds.
    pub(crate) fn ask_on(
        &self,
        line: &Arc<Line>,
        number: u64,
        request: Option<Request>,
        command: Command,
    ) -> Result<(), SubmitError> {
        let asker = Asker::Line { line: line.clone(), number };
        let until = Some(Instant::now() + TIMEOUT);
        self.inbox.post(Post::Ask { request, command, asker, until })
    }

    /// Tells that a session lives; the answer comes over the line under that number.
    pub(crate) fn beat_on(
        &self,
        line: &Arc<Line>,
        number: u64,
        session: SessionRef,
    ) -> Result<(), SubmitError> {
        let asker = Asker::Line { line: line.clone(), number };
        self.inbox.post(Post::Beat { session, asker })
    }

    /// From now on the line hears what happens to the session and its tickets.
    pub(crate) fn listen(&self, session: SessionId, line: &Arc<Line>) {
        self.inbox.post_always(Post::Listen { session, line: line.clone() });
    }

    /// No longer.
    pub(crate) fn unlisten(&self, session: SessionId, line: &Arc<Line>) {
        self.inbox.post_always(Post::Unlisten { session, line: line.clone() });
    }

    /// Sends an errand to the loop's thread. What comes of it, it says itself.
    pub(crate) fn send(&self, errand: Box<dyn Errand>) -> Result<(), SubmitError> {
        self.inbox.post(Post::Errand(errand))
    }

    /// Does not want to wait any longer for the errand of that number, if it sleeps.
    pub(crate) fn give_up(&self, number: u64) {
        self.inbox.post_always(Post::GiveUp(number));
    }

    /// Hears what happens to these locks, until the watch is dropped. It begins when the state is
    /// current: a node that is behind would tell what happened long before.
    pub(crate) async fn watch(&self, scope: Scope, words_max: usize) -> Result<Watch, SubmitError> {
        self.read(|_| ()).await?;
        let (line, words) = Line::new(words_max);
        let watch = NEXT_WATCH.fetch_add(1, Ordering::Relaxed);
        let (stands, wait) = oneshot::channel();
        self.inbox.post(Post::Watch { watch, scope, line: line.clone(), stands })?;
        match wait.await {
            Ok(true) => Ok(Watch { handle: self.clone(), watch, line, words }),
            Ok(false) => Err(SubmitError::QueueFull),
            Err(_) => Err(SubmitError::Stopped),
        }
    }

    /// Looks at the current state, within 10 seconds: everything that was acknowledged before is in
    /// it.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        self.look(look, Post::Read).await
    }

    /// Looks at the state as this node has it, which may be stale.
    pub async fn peek<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, SubmitError> {
        self.look(look, Post::Peek).await
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
        post: impl FnOnce(inbox::Look) -> Post,
    ) -> Result<T, SubmitError> {
        let (told, wait) = oneshot::channel();
        let look: inbox::Look = Box::new(move |node| {
            // Whoever hung up does not want to know.
            let _ = told.send(node.map(look));
        });
        self.inbox.post(post(look))?;
        wait.await.unwrap_or(Err(SubmitError::Stopped))
    }

    /// Changes the membership; only the leader can.
    pub async fn change(
        &self,
        change: Change,
        force: bool,
    ) -> Result<Result<(), NotChanged>, SubmitError> {
        match self.put(None, |asker| Post::Change { change, force, asker }).await?.reply {
            Reply::Changed(changed) => Ok(changed),
            reply => Err(trouble(&reply)),
        }
    }

    /// Asks for another leader.
    pub fn transfer(&self, to: NodeId) {
        self.inbox.post_always(Post::Input(Input::Transfer(to)));
    }

    /// Asks for a snapshot now.
    pub fn take_snapshot(&self) {
        self.inbox.post_always(Post::Input(Input::TakeSnapshot));
    }

    /// Ends the node.
    pub fn stop(&self) {
        self.inbox.post_always(Post::Stop(End::Asked));
    }
}
