//! A guard, as the application has it: what it says of itself is what the Rust client's guard says.

use holdfast_client::session::{Lease, ModeChange, Moment, Room, TicketRef, guard_health};
use holdfast_client::{EndReason, Health};
use holdfast_core::{LockName, Mode, Token};
use holdfast_proto::v1 as proto;

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) ticket: TicketRef,
    pub(crate) names: Vec<LockName>,
    pub(crate) mode: Mode,
    /// None if it lives by the session.
    pub(crate) lease: Option<Lease>,
    /// By which of the client's sessions it lives.
    pub(crate) session: usize,
    pub(crate) shown: Health,
    pub(crate) forced_at: Option<Moment>,
    /// Its label is its own: it is not upgraded.
    pub(crate) labelled: bool,
    /// An upgrade or a downgrade is on its way: other requests wait.
    pub(crate) unsettled: bool,
    /// The writer's ticket that it became is over.
    pub(crate) over_as_writer: bool,
    pub(crate) release_at_us: u64,
    pub(crate) room: Option<Room>,
}

impl Guard {
    pub(crate) fn token(&self) -> Token {
        Token(self.ticket.token)
    }

    pub(crate) fn lease(&self, leases: &[Lease]) -> Option<Lease> {
        self.lease.or_else(|| leases.get(self.session).copied())
    }

    fn health(&self, leases: &[Lease], now: Moment) -> Health {
        let forced_at = self.forced_at.unwrap_or(Moment::from_nanos(u64::MAX));
        let Some(lease) = self.lease(leases) else { return Health::Lost(EndReason::Unknown) };
        guard_health(self.shown, lease, forced_at, now)
    }

    /// Whether it says that the lock is held: good, or in jeopardy.
    pub(crate) fn is_good(&self, leases: &[Lease], now: Moment) -> bool {
        !matches!(self.health(leases, now), Health::Lost(_))
    }

    /// Somebody looks at it: once it is lost, it stays lost.
    pub(crate) fn look(&mut self, leases: &[Lease], now: Moment) -> Health {
        let health = self.health(leases, now);
        if matches!(health, Health::Lost(_)) {
            self.shown = health;
        }
        health
    }

    /// What an upgrade or a downgrade is about.
    pub(crate) fn change(&self, guard: holdfast_client::session::CallId) -> ModeChange {
        ModeChange {
            guard,
            names: self.names.iter().map(|name| name.as_bytes().to_vec().into()).collect(),
            before: match self.mode {
                Mode::Exclusive => proto::Mode::Exclusive,
                Mode::Shared => proto::Mode::Shared,
                Mode::Permit { .. } => proto::Mode::Permit,
            },
            own_ttl: self.lease.map(|lease| lease.ttl()),
        }
    }
}
