//! A running node: opens its folder, starts its threads and connects its peers.

use crate::data::{DataDir, Joining, Opened, store_lost};
use crate::engine::{self, Engine, Inbox, Post, Snapshots, StopReason};
use crate::metrics::Metrics;
use crate::peers::{self, Introduction, MemberRequest, Membership, Peers, Shared};
use crate::random;
use crate::site::Stamp;
use holdfast_core::{Command, Secret};
use holdfast_node::{Config, Input, LEVEL, Node, NodeId};
use holdfast_storage::RealDisk;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// A snapshot is taken after this many bytes of entries. It bounds what is replayed at startup and
/// what is kept in memory for followers that lag.
const SNAPSHOT_EVERY_BYTES: usize = 64 << 20;

/// A running node.
pub struct RunningNode {
    /// This node's member id.
    pub id: NodeId,
    /// A handle to the node's loop.
    pub engine: Engine,
    /// A handle for membership queries and changes.
    pub membership: Membership,
    pub(crate) metrics: Arc<Metrics>,
    ended: oneshot::Receiver<StopReason>,
    tasks: Vec<JoinHandle<()>>,
    /// Keeps the folder locked.
    disk: RealDisk,
    /// How many times the node has been started, this time included.
    start: u64,
}

impl RunningNode {
    /// Opens the folder and starts the node; peers connect through `listener`.
    pub async fn start(place: &DataDir, listener: TcpListener) -> Result<Self, String> {
        let Opened { disk, credentials, node: id, run, files, boot, peers: known } =
            place.open().await?;
        let config = Config {
            id,
            birth: files.birth(),
            rng_key: random::number(),
            secret: Secret(random::bytes()),
            nonce: random::number(),
            snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
            level: LEVEL,
        };
        let node = Node::new(config, boot)?;
        let inbox = Arc::new(Inbox::new());
        if is_only_voter(&node) {
            // Nobody else could lead: no need to wait for the election timeout.
            inbox.post_always(Post::Node(Input::Campaign));
        }
        let snapshots = Arc::new(Snapshots::new(disk.clone()));
        let (birth, contact) = (files.birth(), place.contact.clone());
        let me = Introduction { node: id, birth, contact, run: Some(run), founding: None };
        let shared =
            Arc::new(Shared::new(credentials, me, inbox.clone(), snapshots.clone(), known));
        // Before the first peer can connect.
        shared.learn(node.cluster());
        let peers = Peers::new(shared.clone(), runtime::Handle::current());
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(inbox.clone());
        let membership = Membership::new(engine.clone(), shared.clone());
        let ended = engine::start(node, files, snapshots, inbox, peers, metrics.clone())
            .map_err(|error| format!("can't start a thread: {error}"))?;
        let mut tasks = vec![
            tokio::spawn(peers::found(shared.clone())),
            tokio::spawn(peers::listen(listener, shared, membership.clone())),
            tokio::spawn(keep_stamp(engine.clone(), disk.clone(), run.number)),
        ];
        tasks.extend(place.tls.clone().map(|tls| tokio::spawn(tls.keep_current())));
        if let Some(joining) = Joining::load(&disk)? {
            tasks.push(tokio::spawn(settle_in(id, joining, membership.clone(), disk.clone())));
        }
        let start = run.number;
        Ok(Self { id, engine, membership, metrics, ended, tasks, disk, start })
    }

    /// Resolves when the node has stopped, with the reason. Notes a permanent loss in the folder.
    pub async fn ended(&mut self) -> StopReason {
        let end = (&mut self.ended).await;
        let end = end.unwrap_or_else(|_| StopReason::Fault("the loop is gone".to_owned()));
        if let StopReason::Lost { why, may_rejoin } = &end
            && let Err(error) = store_lost(&self.disk, why, *may_rejoin)
        {
            tracing::error!("can't note that this node must not run again: {error}");
        }
        end
    }

    /// Closes the session that owns the waits of this node's connections: the waiting clients are
    /// notified, and are not served after their connection is gone.
    async fn end_waits(&self) {
        let ended = async {
            let session = self.engine.peek(Node::own_session).await.ok()??;
            self.engine.submit(None, Command::CloseSession(session)).await.ok()
        };
        let _ = timeout(END_WAITS_WITHIN, ended).await;
    }

    /// Ends the waits of this node's connections, hands over leadership, closes the log cleanly,
    /// and stops.
    pub async fn stop(mut self) -> StopReason {
        self.end_waits().await;
        self.membership.hand_over().await;
        let at = self.engine.peek(Node::applied_durably).await.ok().flatten();
        self.engine.stop();
        let end = self.ended().await;
        for task in self.tasks {
            task.abort();
            // The task keeps the folder locked until it is gone.
            let _ = task.await;
        }
        if end == StopReason::Asked
            && let Err(why) = Stamp::write(&self.disk, self.start, at)
        {
            tracing::warn!("{why}");
        }
        end
    }
}

fn is_only_voter(node: &Node) -> bool {
    let mut voters = node.cluster().members().iter().filter(|(_, member)| member.votes);
    voters.next().is_some_and(|(id, _)| *id == node.id()) && voters.next().is_none()
}

/// How often a working node rewrites its stamp: a copy of the folder from before the last stamp is
/// recognised if it is put back.
const STAMP_EVERY: Duration = Duration::from_secs(5);

async fn keep_stamp(engine: Engine, disk: RealDisk, start: u64) {
    let mut stamped_at = None;
    loop {
        sleep(STAMP_EVERY).await;
        let peeked = engine.peek(|node| (node.term(), node.applied_durably())).await;
        let Ok(now) = peeked else { return };
        if stamped_at.replace(now) == Some(now) {
            continue;
        }
        let disk = disk.clone();
        let stamped = spawn_blocking(move || Stamp::write(&disk, start, now.1)).await;
        if let Ok(Err(why)) = stamped {
            // The disk is full or failing, which the disk thread reports.
            tracing::debug!("{why}");
        }
    }
}

/// How long a stopping node waits for its session to be closed. If that fails, the session expires.
const END_WAITS_WITHIN: Duration = Duration::from_secs(2);

/// Gives a new member its vote once it has caught up, then removes the members it replaces. Retries
/// until both are done.
async fn settle_in(id: NodeId, joining: Joining, membership: Membership, disk: RealDisk) {
    let mut complaint = String::new();
    while let Err(why) = settle_once(id, &joining, &membership).await {
        if why != complaint {
            tracing::info!("not yet a full member: {why}");
            complaint = why;
        }
        sleep(Duration::from_millis(500)).await;
    }
    match Joining::done(&disk) {
        Ok(()) => tracing::info!("node {id} is a full member"),
        Err(why) => tracing::warn!("can't note that node {id} is a full member: {why}"),
    }
}

async fn settle_once(id: NodeId, joining: &Joining, membership: &Membership) -> Result<(), String> {
    if membership.votes(id).await? != Some(true) {
        membership.ask(MemberRequest::Promote(id)).await.map_err(|not_done| not_done.why)?;
    }
    for old in &joining.replaces {
        if membership.votes(*old).await?.is_some() {
            membership.ask(MemberRequest::Remove(*old)).await.map_err(|not_done| not_done.why)?;
        }
    }
    Ok(())
}
