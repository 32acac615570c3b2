//! Znodes: what the ZooKeeper door reads and writes.
//!
//! Some of them represent tickets: a sequential znode with a known recipe's marker in its name is a
//! place in the line of the lock that its directory represents (`recipes`). While there is one,
//! tickets that other doors have in that line have a znode there too (`tickets`). So both see the
//! same line, in the same order. The tickets belong to the lines; this store keeps the znodes.
//!
//! - `plan`: what each change amounts to, or why nothing is changed; `write`: makes the changes
//! - `nodes`: adds and removes znodes
//! - `acl`: access control
//! - `recipes`: which names are places in a line; `tickets`: keeps znodes and lines in step
//! - `sessions`: attachments, and the removal of ephemeral znodes
//! - `time`: containers, and znodes with a TTL
//! - `questions`: znodes as a door reads them

mod acl;
mod invariants;
mod nodes;
mod plan;
mod questions;
mod recipes;
mod sessions;
mod tickets;
mod time;
mod write;

pub use acl::{is_allowed, shown_acl};
pub(crate) use nodes::Node;
pub use questions::NodeView;

use crate::containers::{Index, Slab, Slot};
use crate::ids::{SessionId, Token};
use crate::lines::StoreAccess;
use crate::text::LockName;
use crate::weight::Weight;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tickets::Directory;

/// The znodes that ZooKeeper itself has: they always exist, and can't be deleted.
pub(crate) const BUILT_IN: [&str; 4] = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// All znodes.
#[derive(Debug)]
pub(crate) struct Tree {
    data: Data,
    /// Indexes of the data; rebuilt from it.
    index: Indexes,
}

/// What is replicated. Cloning it is cheap, and a clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    pub(crate) nodes: Slab<Node>,
    /// The number of the last attachment, of sessions that have been attached again.
    pub(crate) attachments: BTreeMap<SessionId, u64>,
}

#[derive(Debug)]
struct Indexes {
    paths: Index<Node>,
    /// The names of each znode's children.
    children: BTreeMap<Slot, BTreeSet<Arc<str>>>,
    /// Ephemeral znodes of each session in order of creation, those without tickets first.
    ephemerals: BTreeSet<(SessionId, bool, u64, Arc<str>)>,
    /// How many ephemeral znodes each session has.
    ephemerals_len: BTreeMap<SessionId, usize>,
    /// Ended sessions that still have ephemeral znodes.
    dying: BTreeSet<SessionId>,
    /// When containers and znodes with a TTL expire.
    due: BTreeSet<(u64, Arc<str>)>,
    /// Directories that currently represent locks.
    directories: BTreeMap<LockName, Directory>,
    /// The znodes of each ticket.
    tickets: BTreeMap<Token, Vec<Arc<str>>>,
    /// Readers' znodes without a ticket of their own: the directory, the number, the path.
    joined: BTreeSet<(LockName, String, Arc<str>)>,
    /// Znodes of tickets that died, during the lock-delay.
    delayed: BTreeSet<Arc<str>>,
}

impl Data {
    /// The initial tree, as in ZooKeeper.
    pub(crate) fn new() -> Self {
        let mut nodes = Slab::default();
        for path in BUILT_IN {
            nodes.insert(Node::built_in(path));
        }
        Self { nodes, attachments: BTreeMap::new() }
    }

    fn weigh(&self) -> Weight {
        let nodes = self.nodes.iter().map(|(_, node)| node.weight());
        nodes.fold(Weight::NONE, Weight::and)
    }

    /// How many znodes there are, apart from the built-in ones.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len().saturating_sub(BUILT_IN.len())
    }
}

impl Tree {
    pub(crate) fn new(hash_key: u64) -> Self {
        Self::of(Data::new(), hash_key)
    }

    /// Loads the znodes of a snapshot; `lines` are those of the same snapshot.
    pub(crate) fn load(data: Data, hash_key: u64, lines: &mut impl StoreAccess) -> Self {
        lines.weigh(Weight::NONE, data.weigh());
        let mut tree = Self::of(data, hash_key);
        tree.find_dying(lines);
        tree
    }

    fn of(data: Data, hash_key: u64) -> Self {
        let index = Indexes::of(&data, hash_key);
        Self { data, index }
    }

    /// What a snapshot contains.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// The weight of everything here, counted again.
    pub(crate) fn weigh_all(&self) -> Weight {
        self.data.weigh()
    }

    /// How many znodes there are, apart from the built-in ones.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }
}

impl Indexes {
    fn of(data: &Data, hash_key: u64) -> Self {
        let paths = Index::of(&data.nodes, hash_key);
        let mut index = Self {
            paths,
            children: BTreeMap::new(),
            ephemerals: BTreeSet::new(),
            ephemerals_len: BTreeMap::new(),
            dying: BTreeSet::new(),
            due: BTreeSet::new(),
            directories: BTreeMap::new(),
            tickets: BTreeMap::new(),
            joined: BTreeSet::new(),
            delayed: BTreeSet::new(),
        };
        for (_, node) in data.nodes.iter() {
            index.add_child(data, node);
        }
        for (slot, node) in data.nodes.iter() {
            index.add_rest(slot, node);
        }
        index
    }
}
