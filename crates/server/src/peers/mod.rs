//! The other nodes: one outgoing connection to each for this node's messages, one incoming from
//! each for theirs, and others for snapshots and membership questions.

mod connection;
mod founding;
mod handshake;
mod known;
mod listen;
mod members;
mod peer_activity;
mod peer_connections;
mod runs;
mod snapshot_transfer;
mod throttle;

pub(crate) use founding::found;
pub use handshake::Contact;
pub(crate) use handshake::{Introduction, Run};
pub(crate) use known::KnownPeers;
pub(crate) use listen::listen;
pub use members::{MemberRequest, Membership, NotDone};
pub(crate) use members::{NO_MAJORITY, NOT_COMMITTABLE, join};

use crate::engine::{Inbox, Post, Snapshots};
use crate::stream::Stream;
pub(crate) use connection::Credentials;
use connection::NoConnection;
use handshake::Purpose;
use holdfast_node::{Cluster, Input, Member, NodeId, PeerMessage, RaftMessage};
use peer_activity::PeerActivity;
use peer_connections::PeerConnections;
use runs::{Alive, Runs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime;

/// The state that all peer connections of this node share.
pub(crate) struct Shared {
    pub(crate) credentials: Credentials,
    pub(crate) me: Introduction,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) snapshots: Arc<Snapshots>,
    known: KnownPeers,
    book: Mutex<AddressBook>,
    runs: Runs,
    peer_activity: Mutex<BTreeMap<NodeId, Arc<PeerActivity>>>,
}

/// Members' addresses, folders and votes.
#[derive(Debug, Default)]
struct AddressBook {
    contacts: BTreeMap<NodeId, Contact>,
    /// Identifies each member's data folder, as far as known.
    births: BTreeMap<NodeId, u64>,
    voters: BTreeSet<NodeId>,
    removed: Vec<NodeId>,
}

impl AddressBook {
    /// As recorded when this node last ran.
    fn of(known: &KnownPeers) -> Self {
        let contacts = known.all().into_iter().filter(|(_, peer)| !peer.contact.peer.is_empty());
        let contacts = contacts.map(|(id, peer)| (id, peer.contact)).collect();
        Self { contacts, ..Self::default() }
    }
}

impl Shared {
    pub(crate) fn new(
        credentials: Credentials,
        me: Introduction,
        inbox: Arc<Inbox>,
        snapshots: Arc<Snapshots>,
        known: KnownPeers,
    ) -> Self {
        let (book, runs) = (AddressBook::of(&known), Runs::of(&known));
        let (book, peer_activity) = (Mutex::new(book), Mutex::default());
        Self { credentials, me, inbox, snapshots, known, book, runs, peer_activity }
    }

    fn book(&self) -> MutexGuard<'_, AddressBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's addresses, as far as known.
    pub(crate) fn contact_of(&self, node: NodeId) -> Option<Contact> {
        if node == self.me.node {
            return Some(self.me.contact.clone());
        }
        self.book().contacts.get(&node).cloned()
    }

    /// Records the addresses that a node has given for itself.
    fn met(&self, node: NodeId, contact: Contact) {
        self.book().contacts.insert(node, contact);
    }

    fn was_removed(&self, node: NodeId) -> bool {
        self.book().removed.contains(&node)
    }

    /// Whether a node that claims this id has another data folder than the one that had it: it has
    /// then forgotten what it voted for and acknowledged.
    fn was_reborn(&self, node: NodeId, birth: u64) -> bool {
        self.book().births.get(&node).is_some_and(|known| *known != birth)
            || self.known.had_another_folder(node, birth)
    }

    /// Durably records a voter's data folder; returns false if another one was recorded. A member
    /// without a vote has promised nothing yet, and may start over.
    async fn note_folder(&self, who: &Introduction) -> Result<bool, String> {
        if !self.book().voters.contains(&who.node) {
            return Ok(true);
        }
        self.known.note_birth(who.node, who.birth).await
    }

    /// Resolves when this node may take part: all first members have recorded its folder.
    async fn begun(&self) {
        self.known.begun().await;
    }

    /// Updates the address book from the replicated membership, which has each node's address as of
    /// its joining. An address that the node itself has given takes precedence: its folder may have
    /// been moved.
    pub(crate) fn learn(&self, cluster: &Cluster) {
        let mut book = self.book();
        for (id, member) in cluster.members() {
            let contact = book.contacts.entry(*id).or_default();
            if contact.peer.is_empty() {
                contact.peer.clone_from(&member.address);
            }
            if member.birth != 0 {
                book.births.insert(*id, member.birth);
            }
        }
        let AddressBook { contacts, voters, removed, .. } = &mut *book;
        contacts.retain(|id, _| !cluster.removed().contains(id));
        let votes = cluster.members().iter().filter(|(_, member)| member.votes);
        *voters = votes.map(|(id, _)| *id).collect();
        removed.clear();
        removed.extend_from_slice(cluster.removed());
        drop(book);
        self.known.forget(cluster.removed());
        // Ends the connections of removed nodes. One that was paused meanwhile would otherwise keep
        // them, and never find out that it was removed.
        self.runs.forget(cluster.removed());
    }

    /// Connects to another node. The connection is valid until another process takes that node's
    /// place.
    async fn dial(&self, to: NodeId, purpose: Purpose) -> Result<(Stream, Alive), NoConnection> {
        let contact = self.contact_of(to);
        let contact = contact.ok_or_else(|| format!("the address of node {to} is unknown"))?;
        // Once the cluster has started, there is no need to compare first members any more.
        let founding = (!self.known.has_begun()).then(|| self.book().voters.clone());
        let me = Introduction { founding, ..self.me.clone() };
        let (stream, there) =
            connection::dial(&contact.peer, &self.credentials, Some(&me), Some(to), purpose)
                .await?;
        if self.was_reborn(to, there.birth) || !self.note_folder(&there).await? {
            return Err(format!("node {to} at {} has lost its folder", contact.peer).into());
        }
        let alive = self.recognise(&there, Some(&contact.peer)).await;
        let alive =
            alive.map_err(|impostor| format!("node {to} at {} {impostor}", contact.peer))?;
        self.met(to, there.contact);
        Ok((stream, alive))
    }

    fn notify_node(&self, input: Input) {
        self.inbox.post_always(Post::Node(input));
    }
}

/// The loop's handle to the other nodes.
pub(crate) struct Peers {
    shared: Arc<Shared>,
    runtime: runtime::Handle,
    peer_connections: PeerConnections,
    members: BTreeMap<NodeId, Member>,
}

impl Peers {
    pub(crate) fn new(shared: Arc<Shared>, runtime: runtime::Handle) -> Self {
        let peer_connections = PeerConnections::new(shared.clone(), runtime.clone());
        Self { shared, runtime, peer_connections, members: BTreeMap::new() }
    }

    /// Queues a message to another node for the next [`Peers::flush`]; it may be lost.
    pub(crate) fn send(&mut self, to: NodeId, message: &PeerMessage) {
        self.peer_connections.send(to, message);
    }

    /// Sends the queued messages.
    pub(crate) fn flush(&mut self) {
        self.peer_connections.flush();
    }

    /// Sends the latest snapshot to a lagging node.
    pub(crate) fn offer_snapshot(&self, to: NodeId, message: RaftMessage) {
        self.runtime.spawn(snapshot_transfer::send(self.shared.clone(), to, message));
    }

    /// Updates the members, as of the last applied entry.
    pub(crate) fn know(&mut self, cluster: &Cluster) {
        if self.members != *cluster.members() {
            self.members.clone_from(cluster.members());
            self.shared.learn(cluster);
            let others = cluster.members().keys().copied().filter(|id| *id != self.shared.me.node);
            self.peer_connections.keep(others);
        }
    }
}
