//! Keeps znodes and lines in step.
//!
//! While a directory has a znode that a recipe counts as a contender, every ticket in the line of
//! that lock has one there, including those from other doors. The latter are named like exclusive
//! contenders of the recipe, for which every contender waits, and are numbered in the order of the
//! line. They are removed when their tickets end, or after the lock-delay that follows.

use super::Tree;
use super::nodes::{Node, NodeTicket, lock_of};
use super::plan::TicketPlace;
use super::recipes;
use super::write::session_label;
use crate::command::Revoke;
use crate::effect::{Answer, Effect, Ended, TicketStatus};
use crate::ids::{SessionId, Token};
use crate::lines::{LineView, StoreAccess};
use crate::refusal::Refusal;
use crate::text::{Label, LockName, NodeData, Reason};
use crate::tree::{Acl, NodeKind, Recipe, name_of, parent_of, perms};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A directory that currently represents a lock.
#[derive(Debug, PartialEq)]
pub(super) struct Directory {
    /// The recipe of its contenders.
    pub(super) recipe: Recipe,
    /// The znodes of the tickets in its line.
    pub(super) children: BTreeMap<Token, Arc<str>>,
}

impl Tree {
    /// Called for the first contender of a recipe in a directory: tickets that are already in line
    /// get znodes before it.
    pub(super) fn show_line(
        &mut self,
        place: &TicketPlace,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if self.index.directories.contains_key(&place.lock) {
            return;
        }
        let lock = &place.lock;
        let mut shown: Vec<ShownTicket> = Vec::new();
        for token in lines.tickets_in_line(lock) {
            shown.push(ShownTicket { token, label: lines.ticket_label(token), over: false });
        }
        let dead = dead_place(lock, lines);
        if !shown.is_empty() || dead.is_some() {
            // Adding them is a change of its own, however old the tickets are.
            lines.next_number();
        }
        if let Some(DeadPlace { token, label }) = dead {
            let token = token.unwrap_or(Token(lines.last_number()));
            let at = shown.partition_point(|before| before.token < token);
            shown.insert(at, ShownTicket { token, label, over: true });
        }
        for ticket in shown {
            self.show_ticket(lock, place.recipe, ticket, lines, effects);
        }
    }

    fn show_ticket(
        &mut self,
        lock: &LockName,
        recipe: Recipe,
        ticket: ShownTicket,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let ShownTicket { token, label, over } = ticket;
        let Ok(name) = std::str::from_utf8(lock.as_bytes()) else { return };
        let directory = format!("/{name}");
        let Some(creates) = self.node(&directory).map(|node| node.creates) else { return };
        let child = recipes::foreign_name(recipe, token, creates);
        let wall_ms = lines.wall_ms();
        let node = Node {
            path: Arc::from(format!("{directory}/{child}")),
            data: shown_label(label.as_ref().map_or(&[], |label| label.as_bytes())),
            // Everybody may read it, and writing `__REVOKE__` to it asks for a release.
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
            ticket: Some(NodeTicket { token, foreign: true, over }),
        };
        self.add(node, lines.last_number(), lines, effects);
    }

    /// Called after the lines have changed: adds a znode for each ticket that joined the line of a
    /// directory, and removes those of tickets that ended, in ticket order.
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
                    let label = lines.ticket_label(token);
                    let ticket = ShownTicket { token, label, over: false };
                    self.show_ticket(&lock, recipe, ticket, lines, effects);
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

    /// Removes the znodes of dead holders once their lock-delay is over.
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

    /// The ticket of a znode is over. If the znode has children it stays, but no longer represents
    /// a place in line.
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

    /// A writer's znode was deleted while a reader of the same session has the same number: the
    /// ticket continues as the reader's, which is a downgrade.
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
            // No znode after this number can match.
            (!here || same).then(|| here.then(|| reader.clone()))
        });
        let Some(reader) = reader.flatten() else { return false };
        if !lines.downgrade(ticket.token, effects) {
            return false;
        }
        self.change(&reader, lines, |node| node.ticket = Some(ticket));
        true
    }

    /// Asks a holder from another door to release.
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
        // A waiting ticket holds nothing that it could release.
        let _ = lines.revoke(revoke, effects);
    }

    /// Turns a backup into a new cluster: all sessions have ended, and most tickets.
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
        // The counter was moved to a number higher than any that was ever drawn.
        let zxid = lines.last_number();
        for path in gone {
            if !self.keep_with_children(&path, lines) {
                self.remove(&path, zxid, lines, &mut effects);
            }
        }
        self.index.dying.clear();
    }
}

/// A ticket from another door that needs a znode.
struct ShownTicket {
    token: Token,
    label: Option<Label>,
    /// Whether its holder is dead, and the znode represents the lock-delay.
    over: bool,
}

/// The place of a dead holder in the line.
pub(super) struct DeadPlace {
    /// `None` if it is no longer known.
    token: Option<Token>,
    label: Option<Label>,
}

/// The place of the holder that a lock-delay follows: recipes must have a contender to wait for
/// while nobody is served. `None` if there is no delay, or if it is not known where in the line the
/// holder was.
pub(super) fn dead_place(lock: &LockName, lines: &impl StoreAccess) -> Option<DeadPlace> {
    let line = lines.line(lock).filter(LineView::is_delayed)?;
    match line.last_death() {
        Some(ending) => Some(DeadPlace { token: Some(ending.token), label: ending.label.clone() }),
        // With no tickets in line, any number puts it first.
        None => (!line.has_tickets()).then_some(DeadPlace { token: None, label: None }),
    }
}

/// The tickets that joined and ended in one command, and which of them started a lock-delay.
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

/// The lock that the directory of a path represents.
fn lock_above(path: &str) -> Option<LockName> {
    parent_of(path).and_then(lock_of)
}

/// A ticket's label as the data of a znode: recipes expect text.
fn shown_label(label: &[u8]) -> Option<NodeData> {
    NodeData::parse(String::from_utf8_lossy(label).as_bytes()).ok()
}
