//! Who waits for whom, and whether that is a cycle.
//!
//! There are two kinds of links: a waiter is behind those ahead of it; a held token is kept while
//! another ticket waits. The second kind is *declared* if that ticket claims the token, and only
//! *possible* if both merely belong to one session.

use super::Lines;
use super::records::Ticket;
use crate::ids::Token;
use crate::text::{Label, LockName};
use std::collections::{BTreeMap, BTreeSet};

/// How many links are shown: nobody would read more.
const LINKS_MAX: usize = 1_000;

/// How many cycles are shown.
const CYCLES_MAX: usize = 16;

/// Why the waiters of a lock are waiting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Why {
    /// Who waits for whom, starting from the lock in question.
    pub links: Vec<WhyLink>,
    /// Cycles among them.
    pub circles: Vec<Cycle>,
    /// Whether there are more links than are shown.
    pub cut: bool,
}

/// One reason why something is not moving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyLink {
    /// A waiter is behind a ticket.
    Behind {
        /// The waiter.
        waiter: Token,
        /// Its label.
        label: Option<Label>,
        /// In which line.
        name: LockName,
        /// The ticket ahead of it.
        front: Token,
        /// That ticket's label.
        front_label: Option<Label>,
        /// Whether that ticket holds one of several permits, any of which would do.
        permit: bool,
    },
    /// A held token is kept while another ticket waits.
    Kept {
        /// The held token.
        token: Token,
        /// The holder's label.
        label: Option<Label>,
        /// The waiting ticket.
        waiter: Token,
        /// Whether the waiter claims the token; otherwise both only belong to the same session.
        declared: bool,
    },
}

/// Tickets that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Its tickets, the lowest first, each waiting for the next and the last for the first.
    pub tokens: Vec<Token>,
    /// Whether every link is declared and no permit could break it: certainly a deadlock.
    pub declared: bool,
}

impl WhyLink {
    fn ends(&self) -> (Token, Token, bool) {
        match self {
            Self::Behind { waiter, front, permit, .. } => (*waiter, *front, !*permit),
            Self::Kept { token, waiter, declared, .. } => (*token, *waiter, *declared),
        }
    }
}

impl Lines {
    /// Why this line is not moving: who waits for whom, across all lines that matter.
    pub(crate) fn why(&self, name: &LockName) -> Why {
        let mut why = Why::default();
        let Some(slot) = self.lock_slot(name) else { return why };
        let Some(lock) = self.data.locks.get(slot) else { return why };
        let mut next: Vec<Token> = self.index.sets.lines.iter(slot, lock).take(LINKS_MAX).collect();
        next.reverse();
        let mut seen: BTreeSet<Token> = next.iter().copied().collect();
        while let Some(ticket) = next.pop().and_then(|token| self.ticket(token)) {
            let links = if ticket.held { self.kept(ticket) } else { self.behind(ticket) };
            for link in links {
                if why.links.len() >= LINKS_MAX {
                    why.cut = true;
                    break;
                }
                let (_, to, _) = link.ends();
                if seen.insert(to) {
                    next.push(to);
                }
                why.links.push(link);
            }
        }
        why.circles = circles(&why.links);
        why
    }

    fn behind(&self, ticket: &Ticket) -> Vec<WhyLink> {
        let link = |slot, front| {
            let lock = self.data.locks.get(slot)?;
            Some(WhyLink::Behind {
                waiter: ticket.number,
                label: self.label_of(ticket),
                name: lock.name.clone(),
                front,
                front_label: self.ticket(front).and_then(|front| self.label_of(front)),
                permit: lock.permits().is_some(),
            })
        };
        let links = |slot| {
            self.in_front(ticket, slot).into_iter().filter_map(move |front| link(slot, front))
        };
        ticket.locks().flat_map(links).collect()
    }

    fn kept(&self, ticket: &Ticket) -> Vec<WhyLink> {
        let token = ticket.number;
        let claimers = self.index.sets.claims.range((token, Token(0))..=(token, Token(u64::MAX)));
        let declared: Vec<Token> = claimers.map(|(_, claimer)| *claimer).collect();
        let session = ticket.session.into_iter();
        let of_session = session.flat_map(|id| {
            let own = (id, Token(0))..=(id, Token(u64::MAX));
            self.index.sets.by_session.range(own).map(|(_, token)| *token).take(LINKS_MAX)
        });
        let waits = |other: &Token| self.ticket(*other).is_some_and(|other| !other.held);
        let possible = of_session.filter(|other| waits(other) && !declared.contains(other));
        let possible: Vec<Token> = possible.collect();
        let kept = |declared| {
            move |waiter| WhyLink::Kept { token, label: self.label_of(ticket), waiter, declared }
        };
        declared
            .iter()
            .copied()
            .map(kept(true))
            .chain(possible.into_iter().map(kept(false)))
            .collect()
    }
}

/// The cycles among the links, each once.
fn circles(links: &[WhyLink]) -> Vec<Cycle> {
    let mut edges: BTreeMap<Token, Vec<(Token, bool)>> = BTreeMap::new();
    for (from, to, certain) in links.iter().map(WhyLink::ends) {
        edges.entry(from).or_default().push((to, certain));
    }
    let mut found: Vec<Cycle> = Vec::new();
    let mut done = BTreeSet::new();
    for start in edges.keys() {
        // A path of (ticket, next edge to try, whether the edge to it was certain).
        let mut path = vec![(*start, 0_usize, true)];
        while let Some((at, edge, _)) = path.last_mut() {
            let out = edges.get(at).and_then(|out| out.get(*edge)).copied();
            *edge = edge.saturating_add(1);
            let Some((to, certain)) = out else {
                done.insert(*at);
                path.pop();
                continue;
            };
            if let Some(from) = path.iter().position(|(token, _, _)| *token == to) {
                let ring = path.get(from..).unwrap_or_default();
                let declared = certain && ring.iter().skip(1).all(|(_, _, certain)| *certain);
                let mut tokens: Vec<Token> = ring.iter().map(|(token, _, _)| *token).collect();
                let lowest = tokens.iter().enumerate().min_by_key(|(_, token)| **token);
                let lowest = lowest.map_or(0, |(index, _)| index);
                tokens.rotate_left(lowest);
                if found.len() < CYCLES_MAX && found.iter().all(|circle| circle.tokens != tokens) {
                    found.push(Cycle { tokens, declared });
                }
            } else if !done.contains(&to) {
                path.push((to, 0, certain));
            }
        }
    }
    found
}
