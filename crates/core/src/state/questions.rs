//! Queries. They change nothing and need not go through the log.

use super::State;
use crate::access::AuditRecord;
use crate::command::{Door, SessionRef};
use crate::effect::{Effect, Fence, TicketStatus};
use crate::ids::{SessionId, Token};
use crate::limits::Limits;
use crate::lines::history::Event;
use crate::lines::{Counts, LockPage, LockView, SessionView, TicketView, Why};
use crate::stores::access::Accounts;
use crate::stores::keys::{Key, KeyPage};
use crate::stores::tree::NodeView;
use crate::text::{Label, LockName};
use crate::transaction::Stamp;
use std::sync::Arc;

/// Queries about lines.
impl State {
    /// Logical time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.lines.now_ms()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        self.lines.limits()
    }

    /// One lock, with up to `tickets_max` of its holders and as many of its waiters.
    pub fn lock_view(&self, name: &LockName, tickets_max: usize) -> Option<LockView> {
        self.lines.lock_view(name, tickets_max)
    }

    /// One ticket, waiting or held.
    pub fn ticket_view(&self, token: Token) -> Option<TicketView> {
        self.lines.ticket_view(token)
    }

    /// A ticket's current state; one that no longer exists counts as released.
    pub fn ticket_status(&self, token: Token) -> TicketStatus {
        self.lines.ticket_status(token)
    }

    /// Whether a token is held right now, for checkers to compare grants with.
    pub fn is_held(&self, token: Token) -> bool {
        self.lines.is_held(token)
    }

    /// The tickets from this door with this label among the first `looked_through_max` of a lock's
    /// line, in order; and whether each is held.
    pub fn labelled(
        &self,
        name: &LockName,
        door: Door,
        label: &Label,
        looked_through_max: usize,
    ) -> Vec<(Token, bool)> {
        self.lines.labelled(name, door, label, looked_through_max)
    }

    /// The request to release that a holder was sent, in case it missed it.
    pub fn revocation_asked(&self, token: Token) -> Option<Effect> {
        self.lines.revocation_asked(token)
    }

    /// Up to `limit` locks whose names begin with `prefix`, after `after`, each with its first
    /// holder.
    pub fn list(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> LockPage {
        self.lines.list(prefix, after, limit)
    }

    /// Why this line is not moving: who waits for whom, across all lines that matter.
    pub fn why(&self, name: &LockName) -> Why {
        self.lines.why(name)
    }

    /// Up to `limit` sessions after `after`, each with up to `tickets_max` of its tickets.
    pub fn sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
        tickets_max: usize,
    ) -> Vec<SessionView> {
        self.lines.sessions(after, limit, tickets_max)
    }

    /// One session, with up to `tickets_max` of its tickets: first those that end with it.
    pub fn session_view(&self, id: SessionId, tickets_max: usize) -> Option<SessionView> {
        self.lines.session_view(id, tickets_max)
    }

    /// Every living session, with its TTL.
    pub fn session_ttls(&self) -> impl Iterator<Item = (SessionId, u64)> {
        self.lines.session_ttls()
    }

    /// Whether a session is alive and the secret is right.
    pub fn session_lives(&self, session: &SessionRef) -> bool {
        self.lines.session_lives(session)
    }

    /// Whether the secret is right; `None` if the session is not known here. A session's secret
    /// never changes, and its id is never reused.
    pub fn session_owner(&self, session: &SessionRef) -> Option<bool> {
        self.lines.session_owner(session)
    }

    /// The fence of a key.
    pub fn fence(&self, key: &LockName) -> Option<&Fence> {
        self.lines.fence(key)
    }

    /// The events of one lock that are still in the ring, newest first.
    pub fn history(&self, name: &LockName) -> impl Iterator<Item = &Event> {
        self.lines.history(name)
    }

    /// All events that are still in the ring, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.lines.events()
    }

    /// Totals.
    pub fn counts(&self) -> Counts {
        let (objects, nodes) = (self.keys.objects_len(), self.tree.len());
        Counts { objects, nodes, ..self.lines.counts() }
    }

    /// The length of the longest line, holders included.
    pub fn longest_line(&self) -> usize {
        self.lines.longest_line()
    }
}

/// Queries about users.
impl State {
    /// All users and roles. The copy does not change; a change makes another one.
    pub fn accounts(&self) -> &Arc<Accounts> {
        self.access.accounts()
    }

    /// The records of who did what that are still in the ring, newest first.
    pub fn audit(&self) -> impl Iterator<Item = &AuditRecord> {
        self.access.records()
    }
}

/// Queries about keys.
impl State {
    /// The content of a name.
    pub fn key(&self, name: &LockName) -> Key {
        self.keys.key(name, &self.lines)
    }

    /// The stamp of a key, for a transaction that has read it.
    pub fn stamp(&self, name: &LockName) -> Stamp {
        self.keys.stamp(name, &self.lines)
    }

    /// Up to `limit` names that start with `prefix` and come after `after`, less those that are not
    /// keys now.
    pub fn keys(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> KeyPage {
        self.keys.keys(prefix, after, limit, &self.lines)
    }

    /// How many keys there are.
    pub fn keys_len(&self) -> usize {
        self.keys.keys_len(&self.lines)
    }

    /// Rises whenever a key is added, removed or changed, so that a transaction that has listed or
    /// counted keys can check that it would find the same.
    pub fn keys_changed(&self) -> u64 {
        self.keys.keys_changed(&self.lines)
    }
}

/// Queries about znodes.
impl State {
    /// One znode.
    pub fn node(&self, path: &str) -> Option<NodeView<'_>> {
        self.tree.view(path)
    }

    /// The names of a znode's children, in byte order; empty if there is no such znode.
    pub fn node_children(&self, path: &str) -> impl Iterator<Item = &Arc<str>> {
        self.tree.children(path)
    }

    /// Counts the znodes below one, at any depth, a page at a time: from the one behind `after` on,
    /// but at most `max` of them. Returns how many it found, and the last one if there may be more.
    pub fn node_descendants(
        &self,
        path: &str,
        after: Option<&str>,
        max: usize,
    ) -> (usize, Option<String>) {
        self.tree.descendants(path, after, max)
    }

    /// The paths of all znodes, in byte order.
    pub fn node_paths(&self) -> Vec<Arc<str>> {
        self.tree.paths()
    }

    /// The ephemeral znodes of a session.
    pub fn ephemeral_nodes(&self, session: SessionId) -> impl Iterator<Item = &Arc<str>> {
        self.tree.ephemerals(session)
    }

    /// The zxid of the last change, to a znode or by drawing a ticket.
    pub fn zxid(&self) -> u64 {
        self.lines.data().counter
    }

    /// Which attachment of a session may change znodes: 0 for the connection that opened it.
    pub fn attachment(&self, session: SessionId) -> u64 {
        self.tree.attachment(session)
    }
}
