//! What this node remembers about the other nodes across its own restarts, in one small file: each
//! one's data folder, its latest start, and where it is reached.
//!
//! The replicated membership includes the folders too, but a node that was down does not know yet
//! what is in the log. So the first members of a cluster tell each other before anything else. None
//! of them votes before each of the others has durably recorded its folder: from then on, any of
//! them refuses a node that comes back under its id with another folder.

use super::handshake::{Contact, Introduction, Run};
use holdfast_node::NodeId;
use holdfast_storage::{self as storage, Fault, FileKind, RealDisk, WriteError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

const FILE: &str = "peers";
const KIND: FileKind = FileKind { magic: *b"HOLDFPRS", version: 1 };

/// A cheap handle to the file described in the module head.
#[derive(Clone)]
pub(crate) struct KnownPeers(Arc<Inner>);

struct Inner {
    disk: RealDisk,
    /// Held while the file is written. `content` isn't: the loop must not wait for a disk.
    writing: Mutex<()>,
    content: Mutex<Content>,
    /// Whether every first member has recorded this node's folder.
    begun: watch::Sender<bool>,
}

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// First members that have not recorded this node's folder yet. Empty once all have, and at a
    /// node that joined.
    awaited: BTreeSet<NodeId>,
    peers: BTreeMap<NodeId, KnownPeer>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownPeer {
    /// Identifies its data folder; `None` if this node has not recorded it.
    birth: Option<u64>,
    /// Its latest start.
    pub(super) run: Option<Run>,
    /// Where it was last reached.
    pub(super) contact: Contact,
}

impl KnownPeers {
    /// Writes the file of a first member, which knows nothing yet and awaits all others.
    pub(crate) fn begin(
        disk: &RealDisk,
        others: impl Iterator<Item = NodeId>,
    ) -> Result<(), WriteError> {
        let content = Content { awaited: others.collect(), peers: BTreeMap::new() };
        content.store(disk)
    }

    /// Reads the file. If it is missing, the node joined, or an older version ran here: nobody is
    /// awaited.
    pub(crate) fn load(disk: &RealDisk) -> Result<Self, Fault> {
        let damaged = || Fault::Damaged {
            what: "its content is invalid".to_owned(),
            file: FILE.to_owned(),
            offset: None,
        };
        let content: Content = match storage::read_file(disk, FILE, KIND)? {
            Some((_, bytes)) => postcard::from_bytes(&bytes).map_err(|_| damaged())?,
            None => Content::default(),
        };
        let (begun, _) = watch::channel(content.awaited.is_empty());
        let (disk, writing) = (disk.clone(), Mutex::new(()));
        let inner = Inner { disk, writing, content: Mutex::new(content), begun };
        Ok(Self(Arc::new(inner)))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.0.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First members that have not recorded this node's folder yet.
    pub(super) fn awaited(&self) -> Vec<NodeId> {
        self.content().awaited.iter().copied().collect()
    }

    /// Resolves when all first members have recorded this node's folder.
    pub(super) async fn begun(&self) {
        let mut begun = self.0.begun.subscribe();
        // The sender lives as long as `self`.
        let _ = begun.wait_for(|begun| *begun).await;
    }

    pub(super) fn all(&self) -> BTreeMap<NodeId, KnownPeer> {
        self.content().peers.clone()
    }

    /// Whether another folder was recorded for this node.
    pub(super) fn had_another_folder(&self, node: NodeId, birth: u64) -> bool {
        let content = self.content();
        let known = content.peers.get(&node).and_then(|peer| peer.birth);
        known.is_some_and(|known| known != birth)
    }

    /// Whether exactly this folder was recorded for this node.
    pub(super) fn has_noted(&self, node: NodeId, birth: u64) -> bool {
        self.content().peers.get(&node).and_then(|peer| peer.birth) == Some(birth)
    }

    /// Whether every first member has recorded this node's folder.
    pub(crate) fn has_begun(&self) -> bool {
        self.content().awaited.is_empty()
    }

    /// Durably records a node's folder, once and for all. Returns false if another one was
    /// recorded.
    pub(super) async fn note_birth(&self, node: NodeId, birth: u64) -> Result<bool, String> {
        self.change(move |content| {
            let peer = content.peers.entry(node).or_default();
            *peer.birth.get_or_insert(birth) == birth
        })
        .await
    }

    /// Records that a first member has recorded this node's folder.
    pub(super) async fn noted_by(&self, node: NodeId) -> Result<(), String> {
        self.change(move |content| content.awaited.remove(&node)).await?;
        let begun = self.content().awaited.is_empty();
        self.0.begun.send_if_modified(|before| !std::mem::replace(before, begun) && begun);
        Ok(())
    }

    /// Records which run of a node was last let in, and where it is.
    pub(super) async fn note_run(&self, who: &Introduction) -> Result<(), String> {
        let (node, run, contact) = (who.node, who.run, who.contact.clone());
        self.change(move |content| {
            let peer = content.peers.entry(node).or_default();
            (peer.run, peer.contact) = (run.or(peer.run), contact);
        })
        .await
    }

    /// Forgets removed nodes; the file is updated with a later change.
    pub(super) fn forget(&self, removed: &[NodeId]) {
        let mut content = self.content();
        content.peers.retain(|id, _| !removed.contains(id));
    }

    /// Changes the content, and returns when the change is on disk.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Content) -> T + Send + 'static,
    ) -> Result<T, String> {
        let peers = self.clone();
        let changed = spawn_blocking(move || {
            let _writing = peers.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let before = peers.content().clone();
            let mut changed = before.clone();
            let result = change(&mut changed);
            if changed != before {
                changed.store(&peers.0.disk).map_err(|error| error.to_string())?;
                *peers.content() = changed;
            }
            Ok(result)
        });
        let changed = changed.await.unwrap_or_else(|_| Err("its thread is gone".to_owned()));
        changed.map_err(|why| format!("can't note what is known of the other nodes: {why}"))
    }
}

impl Content {
    fn store(&self, disk: &RealDisk) -> Result<(), WriteError> {
        let bytes = postcard::to_allocvec(self);
        let bytes = bytes.map_err(|error| WriteError::Misuse(error.to_string()))?;
        storage::write_file(disk, FILE, KIND, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &tempfile::TempDir) -> KnownPeers {
        KnownPeers::load(&RealDisk::open(folder.path()).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn known_peers_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        KnownPeers::begin(&disk, [NodeId(2), NodeId(3)].into_iter()).unwrap();
        let peers = open(&folder);
        assert_eq!(peers.note_birth(NodeId(2), 7).await, Ok(true));
        assert_eq!(peers.note_birth(NodeId(2), 8).await, Ok(false));
        peers.noted_by(NodeId(2)).await.unwrap();
        let peers = open(&folder);
        assert_eq!(peers.awaited(), [NodeId(3)]);
        assert!(peers.had_another_folder(NodeId(2), 8) && !peers.had_another_folder(NodeId(2), 7));
        let contact = Contact { peer: "127.0.0.1:1".into(), http: String::new() };
        let run = Some(Run { number: 4, nonce: 5 });
        let who = Introduction {
            node: NodeId(3),
            birth: 9,
            contact: contact.clone(),
            run,
            founding: None,
        };
        peers.note_run(&who).await.unwrap();
        peers.noted_by(NodeId(3)).await.unwrap();
        let peers = open(&folder);
        peers.begun().await;
        let known = peers.all().get(&NodeId(3)).cloned().unwrap();
        assert_eq!(known, KnownPeer { birth: None, run, contact });
    }
}
