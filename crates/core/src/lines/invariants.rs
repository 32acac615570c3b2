//! What must hold for lines after every command. Tests and the simulator check this; it is far too
//! slow for production.

use super::Lines;
use super::indexes::Sets;
use super::records::{Lock, RememberedRequest, RequestOutcome, Session, Ticket};
use crate::command::{Mode, SessionKind};
use crate::containers::{Index, Keyed, Slab, Slot};
use crate::ids::Token;

impl Lines {
    /// Checks everything; returns the first violation.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_indexes()?;
        for (slot, lock) in self.data.locks.iter() {
            self.check_lock(slot, lock).map_err(|wrong| format!("lock {}: {wrong}", lock.name))?;
        }
        for (_, ticket) in self.data.tickets.iter() {
            self.check_ticket(ticket)
                .map_err(|wrong| format!("ticket {}: {wrong}", ticket.number))?;
        }
        self.check_requests()?;
        self.check_bounds()
    }

    fn check_indexes(&self) -> Result<(), String> {
        let (data, index) = (&self.data, &self.index);
        check_index("names", &index.names, &data.locks)?;
        check_index("numbers", &index.numbers, &data.tickets)?;
        check_index("sessions", &index.sessions, &data.sessions)?;
        check_index("alone", &index.alone, &data.alone)?;
        check_index("register", &index.register, &data.register)?;
        let mut rebuilt = Sets::of(data);
        rebuilt.unserved = index.sets.unserved.clone();
        ensure(rebuilt == index.sets, || {
            format!("indexes {:?}, should be {rebuilt:?}", index.sets)
        })?;
        let listed = index.order.page(b"", None, usize::MAX);
        ensure(listed.len() == data.locks.len(), || format!("{} names listed", listed.len()))?;
        ensure(data.history.bytes() == data.history.weigh(), || {
            format!("history of {} bytes, not {}", data.history.bytes(), data.history.weigh())
        })
    }

    fn check_lock(&self, slot: Slot, lock: &Lock) -> Result<(), String> {
        let line: Vec<&Ticket> =
            self.index.sets.lines.iter(slot, lock).filter_map(|token| self.ticket(token)).collect();
        ensure(line.len() == lock.line_len as usize, || {
            format!("{} in line, not {}", line.len(), lock.line_len)
        })?;
        ensure(line.is_sorted_by_key(|ticket| ticket.number), || "line out of order".to_owned())?;
        ensure(line.iter().all(|ticket| ticket.locks().any(|own| own == slot)), || {
            "stranger in line".to_owned()
        })?;
        let (holders, waiters) =
            line.split_at_checked(lock.holders as usize).ok_or("more holders than tickets")?;
        ensure(holders.iter().all(|ticket| ticket.held), || {
            "a waiter among the holders".to_owned()
        })?;
        ensure(waiters.iter().all(|ticket| !ticket.held), || "somebody was overtaken".to_owned())?;
        ensure(waiters.iter().all(|t| t.number > lock.last_served), || {
            "last_served too high".to_owned()
        })?;
        let exclusive = holders.iter().any(|ticket| ticket.mode == Mode::Exclusive);
        ensure(!exclusive || holders.len() == 1, || "an exclusive holder is not alone".to_owned())?;
        ensure(lock.exclusive == exclusive, || "wrong mode noted".to_owned())?;
        for ticket in &line {
            let permits = match ticket.mode {
                Mode::Permit { of } => Some(of),
                Mode::Exclusive | Mode::Shared => None,
            };
            ensure(permits == lock.permits(), || {
                format!("permits {permits:?} in {:?}", lock.permits())
            })?;
        }
        let over = lock.permits().is_some_and(|of| lock.holders > of);
        ensure(!over, || "more holders than permits".to_owned())?;
        ensure(!lock.is_over(), || "nothing is left of it".to_owned())?;
        let delayed = lock.delayed_until_ms().is_some();
        let next = waiters.first().filter(|ticket| !delayed && self.may_serve(ticket.number));
        let noted = |ticket: &Ticket| {
            let locks = ticket.locks().filter_map(|slot| self.data.locks.get(slot));
            locks.into_iter().all(|lock| self.index.sets.unserved.contains(&lock.name))
        };
        ensure(next.is_none_or(|ticket| noted(ticket)), || "forgot to serve".to_owned())
    }

    fn check_ticket(&self, ticket: &Ticket) -> Result<(), String> {
        ensure(ticket.number.0 <= self.data.counter, || "above the counter".to_owned())?;
        let stands = ticket.locks().all(|slot| {
            let lock = self.data.locks.get(slot);
            lock.is_some_and(|lock| {
                self.index.sets.lines.iter(slot, lock).any(|t| t == ticket.number)
            })
        });
        ensure(stands, || "missing from a line".to_owned())?;
        let session = ticket.bound_session();
        let orphaned = session.is_some_and(|id| self.session(id).is_none());
        ensure(!orphaned, || "its session is gone".to_owned())?;
        ensure(ticket.held || ticket.after().is_none(), || "a waiter knows an ending".to_owned())?;
        ensure(!ticket.held || ticket.claims().is_empty(), || "a holder still claims".to_owned())
    }

    fn check_requests(&self) -> Result<(), String> {
        for (_, session) in self.data.sessions.iter() {
            let ids: Vec<_> = session.requests.iter().map(|request| request.id).collect();
            ensure(ids.is_sorted() && ids.first().is_none_or(|id| *id >= session.lowest), || {
                format!("session {}: requests {ids:?}, lowest {}", session.id, session.lowest)
            })?;
            let mut weighed = session.clone();
            weighed.weigh_memory();
            ensure(weighed.memory_bytes == session.memory_bytes, || {
                format!("session {}: {} bytes of memory", session.id, session.memory_bytes)
            })?;
            for RememberedRequest { id, outcome, .. } in &session.requests {
                let RequestOutcome::Ticket(token) = outcome else { continue };
                let ticket = self.ticket(*token);
                let known =
                    ticket.is_some_and(|t| (t.session, t.request) == (Some(session.id), Some(*id)));
                ensure(known, || {
                    format!("request {id} of session {} lost ticket {token}", session.id)
                })?;
            }
        }
        for (_, alone) in self.data.alone.iter() {
            let over = !matches!(alone.outcome, RequestOutcome::Ticket(_));
            ensure(over == alone.forget.is_some(), || {
                format!("request {} is never forgotten", alone.key)
            })?;
            let RequestOutcome::Ticket(token) = &alone.outcome else { continue };
            let ticket = self.ticket(*token);
            let known = ticket.is_some_and(|ticket| ticket.request_key() == Some(&alone.key));
            ensure(known, || format!("request {} lost ticket {token}", alone.key))?;
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), String> {
        let (data, limits) = (&self.data, &self.limits);
        let of_node = |session: &Session| matches!(session.kind, SessionKind::NodeOf { .. });
        let sessions = data.sessions.iter().filter(|(_, session)| !of_node(session));
        let within = data.tickets.len() <= limits.tickets_max
            && sessions.count() <= limits.sessions_max
            && data.alone.len() <= limits.requests_alone_max
            && data.register.len() <= limits.register_keys_max
            && self.index.sets.deaths.len() <= limits.deaths_max;
        ensure(within, || format!("beyond a bound: {:?}", self.counts()))
    }

    /// Whether a token is held right now, for checkers to compare grants with.
    pub(crate) fn is_held(&self, token: Token) -> bool {
        self.ticket(token).is_some_and(|ticket| ticket.held)
    }
}

pub(crate) fn check_index<T: Keyed>(
    what: &str,
    index: &Index<T>,
    slab: &Slab<T>,
) -> Result<(), String> {
    let found = slab.iter().all(|(slot, record)| index.get(slab, record.key()) == Some(slot));
    ensure(found && index.len() == slab.len(), || format!("index of {what} does not match"))
}

pub(crate) fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wrong()) }
}
