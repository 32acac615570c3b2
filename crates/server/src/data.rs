//! The data folder of one node: its identity, the cluster key, the log and the snapshots.
//!
//! The identity is written last on the first start: a folder without one has never sent anything to
//! anyone, and starts from scratch. From then on every file must be there.

use crate::key::ClusterKey;
use crate::peers::{Contact, Credentials, KnownPeers, MemberRequest, Run, join};
use crate::random;
use crate::restoring;
use crate::site::{LastStart, Site, Stamp, shared_file};
use crate::tls::Tls;
use holdfast_core::{Limits, Restored};
use holdfast_node::{Boot, Cluster, Loaded, NodeDisk, NodeId, Position};
use holdfast_storage::{self as storage, Fault, FileKind, Identity, Options, RealDisk, WriteError};
use std::fs;
use std::path::{Path, PathBuf};

/// The key's file name in the data folder, unless another file is configured.
pub(crate) const KEY_FILE: &str = "cluster.key";

/// Locked by the storage while a process uses the folder.
pub(crate) const LOCK_FILE: &str = "lock";

/// The node's identity; written by the storage.
pub(crate) const IDENTITY_FILE: &str = "identity";

/// The process id, for people.
pub(crate) const PID_FILE: &str = "pid";

/// Exists while a new member waits for its vote; lists the old members it replaces.
const JOINING_FILE: &str = "joining";
const JOINING: FileKind = FileKind { magic: *b"HOLDFJON", version: 1 };

/// Exists once this node must never run again under its id; holds the reason.
const LOST_FILE: &str = "lost";
const LOST: FileKind = FileKind { magic: *b"HOLDFLST", version: 1 };

/// Where the files of a damaged node are kept for inspection; a number is appended.
const SET_ASIDE: &str = "damaged";

/// What to do with an empty folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// Start a new cluster with this node alone.
    Alone,
    /// Start a new cluster as one of its first members; all of them get the same list.
    Member {
        /// Which of them this node is.
        node: NodeId,
        /// All of them, with their peer addresses.
        members: Vec<(NodeId, String)>,
    },
    /// Join a running cluster as a new member.
    Join {
        /// Peer addresses of current members.
        addresses: Vec<String>,
    },
}

/// Where a node's data is, and how to start if there is none.
#[derive(Debug, Clone)]
pub struct DataDir {
    /// The folder.
    pub folder: PathBuf,
    /// The cluster key file; `None` means the one in the folder.
    pub key: Option<PathBuf>,
    /// What to do if the folder is empty.
    pub first: First,
    /// The addresses at which this node is reached.
    pub contact: Contact,
    /// The certificates that it connects to other nodes with; `None` means no TLS.
    pub tls: Option<Tls>,
}

/// An opened folder.
pub(crate) struct Opened {
    pub(crate) disk: RealDisk,
    pub(crate) credentials: Credentials,
    pub(crate) node: NodeId,
    /// Which start of the node this is.
    pub(crate) run: Run,
    pub(crate) files: NodeDisk<RealDisk>,
    pub(crate) boot: Boot,
    pub(crate) peers: KnownPeers,
}

impl DataDir {
    /// Opens the node in the folder, or starts a new one if it is empty.
    pub(crate) async fn open(&self) -> Result<Opened, String> {
        let disk = claim(&self.folder)?;
        let identity = Identity::load(&disk).map_err(|fault| self.explain(&fault))?;
        match identity {
            Some(identity) => self.resume(disk, identity),
            None => self.begin(disk).await,
        }
    }

    fn credentials(&self, key: &ClusterKey) -> Credentials {
        Credentials { key: *key, tls: self.tls.clone() }
    }

    fn key_path(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| self.folder.join(KEY_FILE))
    }

    fn resume(&self, disk: RealDisk, identity: Identity) -> Result<Opened, String> {
        let key = ClusterKey::read(&self.key_path())?;
        if key.cluster != identity.cluster {
            return Err(format!(
                "the key {} is that of cluster {:032x}, and the data folder {} belongs to cluster \
                 {:032x}: use the key or the folder of the other",
                self.key_path().display(),
                key.cluster,
                self.folder.display(),
                identity.cluster
            ));
        }
        match load_lost(&disk).map_err(|fault| self.explain(&fault))? {
            Some((why, true)) => return Err(format!("{why}\n{}", self.recovery_advice())),
            Some((why, false)) => return Err(why),
            None => {}
        }
        let node = NodeId(identity.node);
        must_not_share_files(&disk, node)?;
        let last = LastStart::load(&disk).map_err(|fault| self.explain(&fault))?;
        let last_site = last.unwrap_or_default().site;
        let site = Site::of(&self.folder);
        if let Some(how) = site.moved_from(&last_site) {
            return Err(self.explain_move(node, how));
        }
        if let Some(how) = rolled_back(&disk, &last).map_err(|fault| self.explain(&fault))? {
            return Err(format!("{}: {how}.\n{}", self.folder.display(), self.recovery_advice()));
        }
        let (files, boot) = self.open_files(&disk, true).map_err(|fault| self.explain(&fault))?;
        let stamp = Stamp::load(&disk).map_err(|fault| self.explain(&fault))?;
        if let Some(how) = stamp.and_then(|stamp| stamp.lacks(&boot)) {
            return Err(format!("{}: {how}.\n{}", self.folder.display(), self.recovery_advice()));
        }
        let peers = KnownPeers::load(&disk).map_err(|fault| self.explain(&fault))?;
        self.warn_of_other_members(node, &boot.loaded.cluster, peers.has_begun());
        let number = last.map_or(0, |last| last.number);
        let run = note_start(&disk, number, site.or(last_site), boot.committed())?;
        let credentials = self.credentials(&key);
        Ok(Opened { disk, credentials, node, run, files, boot, peers })
    }

    /// Warns that `--node` and `--members` are ignored: they only count on a node's first start.
    fn warn_of_other_members(&self, node: NodeId, cluster: &Cluster, begun: bool) {
        let First::Member { node: given, members } = &self.first else { return };
        let has = |id: &NodeId| cluster.members().contains_key(id);
        let same =
            members.len() == cluster.members().len() && members.iter().all(|(id, _)| has(id));
        if same && *given == node {
            return;
        }
        let folder = self.folder.display();
        if begun {
            tracing::warn!(
                "--node and --members are ignored: {folder} is the folder of node {node}, and its \
                 cluster has begun. `holdfast status` shows its members; a new node enters it with \
                 --join, in an empty folder"
            );
        } else {
            tracing::warn!(
                "--node and --members are ignored: node {node} was first started in {folder} with \
                 other ones. To begin with these, delete the folder"
            );
        }
    }

    async fn begin(&self, disk: RealDisk) -> Result<Opened, String> {
        self.must_be_new(&disk)?;
        let text = |error: WriteError| error.to_string();
        let (key, node) = match &self.first {
            First::Alone => {
                if let Some(key) = &self.key {
                    return Err(format!(
                        "{} has no node in it, and {} is the key of a cluster that exists: a node \
                         that began alone under it would grant its locks a second time.\n\
                         - If the folder should not be empty, check that the right disk is mounted \
                         and the path is right.\n\
                         - If the node's data is gone, let it join as a new member, then remove its \
                         old id: --join PEER-ADDRESS\n\
                         - To begin a new cluster, use --node ID --members ID=HOST:PORT,..., or \
                         leave out --cluster-key for a cluster of one",
                        self.folder.display(),
                        key.display()
                    ));
                }
                let key = self.key_or_new()?;
                let node = NodeId(1);
                let cluster = Cluster::begin([(node, self.contact.peer.clone())]);
                NodeDisk::begin(&disk, &cluster).map_err(text)?;
                (key, node)
            }
            First::Member { node, members } => {
                let key = ClusterKey::read(&self.key_path())?;
                let cluster = Cluster::begin(members.iter().cloned());
                NodeDisk::begin(&disk, &cluster).map_err(text)?;
                let others = members.iter().map(|(id, _)| *id).filter(|id| id != node);
                KnownPeers::begin(&disk, others).map_err(text)?;
                (key, *node)
            }
            First::Join { addresses } => {
                let key = ClusterKey::read(&self.key_path())?;
                let node = self.ask_to_join(&key, addresses).await?;
                Joining::default().store(&disk)?;
                (key, node)
            }
        };
        let (files, boot) = self.become_node(&disk, &key, node)?;
        let peers = KnownPeers::load(&disk).map_err(|fault| self.explain(&fault))?;
        let run = note_start(&disk, 0, Site::of(&self.folder), boot.committed())?;
        let credentials = self.credentials(&key);
        Ok(Opened { disk, credentials, node, run, files, boot, peers })
    }

    /// Creates the log, then writes the identity last: from then on every file must be there.
    fn become_node(
        &self,
        disk: &RealDisk,
        key: &ClusterKey,
        node: NodeId,
    ) -> Result<(NodeDisk<RealDisk>, Boot), String> {
        let opened = self.open_files(disk, false).map_err(|fault| fault.to_string())?;
        let identity = Identity { cluster: key.cluster, node: node.0 };
        identity.store(disk).map_err(|error| error.to_string())?;
        Ok(opened)
    }

    /// Fails if a node has run here before. An interrupted rejoin leaves a folder without an
    /// identity; it must not start over under its old id or key. Joining is fine, because it
    /// assigns a new id.
    fn must_be_new(&self, disk: &RealDisk) -> Result<(), String> {
        let Some(aside) = self.set_aside_before().last() else {
            // This file is written after the identity: a node ran here, and its promises are
            // unknown.
            let ran = LastStart::load(disk).map_or(true, |last| last.is_some());
            let shown = self.folder.display();
            let lost = || format!("a node ran in {shown}, and its file {IDENTITY_FILE} is missing");
            return if ran {
                Err(format!("{}.\n{}", lost(), self.recovery_advice()))
            } else {
                Ok(())
            };
        };
        if matches!(self.first, First::Join { .. }) {
            return Ok(());
        }
        Err(format!(
            "the node of this folder was damaged, its files are in {}, and it has not rejoined: a \
             rejoin was interrupted. Run it again:\n    {}",
            aside.display(),
            self.rejoin_command()
        ))
    }

    /// The existing key, or a new one.
    fn key_or_new(&self) -> Result<ClusterKey, String> {
        let path = self.key_path();
        if path.exists() {
            return ClusterKey::read(&path);
        }
        let key = ClusterKey::draw();
        key.write_new(&path)?;
        Ok(key)
    }

    fn open_files(
        &self,
        disk: &RealDisk,
        must_exist: bool,
    ) -> Result<(NodeDisk<RealDisk>, Boot), Fault> {
        let options = Options { salt: random::number(), must_exist, ..Options::default() };
        NodeDisk::open(disk, options, Limits::DEFAULT, random::number())
    }

    /// Asks to be added as a member without a vote; [`Joining`] records what is left to do.
    async fn ask_to_join(&self, key: &ClusterKey, addresses: &[String]) -> Result<NodeId, String> {
        let question = MemberRequest::Add { address: self.contact.peer.clone() };
        join(addresses, &self.credentials(key), question).await
    }

    /// Turns a folder marked by [`restoring::begin`] into the only node of a new cluster, which
    /// starts from `loaded`.
    pub(crate) fn begin_restored(
        &self,
        disk: &RealDisk,
        loaded: Loaded,
        unix_s: u64,
    ) -> Result<Restored, String> {
        let key = ClusterKey::draw();
        key.write_new(&self.key_path())?;
        let node = NodeId(1);
        let first = (node, self.contact.peer.clone());
        let restored = NodeDisk::begin_restored(disk, loaded, first, unix_s)?;
        self.become_node(disk, &key, node)?;
        restoring::finish(disk)?;
        Ok(restored)
    }

    /// Allows the node of a moved folder to run in its new place; returns its id.
    pub fn accept_move(folder: &Path) -> Result<NodeId, String> {
        let shown = folder.display();
        if !folder.is_dir() {
            return Err(format!("there is no folder {shown}"));
        }
        let disk = claim(folder)?;
        let identity = Identity::load(&disk).map_err(|fault| fault.to_string())?;
        let identity = identity.ok_or_else(|| format!("{shown} is no node's data folder"))?;
        must_not_share_files(&disk, NodeId(identity.node))?;
        let last = LastStart::load(&disk).map_err(|fault| fault.to_string())?;
        let site = Site::of(folder);
        if site.moved_from(&last.unwrap_or_default().site).is_none() {
            let how = rolled_back(&disk, &last).map_err(|fault| fault.to_string())?;
            return Err(how.map_or_else(
                || format!("{shown} was not moved, as far as can be known: just start it"),
                |how| format!("{shown} was not moved: {how}. `holdfast serve` says what to do"),
            ));
        }
        let here = LastStart { number: last.map_or(0, |last| last.number), site };
        here.store(&disk).map_err(|error| error.to_string())?;
        Stamp::write(&disk, here.number, None)?;
        Ok(NodeId(identity.node))
    }

    /// Comes back under a new id after damage: the old files are set aside and never read again.
    pub async fn rejoin(
        &self,
        addresses: &[String],
        replaces: Option<NodeId>,
    ) -> Result<Rejoined, String> {
        let disk = claim(&self.folder)?;
        // The identity may be what is damaged, or an interrupted rejoin has already set it aside.
        let (old, mut joining) = match Identity::load(&disk) {
            Ok(None) => self.set_aside_identity(),
            loaded => (loaded.ok().flatten(), Joining::load(&disk).ok().flatten()),
        };
        let old = old.map(|identity| NodeId(identity.node));
        let replaces = replaces.or(old).ok_or_else(|| {
            format!(
                "{} does not say which node it was: add --replaces ID with the node's old id, so \
                 that it can be removed (`holdfast status` lists the members)",
                self.folder.display()
            )
        })?;
        let key = ClusterKey::read(&self.key_path())?;
        // First, because it may fail: then the folder is left as it was.
        let node = self.ask_to_join(&key, addresses).await?;
        let joining = joining.get_or_insert_default();
        joining.replaces.push(replaces);
        // A member that never connected is let in again under the same id.
        joining.replaces.retain(|old| *old != node);
        let aside = self.set_aside()?;
        joining.store(&disk)?;
        self.become_node(&disk, &key, node)?;
        Ok(Rejoined { node, replaces, aside })
    }

    /// The identity that an interrupted rejoin set aside, and the nodes it was to replace.
    fn set_aside_identity(&self) -> (Option<Identity>, Option<Joining>) {
        let aside = self.set_aside_before().last();
        let Some(disk) = aside.and_then(|path| RealDisk::open(&path).ok()) else {
            return (None, None);
        };
        (Identity::load(&disk).ok().flatten(), Joining::load(&disk).ok().flatten())
    }

    /// The folders with the files of earlier rejoins, oldest first.
    fn set_aside_before(&self) -> impl Iterator<Item = PathBuf> {
        let numbered = (1..).map(|number| self.folder.join(format!("{SET_ASIDE}-{number}")));
        numbered.take_while(|path| path.exists())
    }

    fn set_aside(&self) -> Result<PathBuf, String> {
        let number = self.set_aside_before().count() + 1;
        let aside = self.folder.join(format!("{SET_ASIDE}-{number}"));
        let key = self.key_path();
        let moved = move_files(&self.folder, &aside, |name| {
            name != LOCK_FILE && name != PID_FILE && self.folder.join(name) != key
        });
        moved.map_err(|error| format!("can't set the old files aside: {error}"))?;
        Ok(aside)
    }

    /// The error for a folder that can't be used, with what to do about it.
    fn explain(&self, fault: &Fault) -> String {
        if fault.is_damage() {
            format!("{fault}\n{}", self.recovery_advice())
        } else {
            fault.to_string()
        }
    }

    fn explain_move(&self, node: NodeId, how: &str) -> String {
        let folder = self.folder.display();
        format!(
            "{folder} is not where node {node} last ran: {how}.\n\
             Two nodes with the same id, or one with an old copy of its folder, could grant a lock \
             twice.\n\
             - If you moved the folder while the node was stopped, and it will never be started from \
             the old place again, say so and start it again:\n    \
             holdfast accept-move --data-dir {folder}\n\
             - If node {node} runs, or ran since the copy was made, this folder is of no use. Start a \
             new node in an empty folder:\n    \
             holdfast serve --data-dir NEW-FOLDER --join PEER-ADDRESS"
        )
    }

    fn rejoin_command(&self) -> String {
        let (folder, key) = (self.folder.display(), self.key.as_ref());
        let key = key.map_or_else(String::new, |key| format!(" --cluster-key {}", key.display()));
        format!("holdfast rejoin --data-dir {folder}{key} --join PEER-ADDRESS")
    }

    fn recovery_advice(&self) -> String {
        let folder = self.folder.display();
        let rejoin = self.rejoin_command();
        format!(
            "This node must not vote under its old id again: it may have forgotten what it \
             promised.\n\
             - If other nodes of the cluster run, let it come back as a new member (with the same \
             --listen, --advertise, --port and --password-file as `serve`):\n    \
             {rejoin}\n\
             - If it was the only node, restore a backup into another folder:\n    \
             holdfast restore --from BACKUP --data-dir NEW-FOLDER\n  \
             or accept that what can't be read is lost (tokens go on above all earlier ones):\n    \
             holdfast restore --accept-loss {folder} --data-dir NEW-FOLDER"
        )
    }
}

/// The result of a rejoin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejoined {
    /// The node's new id.
    pub node: NodeId,
    /// The old id; it is removed once the new one has its vote.
    pub replaces: NodeId,
    /// Where the old files are.
    pub aside: PathBuf,
}

/// Locks a folder for this process.
pub(crate) fn claim(folder: &Path) -> Result<RealDisk, String> {
    let shown = folder.display();
    let disk = RealDisk::open(folder)
        .map_err(|error| format!("can't use the data folder {shown}: {error}"))?;
    storage::claim(&disk).map_err(|fault| fault.to_string())?;
    restoring::must_be_over(folder)?;
    Ok(disk)
}

/// Refuses a folder that shares files (hard links) with another one.
fn must_not_share_files(disk: &RealDisk, node: NodeId) -> Result<(), String> {
    let folder = disk.path().display();
    let shared = shared_file(disk)
        .map_err(|error| format!("can't look at the files in the data folder {folder}: {error}"))?;
    let Some((name, links)) = shared else { return Ok(()) };
    Err(format!(
        "{folder} shares files with another folder: {name} has {links} names (hard links, as \
         `cp -al` makes them). One of the folders is an old copy: a node that ran in it would have \
         forgotten what node {node} promised since, and could grant a lock twice.\n\
         - If node {node} last ran in this folder, delete the other one (find it with: find \
         DIRECTORY -samefile {folder}/{name}), and start the node again.\n\
         - If this is the copy, delete it, and start the node in the folder where it last ran. If \
         that one is gone, this folder is of no use. Start a new node in an empty folder:\n    \
         holdfast serve --data-dir NEW-FOLDER --join PEER-ADDRESS"
    ))
}

/// Returns the reason if an older copy was put back over the folder.
fn rolled_back(disk: &RealDisk, last: &Option<LastStart>) -> Result<Option<&'static str>, Fault> {
    let stamp = Stamp::load(disk)?;
    Ok(stamp.and_then(|stamp| stamp.replaced(disk, last.as_ref().map(|last| last.number))))
}

/// Counts a start before any other node can see it. `at` is the last entry known to be committed.
fn note_start(disk: &RealDisk, number: u64, site: Site, at: Position) -> Result<Run, String> {
    let start = LastStart { number: number.saturating_add(1), site };
    start.store(disk).map_err(|error| error.to_string())?;
    // After `LastStart`: a stamp is never newer than the start it belongs to.
    Stamp::write(disk, start.number, Some(at))?;
    Ok(Run { number: start.number, nonce: random::number() })
}

/// Why the node of this folder must never run again under its id, and whether it may rejoin. `None`
/// if it may run.
pub(crate) fn load_lost(disk: &RealDisk) -> Result<Option<(String, bool)>, Fault> {
    let Some((_, content)) = storage::read_file(disk, LOST_FILE, LOST)? else { return Ok(None) };
    let (may_rejoin, why) = content.split_first().unwrap_or((&0, &[]));
    Ok(Some((String::from_utf8_lossy(why).into_owned(), *may_rejoin == 1)))
}

/// Records that the node of this folder must never run again under its id.
pub(crate) fn store_lost(disk: &RealDisk, why: &str, may_rejoin: bool) -> Result<(), String> {
    let content = [&[u8::from(may_rejoin)], why.as_bytes()].concat();
    storage::write_file(disk, LOST_FILE, LOST, &content).map_err(|error| error.to_string())
}

fn move_files(from: &Path, to: &Path, moves: impl Fn(&str) -> bool) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && name.to_str().is_some_and(&moves) {
            fs::rename(entry.path(), to.join(&name))?;
        }
    }
    fs::File::open(to)?.sync_all()?;
    fs::File::open(from)?.sync_all()
}

/// What a new member has left to do: get its vote, then remove the members it replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Joining {
    /// More than one if the node had to rejoin again before it was a full member.
    pub(crate) replaces: Vec<NodeId>,
}

impl Joining {
    pub(crate) fn load(disk: &RealDisk) -> Result<Option<Self>, String> {
        let file = storage::read_file(disk, JOINING_FILE, JOINING).map_err(|e| e.to_string())?;
        let Some((_, content)) = file else { return Ok(None) };
        let (numbers, []) = content.as_chunks::<8>() else {
            return Err(format!("{JOINING_FILE} can't be read"));
        };
        // Zero stands for "none".
        let numbers = numbers.iter().copied().map(u64::from_le_bytes).filter(|number| *number > 0);
        Ok(Some(Self { replaces: numbers.map(NodeId).collect() }))
    }

    fn store(&self, disk: &RealDisk) -> Result<(), String> {
        let numbers: Vec<u8> = self.replaces.iter().flat_map(|node| node.0.to_le_bytes()).collect();
        storage::write_file(disk, JOINING_FILE, JOINING, &numbers)
            .map_err(|error| error.to_string())
    }

    /// Deletes the record: nothing is left to do.
    pub(crate) fn done(disk: &RealDisk) -> Result<(), String> {
        fs::remove_file(disk.path().join(JOINING_FILE)).map_err(|error| error.to_string())
    }
}
