//! Callers that wait for answers, and their guards.

use super::Answer;
use crate::error::{EndReason, Error};
use crate::gate::Changing;
use crate::guard_state::{GuardState, Health, SharedLease};
use crate::held_ticket::{Handles, HeldTicket};
use crate::session::{self, Call, CallId, GuardChange, Input, Lease, Moment, Room, TicketRef};
use holdfast_proto::v1 as proto;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// A call, and the guard that is identified by it once it is granted.
enum Caller {
    Opens(oneshot::Sender<Result<(), Error>>),
    Waits(oneshot::Sender<Result<Answer, Error>>),
    Holds(Holder),
}

/// The part of a guard that the driver needs.
struct Holder {
    /// Where the guard reads its state. Holding a ticket makes a guard, so the driver holds one
    /// only while a mode change is unsettled, when other requests of the guard wait.
    state: Arc<GuardState>,
    ticket: Weak<HeldTicket>,
}

impl Holder {
    fn of(held: &Arc<HeldTicket>) -> Self {
        Self { state: held.state.clone(), ticket: Arc::downgrade(held) }
    }
}

pub(super) struct Callers {
    handles: Arc<Handles>,
    callers: HashMap<CallId, Caller>,
    /// Guards whose mode is being changed.
    changing: HashMap<CallId, Changing>,
    /// `None` before the first session.
    session_lease: Option<Arc<SharedLease>>,
}

impl Callers {
    pub(super) fn new(handles: Handles) -> Self {
        Self {
            handles: Arc::new(handles),
            callers: HashMap::new(),
            changing: HashMap::new(),
            session_lease: None,
        }
    }

    pub(super) fn open(&mut self, call: CallId, reply: oneshot::Sender<Result<(), Error>>) {
        self.callers.insert(call, Caller::Opens(reply));
    }

    pub(super) fn call(
        &mut self,
        call: &Call,
        reply: oneshot::Sender<Result<Answer, Error>>,
        changing: Option<Changing>,
        releases: Option<CallId>,
    ) {
        self.callers.insert(call.call, Caller::Waits(reply));
        if let (Some(changing), Some(change)) = (changing, &call.change) {
            self.changing.insert(change.guard, changing);
        }
        if let Some(guard) = releases {
            self.callers.remove(&guard);
        }
    }

    /// The caller no longer waits. A guard that it has already received is released on its own.
    pub(super) fn abandon(&mut self, call: CallId) {
        if let Some(Caller::Waits(_)) = self.callers.get(&call) {
            self.callers.remove(&call);
        }
    }

    /// A guard was dropped.
    pub(super) fn forget(&mut self, guard: CallId) {
        self.callers.remove(&guard);
    }

    pub(super) fn close(&mut self) {
        self.callers.clear();
        self.changing.clear();
    }

    pub(super) fn session_opened(&mut self, lease: Lease) {
        self.session_lease = Some(Arc::new(lease.into()));
    }

    pub(super) fn session_confirmed(&self, counts_from: Moment) {
        if let Some(lease) = &self.session_lease {
            lease.confirm(counts_from);
        }
    }

    /// Completes a call. A guard that nobody takes is returned.
    pub(super) fn complete(
        &mut self,
        call: CallId,
        answer: Result<session::Answer, Error>,
    ) -> Option<Input> {
        let answer = match answer {
            Ok(session::Answer::Granted { grant, lease, room }) => {
                return self.grant(call, grant, lease, room);
            }
            Ok(session::Answer::Reply(what)) => Ok(Answer::Reply(what)),
            Ok(session::Answer::Opened) => {
                if let Some(Caller::Opens(reply)) = self.callers.remove(&call) {
                    let _ = reply.send(Ok(()));
                }
                return None;
            }
            Err(error) => Err(error),
        };
        // If the future was dropped, nobody receives this.
        match (self.callers.remove(&call), answer) {
            (Some(Caller::Waits(reply)), answer) => drop(reply.send(answer)),
            (Some(Caller::Opens(reply)), Err(error)) => drop(reply.send(Err(error))),
            _ => {}
        }
        None
    }

    fn grant(
        &mut self,
        call: CallId,
        grant: proto::Grant,
        lease: Option<Lease>,
        room: Room,
    ) -> Option<Input> {
        let lease = match lease {
            Some(lease) => Arc::new(lease.into()),
            None => self.session_lease.clone()?,
        };
        let Some(caller @ Caller::Waits(_)) = self.callers.get_mut(&call) else {
            return Some(not_taken(&grant, room));
        };
        let state = Arc::new(GuardState::new(lease));
        let held = HeldTicket::new(call, grant, state, self.handles.clone(), room);
        let held = Arc::new(held);
        let holds = Caller::Holds(Holder::of(&held));
        let Caller::Waits(reply) = std::mem::replace(caller, holds) else { return None };
        match reply.send(Ok(Answer::Held(held))) {
            Err(Ok(Answer::Held(held))) => {
                self.callers.remove(&call);
                let_go(Arc::into_inner(held)?, false)
            }
            _ => None,
        }
    }

    /// Gives a guard the new ticket from its upgrade.
    pub(super) fn upgraded(
        &mut self,
        guard: CallId,
        call: Option<CallId>,
        grant: proto::Grant,
        room: Room,
    ) -> Option<Input> {
        let reader = match self.callers.get(&guard) {
            Some(Caller::Holds(reader)) => reader.ticket.upgrade(),
            _ => None,
        };
        let Some(reader) = reader else {
            return Some(not_taken(&grant, room));
        };
        let (answer, unwanted) = match reader.state.health() {
            // The holder was already notified of the loss, which is final. It did not finish its
            // work: its lease runs out, and the next holder learns of a death.
            Health::Lost(how) => {
                reader.set_over_as_writer(how);
                let ticket = ticket(&grant);
                let dropped = Input::Drop { ticket, lost: how == EndReason::Expired, room };
                (Err(Error::Over(how)), Some(dropped))
            }
            _ => {
                let writer = reader.succeeded_by(grant, room);
                self.callers.insert(guard, Caller::Holds(Holder::of(&writer)));
                drop(writer);
                (Ok(Answer::Upgraded), None)
            }
        };
        if let Some(Caller::Waits(reply)) = call.and_then(|call| self.callers.remove(&call)) {
            let _ = reply.send(answer);
        }
        // If both are to be dropped, the reader was lost, and nothing is left of it.
        let reader = self.give_back(guard, reader);
        unwanted.or(reader)
    }

    pub(super) fn guard_changed(&mut self, guard: CallId, change: GuardChange) -> Option<Input> {
        if change == GuardChange::Settled {
            self.changing.remove(&guard);
            return None;
        }
        let Some(Caller::Holds(Holder { state, ticket })) = self.callers.get(&guard) else {
            return None;
        };
        match change {
            GuardChange::Health(health) => {
                state.show(health);
            }
            GuardChange::Confirmed(counts_from) => state.confirm(counts_from),
            GuardChange::Revocation(asked, forced_at) => state.ask_to_let_go(asked, forced_at),
            GuardChange::Mode(mode) => {
                let held = ticket.upgrade()?;
                held.set_mode(mode);
                return self.give_back(guard, held);
            }
            GuardChange::OverAsWriter(how) => {
                let held = ticket.upgrade()?;
                held.set_over_as_writer(how);
                return self.give_back(guard, held);
            }
            GuardChange::Settled => {}
        }
        None
    }

    /// Returns a guard's ticket. If the guard was dropped in the meantime, the ticket is released
    /// here, since there may be no other handle left.
    fn give_back(&mut self, guard: CallId, held: Arc<HeldTicket>) -> Option<Input> {
        let dropped = Arc::into_inner(held).and_then(dropped);
        if dropped.is_some() {
            self.callers.remove(&guard);
        }
        dropped
    }
}

fn ticket(grant: &proto::Grant) -> TicketRef {
    let name = grant.names.first().cloned().unwrap_or_default();
    TicketRef { name, token: grant.token, secret: grant.secret.clone() }
}

/// A grant whose caller is gone.
fn not_taken(grant: &proto::Grant, room: Room) -> Input {
    Input::Drop { ticket: ticket(grant), lost: false, room }
}

/// Releases a ticket that has no guard any more.
fn dropped(mut held: HeldTicket) -> Option<Input> {
    while let Some(writer) = held.take_successor() {
        // The server has ended this ticket.
        drop(held.take_over());
        // If it has other guards, the last of them releases it.
        held = Arc::into_inner(writer)?;
    }
    let lost = held.is_lost();
    let_go(held, lost)
}

fn let_go(held: HeldTicket, lost: bool) -> Option<Input> {
    let ticket = held.ticket.clone();
    Some(Input::Drop { ticket, lost, room: held.take_over()? })
}
