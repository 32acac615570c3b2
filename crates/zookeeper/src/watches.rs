//! Who watches which znodes, on one node.
//!
//! A watch is set in the same step as the read that asks for it, and keeps the zxid of the state that
//! was read: an event of something older, which is still on its way to the watchers, is not for it.

use crate::clients::ClientId;
use crate::codec::{AddWatchMode, WatchEvent, WatchEventType, WatcherType};
use holdfast_core::{NodeEvent, parent_of};
use std::collections::{BTreeMap, BTreeSet};

/// Watches of one client. Recipes have a few, caches one for each znode.
const WATCHES_PER_CLIENT_MAX: usize = 65_536;

/// Bytes of the paths that one client watches, so that a few clients can't use up the room of all.
const PATHS_BYTES_PER_CLIENT_MAX: usize = 16 << 20;

/// Watches of all clients of one node. At about 150 bytes each with their paths, all stay near 300 MB.
const WATCHES_MAX: usize = 2_000_000;

/// Bytes of their paths. Each is kept twice.
const PATHS_BYTES_MAX: usize = 256 << 20;

/// What a watch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One change of a znode itself.
    Data,
    /// One change of its children.
    Children,
    /// All changes of a znode itself.
    PersistentData,
    /// All changes of its children.
    PersistentChildren,
    /// All changes of a znode and of all below it.
    RecursiveData,
    /// Of these, their end only.
    RecursiveChildren,
}

impl Kind {
    /// A watch that stays has two halves, as in ZooKeeper: clients can remove one of them.
    pub(crate) fn halves(mode: AddWatchMode) -> [Self; 2] {
        match mode {
            AddWatchMode::Persistent => [Self::PersistentData, Self::PersistentChildren],
            AddWatchMode::PersistentRecursive => [Self::RecursiveData, Self::RecursiveChildren],
        }
    }

    fn is_recursive(self) -> bool {
        matches!(self, Self::RecursiveData | Self::RecursiveChildren)
    }
}

/// The watches of one client.
#[derive(Debug, Default)]
struct OwnWatches {
    watches: BTreeSet<(String, Kind)>,
    paths_bytes: usize,
}

/// All watches of one node.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// By path, what they are about and whose they are: the zxid that each was set at.
    by_path: BTreeMap<String, BTreeMap<(Kind, ClientId), u64>>,
    by_client: BTreeMap<ClientId, OwnWatches>,
    len: usize,
    paths_bytes: usize,
    recursive: usize,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a client may set one more.
    pub(crate) fn has_room(&self, client: ClientId) -> bool {
        let room = self.len < WATCHES_MAX && self.paths_bytes < PATHS_BYTES_MAX;
        room && self.by_client.get(&client).is_none_or(|own| {
            own.watches.len() < WATCHES_PER_CLIENT_MAX
                && own.paths_bytes < PATHS_BYTES_PER_CLIENT_MAX
        })
    }

    /// Sets a watch; one that is there already stays as it is.
    pub(crate) fn set(&mut self, client: ClientId, path: &str, kind: Kind, zxid: u64) {
        let own = self.by_client.entry(client).or_default();
        if own.watches.insert((path.to_owned(), kind)) {
            own.paths_bytes += path.len();
            self.by_path.entry(path.to_owned()).or_default().insert((kind, client), zxid);
            self.len += 1;
            self.paths_bytes += path.len();
            self.recursive += usize::from(kind.is_recursive());
        }
    }

    fn unset(&mut self, client: ClientId, path: &str, kind: Kind) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        if watchers.remove(&(kind, client)).is_none() {
            return false;
        }
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        if let Some(own) = self.by_client.get_mut(&client) {
            if own.watches.remove(&(path.to_owned(), kind)) {
                own.paths_bytes -= path.len();
            }
            if own.watches.is_empty() {
                self.by_client.remove(&client);
            }
        }
        self.len -= 1;
        self.paths_bytes -= path.len();
        self.recursive -= usize::from(kind.is_recursive());
        true
    }

    /// Whether a client has such a watch of a path; forgets them if `remove`.
    pub(crate) fn find(
        &mut self,
        client: ClientId,
        path: &str,
        which: WatcherType,
        remove: bool,
    ) -> bool {
        let data = [Kind::Data, Kind::PersistentData, Kind::RecursiveData];
        let children = [Kind::Children, Kind::PersistentChildren, Kind::RecursiveChildren];
        let both = [data, children].concat();
        let kinds = match which {
            WatcherType::Children => &children[..],
            WatcherType::Data => &data,
            WatcherType::Any => &both,
        };
        let mut found = false;
        for kind in kinds {
            let watchers = self.by_path.get(path);
            if watchers.is_some_and(|watchers| watchers.contains_key(&(*kind, client))) {
                found = true;
                if remove {
                    self.unset(client, path, *kind);
                }
            }
        }
        found
    }

    /// A client's connection has ended.
    pub(crate) fn forget(&mut self, client: ClientId) {
        let own = self.by_client.get(&client).map(|own| own.watches.clone());
        for (path, kind) in own.unwrap_or_default() {
            self.unset(client, &path, kind);
        }
    }

    /// Something happened to a znode: who must hear what, in ZooKeeper's order.
    pub(crate) fn fire(
        &mut self,
        path: &str,
        what: NodeEvent,
        zxid: u64,
    ) -> Vec<(ClientId, WatchEvent)> {
        let mut events = Vec::new();
        if self.len == 0 {
            return events;
        }
        let (own, of_parent) = match what {
            NodeEvent::Created => (WatchEventType::Created, true),
            NodeEvent::Deleted => (WatchEventType::Deleted, true),
            NodeEvent::DataChanged => (WatchEventType::DataChanged, false),
        };
        // Who watches the children and the znode hears of its end once.
        let (here, below): (&[Kind], &[Kind]) = if what == NodeEvent::Deleted {
            (
                &[
                    Kind::Data,
                    Kind::Children,
                    Kind::PersistentData,
                    Kind::PersistentChildren,
                    Kind::RecursiveData,
                    Kind::RecursiveChildren,
                ],
                &[Kind::RecursiveData, Kind::RecursiveChildren],
            )
        } else {
            (&[Kind::Data, Kind::PersistentData, Kind::RecursiveData], &[Kind::RecursiveData])
        };
        let mut notified = self.take(path, here, zxid);
        if self.recursive > 0 {
            let mut above = parent_of(path);
            while let Some(directory) = above {
                notified.extend(self.take(directory, below, zxid));
                above = parent_of(directory);
            }
        }
        let event = |what, path: &str| WatchEvent { what, path: path.to_owned() };
        events.extend(notified.into_iter().map(|client| (client, event(own, path))));
        if let Some(directory) = parent_of(path).filter(|_| of_parent) {
            let notified = self.take(directory, &[Kind::Children, Kind::PersistentChildren], zxid);
            let changed = event(WatchEventType::ChildrenChanged, directory);
            events.extend(notified.into_iter().map(|client| (client, changed.clone())));
        }
        events
    }

    /// Who has such a watch since before a change; those that are for one change are used up.
    fn take(&mut self, path: &str, kinds: &[Kind], zxid: u64) -> BTreeSet<ClientId> {
        let Some(watchers) = self.by_path.get(path) else { return BTreeSet::new() };
        let notified =
            |((kind, _), since): &(&(Kind, ClientId), &u64)| kinds.contains(kind) && **since < zxid;
        let fired: Vec<(Kind, ClientId)> =
            watchers.iter().filter(notified).map(|(watcher, _)| *watcher).collect();
        for (kind, client) in &fired {
            if matches!(kind, Kind::Data | Kind::Children) {
                self.unset(*client, path, *kind);
            }
        }
        fired.into_iter().map(|(_, client)| client).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client watched paths of 4 KB until the node had no room left for the watches of others,
    /// and their recipes failed.
    #[test]
    fn one_client_leaves_room_for_others() {
        let mut watches = Watches::default();
        let (hog, other) = (ClientId(1), ClientId(2));
        let mut set = 0;
        while watches.has_room(hog) {
            watches.set(hog, &format!("/{set:04000}"), Kind::Data, 1);
            set += 1;
        }
        assert_eq!(set, PATHS_BYTES_PER_CLIENT_MAX.div_ceil(4_001));
        assert!(watches.has_room(other));
        assert!(watches.find(hog, &format!("/{:04000}", 0), WatcherType::Data, true));
        assert!(watches.has_room(hog));
    }
}
