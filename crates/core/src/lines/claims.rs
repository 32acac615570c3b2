//! Finds cycles of waits before they close.
//!
//! A waiter may name tokens that its work keeps while it waits. So a held token that is claimed
//! waits, in effect, for its claimer to be served. A new wait is refused if it leads back to a
//! token that the requesting ticket itself claims. Only a new ticket can close a cycle: it is
//! behind all others, so nothing else adds a wait.
//!
//! Permits are left out: any of their holders may free one, so waiting for one is never hopeless.

use super::Lines;
use super::records::{Lock, Ticket};
use crate::command::Mode;
use crate::containers::Slot;
use crate::ids::Token;
use crate::level::REQUESTS_LEVEL;
use crate::refusal::{CycleStep, Refusal};
use crate::text::LockName;
use std::collections::BTreeMap;

/// A ticket that waits in a line behind everything below a number.
struct Visit {
    /// `None` for the ticket that is being requested.
    waiter: Option<Token>,
    slot: Slot,
    /// It is behind all tickets below this.
    below: Token,
    /// The visit that led here, and the ticket ahead of that waiter.
    from: Option<(usize, Token)>,
}

/// Which holders must end before a waiter is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BlockedBy {
    /// None of them: it waits for something else.
    Free,
    /// All but the shared ticket that it upgrades.
    AllBut(Token),
    All,
}

impl BlockedBy {
    pub(super) fn of(lock: &Lock) -> Self {
        if lock.exclusive { Self::All } else { Self::Free }
    }

    /// Adds a writer, which may be the upgrade of a shared ticket.
    fn and(self, upgrades: Option<Token>) -> Self {
        match (self, upgrades) {
            (Self::Free, Some(shared)) => Self::AllBut(shared),
            (Self::AllBut(shared), Some(same)) if shared == same => self,
            _ => Self::All,
        }
    }

    /// Adds another waiter.
    pub(super) fn with(self, waiter: Option<&Ticket>) -> Self {
        let writer = waiter.filter(|waiter| waiter.mode == Mode::Exclusive);
        writer.map_or(self, |writer| self.and(writer.upgrades()))
    }
}

struct Search<'a> {
    lines: &'a Lines,
    mode: Mode,
    claims: &'a [Token],
    upgrading: Option<Token>,
    visits: Vec<Visit>,
    /// How far each line has been searched.
    seen: BTreeMap<Slot, Token>,
    steps_left: usize,
}

impl Lines {
    pub(super) fn check_claims_held(&self, claims: &[Token]) -> Result<(), Refusal> {
        let lost = claims.iter().find(|claimed| !self.ticket(**claimed).is_some_and(|t| t.held));
        lost.map_or(Ok(()), |lost| Err(Refusal::ClaimNotHeld(*lost)))
    }

    /// Refuses a wait for these names that would lead back to a token claimed by the same request.
    /// `upgrading` is a shared ticket that the request does not wait for.
    pub(super) fn check_no_circle(
        &self,
        names: &[LockName],
        mode: Mode,
        claims: &[Token],
        upgrading: Option<Token>,
    ) -> Result<(), Refusal> {
        if claims.is_empty() {
            return Ok(());
        }
        let slots = names.iter().filter_map(|name| self.lock_slot(name));
        let visit = |slot| Visit { waiter: None, slot, below: Token(u64::MAX), from: None };
        let search = Search {
            lines: self,
            mode,
            claims,
            upgrading,
            visits: slots.map(visit).collect(),
            seen: BTreeMap::new(),
            steps_left: self.limits.claim_steps_max,
        };
        search.run()
    }

    /// Leaves out the middle of a cycle that is too long to read.
    fn shorten(&self, links: &mut Vec<CycleStep>) {
        let max = self.limits.circle_links_max;
        let too_many = links.len().saturating_sub(max);
        if too_many > 0 && self.level >= REQUESTS_LEVEL {
            let first = max / 2;
            links.drain(first..first.saturating_add(too_many));
        }
    }
}

impl Search<'_> {
    fn run(mut self) -> Result<(), Refusal> {
        let mut next = 0;
        while next < self.visits.len() {
            self.look(next)?;
            next = next.saturating_add(1);
        }
        Ok(())
    }

    /// Visits everything ahead of one waiter in one line.
    fn look(&mut self, at: usize) -> Result<(), Refusal> {
        let lines = self.lines;
        let Some(visit) = self.visits.get(at) else { return Ok(()) };
        let (slot, below) = (visit.slot, visit.below);
        let Some(lock) = lines.data.locks.get(slot).filter(|lock| lock.permits().is_none()) else {
            return Ok(());
        };
        if self.seen.get(&slot).is_some_and(|seen| *seen >= below) {
            return Ok(());
        }
        self.seen.insert(slot, below);
        let way = self.way(at, lock)?;
        for holder in lines.index.sets.lines.holders(slot, lock).filter(|_| way != BlockedBy::Free)
        {
            self.step()?;
            if way == BlockedBy::AllBut(holder) {
                continue;
            }
            if self.claims.contains(&holder) {
                return Err(Refusal::WouldDeadlock(self.circle(at, holder)));
            }
            let claimers = (holder, Token(0))..=(holder, Token(u64::MAX));
            for (_, claimer) in lines.index.sets.claims.range(claimers) {
                self.follow(*claimer, (at, holder))?;
            }
        }
        let first = Token(lock.last_served.0.saturating_add(1));
        for (_, wide) in lines.index.sets.wide.range((slot, first)..(slot, below)) {
            self.follow(*wide, (at, *wide))?;
        }
        Ok(())
    }

    /// Which holders are in the way of this waiter, or of one ahead of it.
    fn way(&mut self, at: usize, lock: &Lock) -> Result<BlockedBy, Refusal> {
        let Some(visit) = self.visits.get(at) else { return Ok(BlockedBy::Free) };
        let (waiter, slot, below) = (visit.waiter, visit.slot, visit.below);
        let mut way = BlockedBy::of(lock);
        if waiter.is_none() && self.mode == Mode::Exclusive {
            way = way.and(self.upgrading);
        }
        let lines = self.lines;
        for token in lines.index.sets.lines.waiters(slot, lock).take_while(|token| *token <= below)
        {
            if way == BlockedBy::All {
                break;
            }
            self.step()?;
            way = way.with(lines.ticket(token));
        }
        Ok(way)
    }

    /// Continues with everything that a waiting ticket waits for.
    fn follow(&mut self, waiter: Token, from: (usize, Token)) -> Result<(), Refusal> {
        self.step()?;
        let Some(ticket) = self.lines.ticket(waiter).filter(|ticket| !ticket.held) else {
            return Ok(());
        };
        for slot in ticket.locks() {
            self.visits.push(Visit { waiter: Some(waiter), slot, below: waiter, from: Some(from) });
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Refusal> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(Refusal::TooTangled)?;
        Ok(())
    }

    /// The cycle, from the requesting ticket to the token that it claims.
    fn circle(&self, at: usize, behind: Token) -> Vec<CycleStep> {
        let mut links = Vec::new();
        let mut next = Some((at, behind));
        while let Some((at, behind)) = next {
            let Some(visit) = self.visits.get(at) else { break };
            let ticket = visit.waiter.and_then(|waiter| self.lines.ticket(waiter));
            let name = self.lines.data.locks.get(visit.slot).map(|lock| lock.name.clone());
            if let Some(waits_for) = name {
                let label = ticket.and_then(|ticket| self.lines.label_of(ticket));
                let front = self.lines.ticket(behind);
                let behind_label = front.and_then(|front| self.lines.label_of(front));
                links.push(CycleStep {
                    waiter: visit.waiter,
                    label,
                    waits_for,
                    behind,
                    behind_label,
                });
            }
            next = visit.from;
        }
        links.reverse();
        self.lines.shorten(&mut links);
        links
    }
}
