//! A held ticket. Dropping it releases the lock.

use crate::driver::Order;
use crate::error::EndReason;
use crate::guard_state::{GuardState, Health};
use crate::runtime::HomeRuntime;
use crate::session::{CallId, ModeChange, Room, TicketRef};
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How an earlier holder ended.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let guard = client.lock("seat-12A").acquire().await?;
/// match guard.ending() {
///     Some(ending) if ending.how.died() => println!("{:?} died: {:?}", ending.label, ending.note),
///     Some(ending) => println!("token {} finished", ending.token),
///     None => println!("nobody is remembered"),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The name of the lock.
    pub name: Bytes,
    /// Released, expired, closed, forced or restored.
    pub how: EndReason,
    /// Its token.
    pub token: Token,
    /// Its label.
    pub label: Option<Bytes>,
    /// Its note.
    pub note: Option<Bytes>,
}

impl Ending {
    pub(crate) fn of(name: &Bytes, ending: &proto::Ending) -> Self {
        Self {
            name: name.clone(),
            how: EndReason::of(ending.how),
            token: Token::new(ending.token),
            label: ending.label.clone(),
            note: ending.note.clone(),
        }
    }
}

/// Handles to the session's driver.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) orders: WeakUnboundedSender<Order>,
    pub(crate) home: Arc<HomeRuntime>,
}

/// A held ticket.
pub(crate) struct HeldTicket {
    /// The call that acquired it, which identifies its guard.
    pub(crate) guard: CallId,
    pub(crate) ticket: TicketRef,
    pub(crate) names: Vec<Bytes>,
    pub(crate) endings: Vec<Ending>,
    pub(crate) needs_recovery: Vec<Ending>,
    pub(crate) state: Arc<GuardState>,
    pub(crate) has_own_lease: bool,
    /// The weaker mode while a change is unsettled: shared as soon as a downgrade is requested.
    mode: AtomicI32,
    /// The writer's ticket that replaced it in an upgrade, which ended this one.
    successor: OnceLock<Arc<HeldTicket>>,
    /// Set if an upgrade of this ticket was served, or may have been, and the writer's ticket is
    /// over or was given up. The server would report this ticket as released.
    over_as_writer: OnceLock<EndReason>,
    handles: Arc<Handles>,
    /// `None` once its end is handled elsewhere, or its successor has the room.
    room: Mutex<Option<Room>>,
}

impl HeldTicket {
    pub(crate) fn new(
        guard: CallId,
        grant: proto::Grant,
        state: Arc<GuardState>,
        handles: Arc<Handles>,
        room: Room,
    ) -> Self {
        let has_own_lease = grant.ttl_ms.is_some();
        let (mode, after) = (grant.mode, grant.after);
        let name = grant.names.first().cloned().unwrap_or_default();
        let endings = |of: fn(&proto::PriorEndings) -> Option<&proto::Ending>| {
            after.iter().filter_map(|after| Some(Ending::of(&after.name, of(after)?))).collect()
        };
        Self {
            guard,
            ticket: TicketRef { name, token: grant.token, secret: grant.secret },
            endings: endings(|after| after.last.as_ref()),
            needs_recovery: endings(|after| after.needs_recovery.as_ref()),
            names: grant.names,
            state,
            has_own_lease,
            mode: AtomicI32::new(mode),
            successor: OnceLock::new(),
            over_as_writer: OnceLock::new(),
            handles,
            room: Mutex::new(Some(room)),
        }
    }

    pub(crate) fn mode(&self) -> proto::Mode {
        proto::Mode::try_from(self.mode.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// The ticket that is currently held: this one, or the one from an upgrade.
    pub(crate) fn current(&self) -> &Self {
        let mut current = self;
        while let Some(next) = current.successor.get() {
            current = next;
        }
        current
    }

    /// The ticket to keep in place of this one; `None` if this one is current.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        let next = self.successor.get()?;
        Some(next.successor().unwrap_or_else(|| next.clone()))
    }

    pub(crate) fn take_successor(&mut self) -> Option<Arc<Self>> {
        self.successor.take()
    }

    /// An upgrade was served: this ticket is over, and its guards have another one.
    pub(crate) fn succeeded_by(&self, grant: proto::Grant, room: Room) -> Arc<Self> {
        // It takes over the reader's room: the other was only for its wait.
        let room = self.room().take().unwrap_or(room);
        let (state, handles) = (self.state.clone(), self.handles.clone());
        let writer = Arc::new(Self::new(self.guard, grant, state, handles, room));
        // There is one change at a time, so it is not set yet.
        let _ = self.successor.set(writer.clone());
        writer
    }

    pub(crate) fn set_mode(&self, mode: proto::Mode) {
        self.mode.store(mode.into(), Ordering::Release);
    }

    /// The writer's ticket from its upgrade is over.
    pub(crate) fn set_over_as_writer(&self, how: EndReason) {
        // The reason that became known first is the true one.
        let _ = self.over_as_writer.set(how);
    }

    pub(crate) fn over_as_writer(&self) -> Option<EndReason> {
        self.over_as_writer.get().copied()
    }

    /// What an upgrade or downgrade needs to know.
    pub(crate) fn mode_change(&self) -> ModeChange {
        ModeChange {
            guard: self.guard,
            names: self.names.clone(),
            before: self.mode(),
            own_ttl: self.has_own_lease.then(|| self.state.ttl()),
        }
    }

    fn room(&self) -> MutexGuard<'_, Option<Room>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the caller responsible for ending the ticket.
    pub(crate) fn take_over(self) -> Option<Room> {
        self.room().take()
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state.health(), Health::Lost(_))
    }
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        let Some(room) = self.room().take() else { return };
        if self.successor.get().is_some() {
            // The server has ended this ticket; its successor is released with its last guard.
            return;
        }
        if let Some(orders) = self.handles.orders.upgrade() {
            let (guard, ticket, lost) = (self.guard, self.ticket.clone(), self.is_lost());
            // If the driver has ended, it has closed the session.
            let _ = orders.send(Order::Drop { guard, ticket, lost, room });
            self.handles.home.flush(&orders);
        }
    }
}

impl fmt::Debug for HeldTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without its secret.
        f.debug_struct("Guard")
            .field("names", &self.names)
            .field("token", &self.ticket.token)
            .finish_non_exhaustive()
    }
}
