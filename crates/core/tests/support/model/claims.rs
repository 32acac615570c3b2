//! Cycles of declared waits.

use super::{Model, Ticket};
use holdfast_core::{CycleStep, LockName, Mode, Token};

impl Model {
    /// The tickets ahead of a waiter that must end, or be served, before it is served.
    fn waits_for(&self, waiter: &Ticket) -> Vec<(LockName, Token)> {
        let mut found = Vec::new();
        for name in waiter.names.iter().filter(|_| !matches!(waiter.mode, Mode::Permit { .. })) {
            let line = self.line(name);
            let in_front = line.iter().filter(|ticket| ticket.token < waiter.token);
            let (holders, waiters): (Vec<&Ticket>, Vec<&Ticket>) =
                in_front.partition(|ticket| ticket.held);
            for holder in holders {
                let held_up_by = |ticket: &Ticket| conflict(ticket, holder);
                if held_up_by(waiter) || waiters.iter().any(|ticket| held_up_by(ticket)) {
                    found.push((name.clone(), holder.token));
                }
            }
            found.extend(waiters.iter().map(|ticket| (name.clone(), ticket.token)));
        }
        found
    }

    /// The waiting tickets whose owners keep this held one.
    fn kept_by(&self, held: Token) -> Vec<&Ticket> {
        let waiting = self.tickets.iter().filter(|ticket| !ticket.held);
        waiting.filter(|ticket| ticket.claims.contains(&held)).collect()
    }

    /// Whether the wait of a ticket that is not drawn yet leads back to a token that it claims.
    pub(super) fn closes_circle(&self, asker: &Ticket) -> bool {
        let mut reached: Vec<Token> = self.waits_for(asker).into_iter().map(|(_, t)| t).collect();
        let mut looked_at = 0;
        while let Some(ticket) = reached.get(looked_at).and_then(|token| self.ticket(*token)) {
            let next: Vec<Token> = if ticket.held {
                self.kept_by(ticket.token).iter().map(|waiter| waiter.token).collect()
            } else {
                self.waits_for(ticket).into_iter().map(|(_, token)| token).collect()
            };
            let new: Vec<Token> = next.into_iter().filter(|t| !reached.contains(t)).collect();
            reached.extend(new);
            looked_at += 1;
        }
        asker.claims.iter().any(|claim| reached.contains(claim))
    }

    /// What is wrong with a cycle that the core reported.
    pub(crate) fn check_circle(&self, asker: &Ticket, links: &[CycleStep]) -> Result<(), String> {
        let Some(last) = links.last() else { return Err("a circle without links".into()) };
        if !asker.claims.contains(&last.behind) {
            return Err(format!("the circle ends at {}, which is not claimed", last.behind));
        }
        let mut before: Option<Token> = None;
        for link in links {
            let waiter = match (before, link.waiter) {
                (None, None) => asker,
                (Some(before), Some(waiter)) => {
                    let goes_on = before == waiter
                        || self.kept_by(before).iter().any(|keeper| keeper.token == waiter);
                    let ticket = self.ticket(waiter).filter(|ticket| goes_on && !ticket.held);
                    ticket.ok_or_else(|| format!("{before} does not wait for {waiter}"))?
                }
                _ => return Err("only the first link is the asker's".into()),
            };
            if !self.waits_for(waiter).contains(&(link.waits_for.clone(), link.behind)) {
                return Err(format!("{link:?} is no wait"));
            }
            // The requesting client has no ticket yet, and knows its own label.
            let label = link.waiter.and_then(|_| self.label_of(waiter));
            if link.label != label {
                return Err(format!("{link:?} has another label"));
            }
            if link.behind_label != self.ticket(link.behind).and_then(|t| self.label_of(t)) {
                return Err(format!("{link:?} is behind another label"));
            }
            before = Some(link.behind);
        }
        Ok(())
    }
}

/// Whether a ticket can't be held at the same time as a holder.
fn conflict(ticket: &Ticket, holder: &Ticket) -> bool {
    let both_shared = ticket.mode == Mode::Shared && holder.mode == Mode::Shared;
    !both_shared && ticket.upgrades != Some(holder.token)
}
