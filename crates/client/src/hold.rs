//! A ticket that is being served: whoever has this, has the lock. When it goes, the lock goes.

use crate::driver::Home;
use crate::error::How;
use crate::fate::{Fate, Health};
use crate::gate::Gate;
use crate::link::{Order, Permit};
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How a holder before this one ended.
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
    /// On which lock.
    pub name: Bytes,
    /// Released, expired, closed, forced or restored.
    pub how: How,
    /// Its token.
    pub token: Token,
    /// What it called itself.
    pub label: Option<Bytes>,
    /// What it had left on the lock.
    pub note: Option<Bytes>,
}

impl Ending {
    pub(crate) fn of(name: &Bytes, ending: &proto::Ending) -> Self {
        Self {
            name: name.clone(),
            how: How::of(ending.how),
            token: Token::new(ending.token),
            label: ending.label.clone(),
            note: ending.note.clone(),
        }
    }
}

/// Ways to the session's task.
#[derive(Debug, Clone)]
pub(crate) struct Handles {
    pub(crate) orders: WeakUnboundedSender<Order>,
    pub(crate) home: Arc<Home>,
}

/// A ticket that is being served.
pub(crate) struct Hold {
    pub(crate) own: proto::Own,
    pub(crate) names: Vec<Bytes>,
    pub(crate) endings: Vec<Ending>,
    pub(crate) needs_recovery: Vec<Ending>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) has_own_lease: bool,
    /// What it surely is, not more: it is shared as soon as a downgrade is asked for.
    mode: AtomicI32,
    /// Closed while a change of its mode is not settled. Successors have the same.
    pub(crate) gate: Arc<Gate>,
    /// The writer's ticket that an upgrade got in its place: this one is over then.
    successor: OnceLock<Arc<Hold>>,
    /// An upgrade of this ticket was served, or may have been, and its writer's ticket is over or
    /// was given up. The server would say of this one that it was released.
    over_as_writer: OnceLock<How>,
    handles: Handles,
    /// None once somebody else sees to its end, or its successor has it.
    permit: Mutex<Option<Permit>>,
}

impl Hold {
    pub(crate) fn new(
        grant: proto::Grant,
        fate: Arc<Fate>,
        handles: Handles,
        permit: Permit,
    ) -> Self {
        Self::with(grant, fate, Arc::default(), handles, permit)
    }

    fn with(
        grant: proto::Grant,
        fate: Arc<Fate>,
        gate: Arc<Gate>,
        handles: Handles,
        permit: Permit,
    ) -> Self {
        let has_own_lease = grant.ttl_ms.is_some();
        let (mode, after) = (grant.mode, grant.after);
        let name = grant.names.first().cloned().unwrap_or_default();
        let endings = |of: fn(&proto::After) -> Option<&proto::Ending>| {
            after.iter().filter_map(|after| Some(Ending::of(&after.name, of(after)?))).collect()
        };
        Self {
            own: proto::Own { name, token: grant.token, secret: grant.secret },
            endings: endings(|after| after.last.as_ref()),
            needs_recovery: endings(|after| after.needs_recovery.as_ref()),
            names: grant.names,
            fate,
            has_own_lease,
            mode: AtomicI32::new(mode),
            gate,
            successor: OnceLock::new(),
            over_as_writer: OnceLock::new(),
            handles,
            permit: Mutex::new(Some(permit)),
        }
    }

    pub(crate) fn mode(&self) -> proto::Mode {
        proto::Mode::try_from(self.mode.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// The ticket that is held now: this one, or the one that an upgrade got.
    pub(crate) fn current(&self) -> &Self {
        let mut current = self;
        while let Some(next) = current.successor.get() {
            current = next;
        }
        current
    }

    /// The same, to be kept in place of this one; none if this one is it.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        let next = self.successor.get()?;
        Some(next.successor().unwrap_or_else(|| next.clone()))
    }

    pub(crate) fn take_successor(&mut self) -> Option<Arc<Self>> {
        self.successor.take()
    }

    /// An upgrade was served: this ticket is over, and its guards have another one. Returns its
    /// token.
    pub(crate) fn succeeded_by(&self, grant: proto::Grant, permit: Permit) -> u64 {
        let token = grant.token;
        let (fate, gate) = (self.fate.clone(), self.gate.clone());
        // It has the reader's room: the other was only for its wait.
        let permit = self.permit().take().unwrap_or(permit);
        let writer = Self::with(grant, fate, gate, self.handles.clone(), permit);
        // One change at a time, and this was none of those before.
        let _ = self.successor.set(Arc::new(writer));
        token
    }

    pub(crate) fn set_mode(&self, mode: proto::Mode) {
        self.mode.store(mode.into(), Ordering::Release);
    }

    /// The writer's ticket that it became is over.
    pub(crate) fn set_over_as_writer(&self, how: How) {
        // What was known first is true.
        let _ = self.over_as_writer.set(how);
    }

    pub(crate) fn over_as_writer(&self) -> Option<How> {
        self.over_as_writer.get().copied()
    }

    /// How long its own lease is; none if it lives by the session.
    pub(crate) fn own_ttl_ms(&self) -> Option<u64> {
        let ttl_ms = u64::try_from(self.fate.lease.ttl().as_millis()).unwrap_or(u64::MAX);
        self.has_own_lease.then_some(ttl_ms)
    }

    fn permit(&self) -> MutexGuard<'_, Option<Permit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the caller sees to its end.
    pub(crate) fn take_over(self) -> Option<Permit> {
        self.permit().take()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(permit) = self.permit().take() else { return };
        if self.successor.get().is_some() {
            // The server has ended this one; the other is let go with its last guard.
            return;
        }
        // One that was lost did not finish: its lease runs out, and the next holder hears so.
        let lost = matches!(self.fate.health(), Health::Lost(_));
        if let Some(orders) = self.handles.orders.upgrade() {
            // If the link has ended, it has closed the session.
            let _ = orders.send(Order::LetGo { own: self.own.clone(), lost, permit });
            self.handles.home.flush(&orders);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without its secret.
        f.debug_struct("Hold")
            .field("names", &self.names)
            .field("token", &self.own.token)
            .finish_non_exhaustive()
    }
}
