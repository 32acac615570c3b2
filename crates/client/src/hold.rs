//! A ticket that is being served: whoever has this, has the lock. When it goes, the lock goes.

use crate::error::How;
use crate::fate::{Fate, Health};
use crate::link::{Order, Permit};
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
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
    pub token: u64,
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
            token: ending.token,
            label: ending.label.clone(),
            note: ending.note.clone(),
        }
    }
}

/// A ticket that is being served.
pub(crate) struct Hold {
    pub(crate) own: proto::Own,
    pub(crate) names: Vec<Bytes>,
    pub(crate) endings: Vec<Ending>,
    pub(crate) needs_recovery: Vec<Ending>,
    pub(crate) fate: Arc<Fate>,
    mode: AtomicI32,
    orders: WeakUnboundedSender<Order>,
    /// None once somebody else sees to its end.
    permit: Option<Permit>,
}

impl Hold {
    pub(crate) fn new(
        grant: proto::Grant,
        fate: Arc<Fate>,
        orders: WeakUnboundedSender<Order>,
        permit: Permit,
    ) -> Self {
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
            mode: AtomicI32::new(mode),
            orders,
            permit: Some(permit),
        }
    }

    pub(crate) fn mode(&self) -> proto::Mode {
        proto::Mode::try_from(self.mode.load(Ordering::Acquire)).unwrap_or_default()
    }

    pub(crate) fn set_mode(&self, mode: proto::Mode) {
        self.mode.store(mode.into(), Ordering::Release);
    }

    /// From now on the caller sees to its end.
    pub(crate) fn take_over(mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        // One that was lost did not finish: its lease runs out, and the next holder hears so.
        let lost = matches!(self.fate.health(), Health::Lost(_));
        if let Some(orders) = self.orders.upgrade() {
            // If the link has ended, it has closed the session.
            let _ = orders.send(Order::LetGo { own: self.own.clone(), lost, permit });
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
