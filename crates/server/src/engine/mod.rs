//! A running node: the pure loop on a thread of its own, a disk thread, a snapshot thread.

mod asked;
mod disk;
mod driver;
mod inbox;
mod snapshots;

pub use asked::{Trouble, Turn};
pub use inbox::End;
pub(crate) use inbox::{Inbox, Post};
pub(crate) use snapshots::{Piece, Snapshots};

use crate::peers::Peers;
use asked::{Asker, Told};
use driver::{Driver, trouble};
use holdfast_core::{Answer, Command, Refusal, Request, SessionRef};
use holdfast_node::{Change, Input, Node, NodeDisk, NodeId, NotChanged, Reply};
use holdfast_storage::RealDisk;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use tokio::sync::oneshot;

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
) -> io::Result<oneshot::Receiver<End>> {
    let (jobs, jobs_taken) = mpsc::channel();
    let (tasks, tasks_taken) = mpsc::channel();
    let disk_inbox = inbox.clone();
    let disk = thread::Builder::new()
        .name("disk".into())
        .spawn(move || disk::run(files, &jobs_taken, &disk_inbox))?;
    let snapshot_inbox = inbox.clone();
    let writer = thread::Builder::new()
        .name("snapshots".into())
        .spawn(move || snapshots.run(&tasks_taken, &snapshot_inbox))?;
    let (ended, wait) = oneshot::channel();
    thread::Builder::new().name("loop".into()).spawn(move || {
        let end = Driver::new(node, inbox, jobs, tasks, peers).run();
        // The driver is gone, and with it what the others wait for: they finish what they have.
        let _ = disk.join();
        let _ = writer.join();
        let _ = ended.send(end);
    })?;
    Ok(wait)
}

impl Handle {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    /// Puts a command through the log. If the caller hangs up before the answer, the command may
    /// still take effect; the ticket of an acquire without a request id is given up then.
    pub async fn ask(
        &self,
        request: Option<Request>,
        command: Command,
    ) -> Result<Answered, Trouble> {
        let (told, wait) = oneshot::channel();
        let asker = Asker { told, sole: request.is_none() };
        self.inbox.post(Post::Ask { request, command, asker })?;
        match wait.await {
            Ok(Told { reply: Reply::Answer(answer), turn }) => Ok(Answered { answer, turn }),
            Ok(Told { reply, .. }) => Err(trouble(&reply)),
            Err(_) => Err(Trouble::Stopped),
        }
    }

    /// Tells that a session lives; whether it still does, confirmed by a majority.
    pub async fn beat(&self, session: SessionRef) -> Result<bool, Trouble> {
        let (told, wait) = oneshot::channel();
        self.inbox.post(Post::Beat { session, told })?;
        match wait.await {
            Ok(Told { reply: Reply::Beat(alive), .. }) => Ok(alive),
            Ok(Told { reply, .. }) => Err(trouble(&reply)),
            Err(_) => Err(Trouble::Stopped),
        }
    }

    /// Looks at the current state: everything that was acknowledged before is in it.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        self.look(look, Post::Read).await
    }

    /// Looks at the state as this node has it, which may be stale.
    pub async fn peek<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        self.look(look, Post::Peek).await
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
        post: impl FnOnce(inbox::Look) -> Post,
    ) -> Result<T, Trouble> {
        let (told, wait) = oneshot::channel();
        let look: inbox::Look = Box::new(move |node| {
            // Whoever hung up does not want to know.
            let _ = told.send(node.map(look));
        });
        self.inbox.post(post(look))?;
        wait.await.unwrap_or(Err(Trouble::Stopped))
    }

    /// Changes the membership; only the leader can.
    pub async fn change(&self, change: Change) -> Result<Result<(), NotChanged>, Trouble> {
        let (told, wait) = oneshot::channel();
        self.inbox.post(Post::Change { change, told })?;
        match wait.await {
            Ok(Told { reply: Reply::Changed(changed), .. }) => Ok(changed),
            Ok(Told { reply, .. }) => Err(trouble(&reply)),
            Err(_) => Err(Trouble::Stopped),
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
