//! Which process is which node: two that run under one id are noticed, and the later one is
//! refused.
//!
//! A restarted node must get in, though its old connections may look alive for a long time. So a
//! process that comes under an id that has been seen with another run is let in only if no other
//! process answers at the node's last address, and then the old run is never let in again. None of
//! this is replicated: a vote must not wait for the log. But each node remembers it across its own
//! restarts (`known.rs`).

use super::connection;
use super::handshake::{Introduction, Purpose, Run};
use super::known::KnownPeers;
use super::{NodeId, Shared};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A live node answers a handshake sooner. Shorter than the newcomer's own handshake timeout, which
/// is running meanwhile.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The last run that was let in, per node.
#[derive(Default)]
pub(super) struct Runs(Mutex<BTreeMap<NodeId, LastRun>>);

struct LastRun {
    run: Run,
    /// Its peer address.
    address: String,
    /// Dropped when another run takes its place, which ends its connections.
    alive: watch::Sender<()>,
}

/// Lets a connection notice that another run has taken its node's place.
pub(super) struct Alive(Option<watch::Receiver<()>>);

impl Alive {
    pub(super) async fn replaced(self) {
        match self.0 {
            // Nothing is ever sent: this ends when the sender is dropped.
            Some(mut alive) => while alive.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }
}

/// Why a process is not the node it claims to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Impostor {
    /// Another process answers at this address.
    AlreadyRuns(String),
    /// A later start has been seen.
    Superseded,
    /// Other processes are connecting under the same id at the same time: try again.
    NotNow,
}

impl fmt::Display for Impostor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRuns(address) => {
                write!(f, "is a copy: another node runs under its id, at {address}")
            }
            Self::Superseded => {
                f.write_str("is a copy, or an old one: a later start under its id was seen")
            }
            Self::NotNow => f.write_str("is being looked at: try again"),
        }
    }
}

impl Runs {
    /// As recorded when this node last ran.
    pub(super) fn of(known: &KnownPeers) -> Self {
        let runs = known.all().into_iter().filter_map(|(id, peer)| {
            let (run, address) = (peer.run?, peer.contact.peer);
            Some((id, LastRun { run, address, alive: watch::Sender::new(()) }))
        });
        Self(Mutex::new(runs.collect()))
    }

    /// Ends the connections of removed nodes.
    pub(super) fn forget(&self, removed: &[NodeId]) {
        self.all().retain(|id, _| !removed.contains(id));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<NodeId, LastRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is certain without asking any node; `None` if this run has not been seen before.
    fn known(&self, node: NodeId, run: Run) -> Option<Result<Alive, Impostor>> {
        let all = self.all();
        let last = all.get(&node)?;
        if last.run == run {
            return Some(Ok(Alive(Some(last.alive.subscribe()))));
        }
        (run.number <= last.run.number).then_some(Err(Impostor::Superseded))
    }

    /// Lets in a run that takes the place of `before`.
    fn enter(&self, who: &Introduction, run: Run, before: Option<Run>) -> Result<Alive, Impostor> {
        if let Some(known) = self.known(who.node, run) {
            return known;
        }
        let mut all = self.all();
        if all.get(&who.node).map(|last| last.run) != before {
            return Err(Impostor::NotNow);
        }
        let (alive, subscribed) = watch::channel(());
        all.insert(who.node, LastRun { run, address: who.contact.peer.clone(), alive });
        Ok(Alive(Some(subscribed)))
    }
}

impl Shared {
    /// Whether a process is known not to be the node it claims to be, without asking any node.
    pub(super) fn is_superseded(&self, who: &Introduction) -> bool {
        let known = who.run.and_then(|run| self.runs.known(who.node, run));
        matches!(known, Some(Err(_)))
    }

    /// Finds out whether a process is the node it claims to be. `reached_at` is the address where
    /// this node has just dialed it.
    pub(super) async fn recognise(
        &self,
        who: &Introduction,
        reached_at: Option<&str>,
    ) -> Result<Alive, Impostor> {
        // Older versions do not send their run.
        let Some(run) = who.run else { return Ok(Alive(None)) };
        if let Some(known) = self.runs.known(who.node, run) {
            return known;
        }
        let last = self.runs.all().get(&who.node).map(|last| (last.run, last.address.clone()));
        let (before, address) = last.unzip();
        let address = address.or_else(|| self.contact_of(who.node).map(|contact| contact.peer));
        if let Some(address) = address.filter(|address| reached_at != Some(address.as_str()))
            && self.who_answers(who.node, &address).await.is_some_and(|there| there != Some(run))
        {
            return Err(Impostor::AlreadyRuns(address));
        }
        // The old process may have just died, and the newcomer may have been refused elsewhere and
        // exited: only a live process takes another's place.
        if before.is_some()
            && reached_at.is_none()
            && self.who_answers(who.node, &who.contact.peer).await != Some(Some(run))
        {
            return Err(Impostor::NotNow);
        }
        let alive = self.runs.enter(who, run, before)?;
        if let Err(why) = self.known.note_run(who).await {
            // It is still known until this node restarts.
            tracing::warn!("{why}");
        }
        Ok(alive)
    }

    /// Which run of a node answers at an address: `None` if the node doesn't, `Some(None)` if it is
    /// an older version that does not say.
    async fn who_answers(&self, node: NodeId, address: &str) -> Option<Option<Run>> {
        // For a connection of this purpose the other side probes nobody, so that no two nodes wait
        // for each other.
        let dialed = connection::dial(
            address,
            &self.credentials,
            Some(&self.me),
            Some(node),
            Purpose::Members,
        );
        let (_, there) = timeout(PROBE_TIMEOUT, dialed).await.ok()?.ok()?;
        (there.node == node).then_some(there.run)
    }
}
