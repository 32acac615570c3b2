//! The invariants of znodes, which must hold after every command.

use super::nodes::{Node, lock_of};
use super::recipes::recipe_of;
use super::{BUILT_IN, Indexes, Tree};
use crate::lines::{StoreAccess, check_index, ensure};
use crate::tree::{NodeKind, name_of, parent_of, validate_path};

impl Tree {
    /// Checks everything; returns the first violation.
    pub(crate) fn check(&self, lines: &impl StoreAccess) -> Result<(), String> {
        check_index("znodes", &self.index.paths, &self.data.nodes)?;
        for path in BUILT_IN {
            ensure(self.node(path).is_some(), || format!("{path} is missing"))?;
        }
        for (_, node) in self.data.nodes.iter() {
            self.check_node(node, lines)
                .map_err(|wrong| format!("znode {}: {wrong}", node.path))?;
        }
        self.check_indexes()?;
        for (lock, directory) in &self.index.directories {
            let shown = directory.children.iter().filter(|(_, path)| {
                self.node(path).and_then(|node| node.ticket).is_some_and(|ticket| !ticket.over)
            });
            let shown: Vec<_> = shown.map(|(token, _)| *token).collect();
            let line = lines.tickets_in_line(lock);
            ensure(shown == line, || format!("{lock} shows {shown:?}, in line are {line:?}"))?;
            let numbers: Vec<&str> =
                directory.children.values().map(|path| number_of(path)).collect();
            ensure(numbers.is_sorted(), || format!("{lock}: numbers out of order {numbers:?}"))?;
        }
        for session in self.data.attachments.keys() {
            ensure(lines.session_lives(*session), || format!("session {session} has ended"))?;
        }
        let len = self.len();
        ensure(len <= lines.limits().nodes_max.saturating_add(lines.tickets()), || {
            format!("beyond a bound: {len} znodes")
        })
    }

    fn check_indexes(&self) -> Result<(), String> {
        let built = Indexes::of(&self.data, 0);
        let Indexes { children, ephemerals, due, directories, tickets, joined, delayed, .. } =
            &self.index;
        ensure(*joined == built.joined, || "joined readers differ".to_owned())?;
        ensure(*children == built.children, || "children differ".to_owned())?;
        let lens = &self.index.ephemerals_len;
        ensure(*lens == built.ephemerals_len, || format!("wrong counts {lens:?}"))?;
        ensure(*ephemerals == built.ephemerals, || "ephemeral znodes differ".to_owned())?;
        ensure(*due == built.due, || format!("due {due:?}, should be {:?}", built.due))?;
        ensure(*directories == built.directories, || {
            format!("locks {directories:?}, should be {:?}", built.directories)
        })?;
        ensure(*tickets == built.tickets, || "tickets differ".to_owned())?;
        ensure(*delayed == built.delayed, || "delayed tickets differ".to_owned())
    }

    fn check_node(&self, node: &Node, lines: &impl StoreAccess) -> Result<(), String> {
        ensure(validate_path(&node.path).is_ok(), || "not a path".to_owned())?;
        if let Some(parent) = parent_of(&node.path) {
            let parent = self.node(parent).ok_or("it has no parent")?;
            ensure(parent.kind != NodeKind::Ephemeral, || "its parent is ephemeral".to_owned())?;
        }
        let ephemeral = node.kind == NodeKind::Ephemeral;
        ensure(ephemeral == node.session.is_some(), || "whose is it?".to_owned())?;
        let last = lines.last_number();
        let newest = node.czxid.max(node.mzxid).max(node.pzxid);
        ensure(newest <= last, || format!("above the last number {last}"))?;
        let dying = node.session.is_some_and(|id| {
            node.ticket.is_none() && !lines.session_lives(id) && !self.index.dying.contains(&id)
        });
        ensure(!dying, || "its session is over".to_owned())?;
        let Some(ticket) = node.ticket else { return Ok(()) };
        ensure(recipe_of(name_of(&node.path)).is_some(), || "no place in a line".to_owned())?;
        let lock = parent_of(&node.path).and_then(lock_of);
        let locks = lines.ticket_locks(ticket.token);
        let stands = lock.is_some_and(|lock| locks.contains(&lock));
        ensure(stands != ticket.over, || "its ticket is over, or should be".to_owned())?;
        // The znode of a reader that joined a writer is newer than the ticket that it took over.
        ensure(node.czxid >= ticket.token.0, || "its ticket is younger".to_owned())
    }
}

fn number_of(path: &str) -> &str {
    path.get(path.len().saturating_sub(10)..).unwrap_or_default()
}
