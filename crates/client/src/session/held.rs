//! The held tickets. A great many may depend on the session; those with a lease of their own are
//! checked often, so they are also kept in a separate list.

use super::io::{Answer, CallId, GuardChange, Output, TicketRef, WatchId};
use super::lease::Lease;
use super::request::Request;
use super::room::Room;
use crate::error::EndReason;
use crate::guard_state::Health;
use holdfast_proto::v1 as proto;
use std::collections::{BTreeMap, BTreeSet};

/// A held ticket.
#[derive(Debug)]
pub(super) struct HeldTicket {
    pub(super) guard: CallId,
    pub(super) ticket: TicketRef,
    /// `None` if it depends on the session.
    pub(super) own_lease: Option<Lease>,
    /// The session that it was acquired in, as numbered by this client: the server notifies only
    /// that one. (A new cluster in the place of this one may reuse the server's number.)
    pub(super) session: u64,
    /// The health that its guard was shown.
    pub(super) in_jeopardy: bool,
    /// For a ticket that has outlived its session.
    pub(super) watch: Option<WatchId>,
    /// It may be over: renew it now, before it is due.
    pub(super) renew_now: bool,
    /// A renewal is in flight.
    pub(super) renewing: bool,
    /// Its lease may already be over: it is renewed before it is handed out.
    pub(super) not_handed_out: Option<NotHandedOut>,
}

/// A grant that its caller has not received yet.
#[derive(Debug)]
pub(super) struct NotHandedOut {
    pub(super) request: Request,
    pub(super) grant: proto::Grant,
    pub(super) room: Room,
}

impl HeldTicket {
    pub(super) fn new(
        guard: CallId,
        ticket: TicketRef,
        own_lease: Option<Lease>,
        session: u64,
    ) -> Self {
        Self {
            guard,
            ticket,
            own_lease,
            session,
            in_jeopardy: false,
            watch: None,
            renew_now: false,
            renewing: false,
            not_handed_out: None,
        }
    }

    pub(super) fn hand_out_later(&mut self, request: Request, grant: proto::Grant, room: Room) {
        self.not_handed_out = Some(NotHandedOut { request, grant, room });
    }

    pub(super) fn show(&mut self, outputs: &mut Vec<Output>, in_jeopardy: bool) {
        if self.in_jeopardy != in_jeopardy {
            self.in_jeopardy = in_jeopardy;
            let health = if in_jeopardy { Health::Jeopardy } else { Health::Good };
            outputs.push(Output::Guard(self.guard, GuardChange::Health(health)));
        }
    }

    pub(super) fn lose(&self, outputs: &mut Vec<Output>, how: EndReason) {
        // Its caller does not have it yet: the call fails.
        if self.not_handed_out.is_none() {
            outputs.push(Output::Guard(self.guard, GuardChange::Health(Health::Lost(how))));
        }
    }
}

impl NotHandedOut {
    /// Hands it out; returns its room if its caller no longer waits.
    pub(super) fn hand_out(self, outputs: &mut Vec<Output>, lease: Option<Lease>) -> Option<Room> {
        let Self { request, grant, room } = self;
        let Some(call) = request.call else { return Some(room) };
        outputs.push(Output::Complete(call, Ok(Answer::Granted { grant, lease, room })));
        None
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    all: BTreeMap<u64, HeldTicket>,
    with_own_lease: BTreeSet<u64>,
}

impl Held {
    /// Returns an older ticket with the same number: numbers are never reused, so the cluster it
    /// came from no longer exists.
    pub(super) fn insert(&mut self, held: HeldTicket) -> Option<HeldTicket> {
        let token = held.ticket.token;
        if held.own_lease.is_some() {
            self.with_own_lease.insert(token);
        } else if !self.with_own_lease.is_empty() {
            self.with_own_lease.remove(&token);
        }
        self.all.insert(token, held)
    }

    /// Whether this exact ticket is held.
    pub(super) fn has(&self, ticket: &TicketRef) -> bool {
        self.all.get(&ticket.token).is_some_and(|held| held.ticket.secret == ticket.secret)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<HeldTicket> {
        let removed = self.all.remove(&token)?;
        if removed.own_lease.is_some() {
            self.with_own_lease.remove(&token);
        }
        Some(removed)
    }

    pub(super) fn get(&self, token: u64) -> Option<&HeldTicket> {
        self.all.get(&token)
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut HeldTicket> {
        self.all.get_mut(&token)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has_own_lease(&self, token: u64) -> bool {
        self.with_own_lease.contains(&token)
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.all.keys().copied()
    }

    pub(super) fn in_session(&mut self) -> impl Iterator<Item = &mut HeldTicket> {
        self.all.values_mut().filter(|held| held.own_lease.is_none())
    }

    /// Their tokens, in order.
    pub(super) fn with_own_lease(&self) -> Vec<u64> {
        self.with_own_lease.iter().copied().collect()
    }

    pub(super) fn has_own_leases(&self) -> bool {
        !self.with_own_lease.is_empty()
    }

    /// The leases of tickets with their own.
    pub(super) fn own_leases(&self) -> impl Iterator<Item = Lease> {
        let held = self.with_own_lease.iter().filter_map(|token| self.all.get(token));
        held.filter_map(|held| held.own_lease)
    }

    /// Visits the requests whose callers still wait for their guards.
    pub(super) fn for_each_not_handed_out(&mut self, mut each: impl FnMut(&mut Request)) {
        for token in &self.with_own_lease {
            let held = self.all.get_mut(token);
            if let Some(kept) = held.and_then(|held| held.not_handed_out.as_mut()) {
                each(&mut kept.request);
            }
        }
    }

    /// Takes out those that match and were not handed out.
    pub(super) fn take_not_handed_out(
        &mut self,
        fits: impl Fn(&Request) -> bool,
    ) -> Vec<(TicketRef, NotHandedOut)> {
        let mut taken = Vec::new();
        for token in &self.with_own_lease {
            let Some(held) = self.all.get_mut(token) else { continue };
            let unwanted = held.not_handed_out.take_if(|kept| fits(&kept.request));
            taken.extend(unwanted.map(|kept| (held.ticket.clone(), kept)));
        }
        taken
    }

    /// Takes out those that end with their session, or all.
    pub(super) fn take_ended(&mut self, all: bool) -> Vec<HeldTicket> {
        if all {
            self.with_own_lease.clear();
            return std::mem::take(&mut self.all).into_values().collect();
        }
        let ended = self.all.extract_if(.., |_, held| held.own_lease.is_none());
        ended.map(|(_, held)| held).collect()
    }
}
