//! What is due when logical time advances.

use super::Model;
use holdfast_core::{Answer, EndReason, LockName, RequestKey, Tick, Token};

/// Something that comes due; at the same time, in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A wait or a lease ends.
    Ticket(Token),
    Revocation(Token),
    Delay(LockName),
    Object(LockName),
    Node(String),
}

impl Model {
    pub(super) fn tick(&mut self, tick: Tick) -> Answer {
        self.now_ms = self.now_ms.saturating_add(tick.elapsed_ms);
        self.wall_ms = tick.wall_ms;
        self.term = tick.term;
        while let Some((at_ms, due)) = self.all_due().into_iter().min() {
            if at_ms > self.now_ms {
                break;
            }
            self.come_due(due);
        }
        self.forget_deaths();
        self.forget_alone();
        Answer::Ticked
    }

    fn all_due(&self) -> Vec<(u64, Due)> {
        let mut all = Vec::new();
        for ticket in &self.tickets {
            all.extend(ticket.due_ms.map(|at_ms| (at_ms, Due::Ticket(ticket.token))));
            let revocation = ticket.revocation.as_ref();
            all.extend(revocation.map(|r| (r.until_ms, Due::Revocation(ticket.token))));
        }
        for past in &self.pasts {
            all.extend(past.delayed_until_ms.map(|at_ms| (at_ms, Due::Delay(past.name.clone()))));
        }
        for kept in &self.objects {
            all.extend(kept.due_ms.map(|at_ms| (at_ms, Due::Object(kept.name.clone()))));
        }
        for (at_ms, path) in self.due_nodes() {
            all.push((at_ms, Due::Node(path)));
        }
        all
    }

    fn come_due(&mut self, due: Due) {
        match due {
            Due::Ticket(token) => {
                let held = self.ticket(token).is_some_and(|ticket| ticket.held);
                self.end(token, if held { EndReason::Expired } else { EndReason::TimedOut }, None);
            }
            Due::Revocation(token) => {
                let Some(ticket) = self.ticket_mut(token) else { return };
                let revocation = ticket.revocation.take();
                if let Some(revocation) = revocation.filter(|revocation| revocation.force) {
                    self.end(token, EndReason::Forced, Some(&revocation.by));
                }
            }
            Due::Delay(name) => {
                self.past_mut(&name).delayed_until_ms = None;
                self.forget_pasts();
                self.serve();
            }
            Due::Object(name) => self.remove_object(&name),
            Due::Node(path) => self.remove_node_now(&path),
        }
    }

    fn forget_deaths(&mut self) {
        for past in &mut self.pasts {
            let at_ms = past.death.as_ref().map(|death| death.at_ms);
            let kept_until = at_ms.map(|at_ms| at_ms.saturating_add(self.limits.death_kept_ms));
            if kept_until.is_some_and(|kept_until| kept_until <= self.now_ms) {
                past.death = None;
            }
        }
        self.forget_pasts();
    }

    fn forget_alone(&mut self) {
        let over = |key: &RequestKey| self.forgotten_at(key).is_some_and(|at| at <= self.now_ms);
        let keys: Vec<RequestKey> = self.alone.iter().map(|(key, _, _)| key.clone()).collect();
        let forgotten: Vec<RequestKey> = keys.into_iter().filter(over).collect();
        self.alone.retain(|(key, _, _)| !forgotten.contains(key));
    }

    /// How long until the next tick is needed. What is only forgotten can wait for any tick.
    pub(crate) fn next_due_in_ms(&self) -> Option<u64> {
        let (at_ms, _) = self.all_due().into_iter().min()?;
        Some(at_ms.saturating_sub(self.now_ms))
    }
}
