//! Znodes and lines are kept together.
//!
//! While a directory has a znode that a recipe counts as a contender, everybody in the line of that
//! lock has one there: who came through another door, too. Those appear in the form of the recipe
//! and as the kind that everybody waits for, numbered in the order of the line; they go when their
//! tickets end, or after the lock-delay that an end brought about.

use super::Tree;
use super::nodes::{Node, NodeTicket, lock_of};
use super::plan::TicketPlace;
use super::recipes;
use super::write::session_label;
use crate::command::Revoke;
use crate::effect::{Answer, Effect, Ended, TicketStatus};
use crate::ids::{SessionId, Token};
use crate::lines::StoreAccess;
use crate::refusal::Refusal;
use crate::text::{LockName, NodeData, Reason};
use crate::tree::{Acl, NodeKind, Recipe, name_of, parent_of, perms};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A directory that is a lock now.
#[derive(Debug, PartialEq)]
pub(super) struct Directory {
    /// Whose contenders are in it.
    pub(super) recipe: Recipe,
    /// The znodes of the tickets in its line.
    pub(super) children: BTreeMap<Token, Arc<str>>,
}

impl Tree {
    /// The first contender of a recipe comes to a directory: who stands in the line already gets a
    /// znode before it.
    pub(super) fn show_line(
        &mut self,
        place: &TicketPlace,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if self.index.directories.contains_key(&place.lock) {
            return;
        }
        let waiting = lines.tickets_in_line(&place.lock);
        if !waiting.is_empty() {
            // Their coming is a change of its own, however old they are.
            lines.next_number();
        }
        for token in waiting {
            self.show_ticket(&place.lock, place.recipe, token, lines, effects);
        }
    }

    fn show_ticket(
        &mut self,
        lock: &LockName,
        recipe: Recipe,
        token: Token,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(name) = std::str::from_utf8(lock.as_bytes()) else { return };
        let directory = format!("/{name}");
        let Some(creates) = self.node(&directory).map(|node| node.creates) else { return };
        let child = recipes::foreign_name(recipe, token, creates);
        let wall_ms = lines.wall_ms();
        let node = Node {
            path: Arc::from(format!("{directory}/{child}")),
            data: shown_label(lines.ticket_label(token).as_ref().map_or(&[], |l| l.as_bytes())),
            // Everybody may see it, and who may ask for it writes `__REVOKE__`.
            acl: Arc::from([Acl { perms: perms::READ | perms::WRITE, ..Acl::open() }]),
            kind: NodeKind::Persistent,
            session: None,
            czxid: token.0,
            mzxid: token.0,
            pzxid: token.0,
            ctime_ms: wall_ms,
            mtime_ms: wall_ms,
            version: 0,
            aversion: 0,
            creates: 0,
            idle_since_ms: lines.now_ms(),
            ticket: Some(NodeTicket { token, foreign: true, over: false }),
        };
        self.add(node, lines.last_number(), lines, effects);
    }

    /// Something was done to the lines. Who came into the line of a directory that is a lock gets a
    /// znode there; the znodes of those who went go. Everything in the order of the tickets.
    pub(crate) fn follow(
        &mut self,
        from: usize,
        answer: &Result<Answer, Refusal>,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(answered) = answer else { return };
        let ticked = *answered == Answer::Ticked;
        self.follow_sessions(from, ticked, lines, effects);
        if self.index.directories.is_empty() {
            return;
        }
        let LineChanges { came, went, delayed } =
            moved(answered, effects.get(from..).unwrap_or_default());
        for token in came.into_iter().filter(|token| !went.contains(token)) {
            if self.index.tickets.contains_key(&token) {
                continue;
            }
            for lock in lines.ticket_locks(token) {
                let recipe = self.index.directories.get(&lock).map(|directory| directory.recipe);
                if let Some(recipe) = recipe {
                    self.show_ticket(&lock, recipe, token, lines, effects);
                }
            }
        }
        for token in went {
            for path in self.index.tickets.get(&token).cloned().unwrap_or_default() {
                let stays = lock_above(&path).is_some_and(|lock| delayed.contains(&(token, lock)));
                if stays {
                    self.change(&path, lines, |node| {
                        node.ticket = node.ticket.map(|ticket| NodeTicket { over: true, ..ticket });
                    });
                } else {
                    self.remove_ticket(&path, lines, effects);
                }
            }
        }
        if ticked {
            self.follow_delays(lines, effects);
        }
    }

    /// The znodes of the dead go when their lock-delay is over.
    fn follow_delays(&mut self, lines: &mut impl StoreAccess, effects: &mut Vec<Effect>) {
        let is_over = |path: &&Arc<str>| {
            let line = lock_above(path).and_then(|lock| Some(lines.line(&lock)?.is_delayed()));
            line != Some(true)
        };
        let over: Vec<Arc<str>> = self.index.delayed.iter().filter(is_over).cloned().collect();
        for path in over {
            self.remove_ticket(&path, lines, effects);
        }
    }

    /// The ticket of a znode is over. If it has got children of its own it stays, and is no place in
    /// a line any more.
    fn remove_ticket(
        &mut self,
        path: &str,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if !self.keep_with_children(path, lines) {
            let zxid = lines.next_number();
            self.remove(path, zxid, lines, effects);
        }
    }

    fn keep_with_children(&mut self, path: &str, lines: &mut impl StoreAccess) -> bool {
        let stays = self.slot(path).is_some_and(|slot| self.children_of(slot) > 0);
        if stays {
            self.change(path, lines, |node| node.ticket = None);
        }
        stays
    }

    /// A writer's znode was deleted while a reader of the same session stands under the same number:
    /// the ticket goes on as the reader's, and that is a downgrade.
    pub(super) fn joined_goes_on(
        &mut self,
        path: &str,
        ticket: NodeTicket,
        owner: Option<SessionId>,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let place = recipes::writer_number(name_of(path)).map(ToOwned::to_owned);
        let Some((lock, number)) = lock_above(path).zip(place) else { return false };
        let from = (lock.clone(), number.clone(), Arc::from(""));
        let mut joined = self.index.joined.range(from..);
        let reader = joined.find_map(|(of, with, reader)| {
            let here = *of == lock && *with == number;
            let same = self.node(reader).is_some_and(|node| node.session == owner);
            // Beyond this number nothing more can be found.
            (!here || same).then(|| here.then(|| reader.clone()))
        });
        let Some(reader) = reader.flatten() else { return false };
        if !lines.downgrade(ticket.token, effects) {
            return false;
        }
        self.change(&reader, lines, |node| node.ticket = Some(ticket));
        true
    }

    /// Asks the holder of a ticket to let go, who came through another door.
    pub(super) fn ask_to_let_go(
        &mut self,
        path: &str,
        ticket: NodeTicket,
        session: SessionId,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let (lock, by) = (lock_above(path), session_label(session));
        let reason = Reason::parse("__REVOKE__ was written to its znode").ok();
        let (Some(name), Some(by), Some(reason)) = (lock, by, reason) else { return };
        let token = Some(ticket.token);
        let revoke = Revoke { name, token, by, reason, within_ms: 0, force: false };
        // One that still waits holds nothing that it could let go of.
        let _ = lines.revoke(revoke, effects);
    }

    /// A backup becomes a new cluster: sessions have ended, and so have most tickets.
    pub(crate) fn restore(&mut self, lines: &mut impl StoreAccess) {
        let mut effects = Vec::new();
        self.data.attachments.clear();
        let over = |node: &Node| match node.ticket {
            Some(ticket) => ticket.over || !lines.is_held(ticket.token),
            None => node.session.is_some(),
        };
        let nodes = self.data.nodes.iter().map(|(_, node)| node);
        let mut gone: Vec<Arc<str>> =
            nodes.filter(|node| over(node)).map(|node| node.path.clone()).collect();
        gone.sort_unstable();
        // The number that the counter was moved to is newer than all that was ever drawn.
        let zxid = lines.last_number();
        for path in gone {
            if !self.keep_with_children(&path, lines) {
                self.remove(&path, zxid, lines, &mut effects);
            }
        }
        self.index.dying.clear();
    }
}

/// Who came into a line in one command, who went, and whose end delays whom.
struct LineChanges {
    came: BTreeSet<Token>,
    went: BTreeSet<Token>,
    delayed: BTreeSet<(Token, LockName)>,
}

fn moved(answer: &Answer, effects: &[Effect]) -> LineChanges {
    let (came, went, delayed) = Default::default();
    let mut moved = LineChanges { came, went, delayed };
    if let Answer::TicketStatus(status) = answer
        && !matches!(status, TicketStatus::Over { .. })
    {
        moved.came.insert(status.token());
    }
    for effect in effects {
        match effect {
            Effect::Granted(grant) => drop(moved.came.insert(grant.token)),
            Effect::Ended(Ended { token, .. }) => drop(moved.went.insert(*token)),
            Effect::Delayed { name, after, .. } => {
                moved.delayed.insert((after.token, name.clone()));
            }
            _ => {}
        }
    }
    moved
}

/// The lock that the directory of a path is.
fn lock_above(path: &str) -> Option<LockName> {
    parent_of(path).and_then(lock_of)
}

/// What a ticket calls itself, as the data of a znode: recipes take it for text.
fn shown_label(label: &[u8]) -> Option<NodeData> {
    NodeData::parse(String::from_utf8_lossy(label).as_bytes()).ok()
}
