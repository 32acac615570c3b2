//! The state of a guard: set by the session's driver, read by the guard.

use crate::clock;
use crate::error::EndReason;
use crate::gate::Gate;
use crate::session::{Lease, Moment, guard_health};
use crate::timer::sleep;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Keeps a timer that is already due from spinning.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The health of a guard's lease.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// use holdfast_client::Health;
///
/// let guard = client.lock("seat-12A").acquire().await?;
/// match guard.health() {
///     Health::Good => println!("work"),
///     Health::Jeopardy => println!("begin nothing new"),
///     Health::Lost(how) => println!("stop ({how})"),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Confirmed recently.
    Good,
    /// The server has not confirmed it for a while. It is still good; prepare to stop.
    Jeopardy,
    /// It is over, or may be: stop. This is final.
    Lost(EndReason),
}

/// A request to the holder to release.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// # let guard = client.lock("seat-12A").acquire().await?;
/// tokio::select! {
///     asked = guard.asked_to_let_go() => {
///         println!("{:?} asks, because {:?}: {:?} left", asked.by, asked.reason, asked.within);
///     }
///     () = tokio::time::sleep(Duration::from_millis(10)) => println!("nobody asks"),
/// }
/// guard.release().await?;
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Who asks.
    pub by: Bytes,
    /// Why.
    pub reason: Bytes,
    /// How long the holder has, from when the client received the request.
    pub within: Duration,
    /// Whether the lock is broken after that. As with any lease, the guard is lost a tenth earlier.
    pub force: bool,
}

/// A lease that the driver confirms and guards read.
#[derive(Debug)]
pub(crate) struct SharedLease {
    ttl: Duration,
    /// A [`Moment`].
    counts_from: AtomicU64,
}

impl SharedLease {
    pub(crate) fn confirm(&self, counts_from: Moment) {
        self.counts_from.fetch_max(counts_from.nanos(), Ordering::AcqRel);
    }

    fn get(&self) -> Lease {
        let counts_from = Moment::from_nanos(self.counts_from.load(Ordering::Acquire));
        Lease::confirmed(self.ttl, counts_from)
    }
}

impl From<Lease> for SharedLease {
    fn from(lease: Lease) -> Self {
        Self { ttl: lease.ttl(), counts_from: AtomicU64::new(lease.counts_from().nanos()) }
    }
}

/// The state of a guard. It stays the same when an upgrade replaces the ticket.
#[derive(Debug)]
pub(crate) struct GuardState {
    lease: Arc<SharedLease>,
    shown: Mutex<Shown>,
    changed: Notify,
    /// When the lock is broken, whatever its lease: a [`Moment`], or the end of time. A server
    /// neither cancels nor delays this.
    forced_at: AtomicU64,
    /// Closed while a mode change is unsettled.
    pub(crate) gate: Gate,
}

#[derive(Debug)]
struct Shown {
    health: Health,
    revocation: Option<Revocation>,
    /// How many times the holder was asked to release.
    revocations: u64,
}

impl GuardState {
    pub(crate) fn new(lease: Arc<SharedLease>) -> Self {
        let shown = Shown { health: Health::Good, revocation: None, revocations: 0 };
        Self {
            lease,
            shown: Mutex::new(shown),
            changed: Notify::new(),
            forced_at: AtomicU64::new(u64::MAX),
            gate: Gate::default(),
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn confirm(&self, counts_from: Moment) {
        self.lease.confirm(counts_from);
    }

    /// How long the lease lasts without a confirmation.
    pub(crate) fn ttl(&self) -> Duration {
        self.lease.ttl
    }

    /// Records a request to release; the lock may be broken from `forced_at` on.
    pub(crate) fn ask_to_let_go(&self, asked: Revocation, forced_at: Option<Moment>) {
        if let Some(forced_at) = forced_at {
            self.forced_at.fetch_min(forced_at.nanos(), Ordering::AcqRel);
        }
        let mut shown = self.shown();
        shown.revocation = Some(asked);
        shown.revocations += 1;
        drop(shown);
        self.changed.notify_waiters();
    }

    fn forced_at(&self) -> Moment {
        Moment::from_nanos(self.forced_at.load(Ordering::Acquire))
    }

    /// The health by the clock, whatever the driver has set: after a process was stopped, the
    /// driver may not have noticed yet.
    pub(crate) fn health(&self) -> Health {
        let shown = self.shown().health;
        match guard_health(shown, self.lease.get(), self.forced_at(), clock::now()) {
            lost @ Health::Lost(_) => self.show(lost),
            health => health,
        }
    }

    /// Sets the health, and returns what is shown afterwards: a lost guard stays lost.
    pub(crate) fn show(&self, health: Health) -> Health {
        let mut shown = self.shown();
        if matches!(shown.health, Health::Lost(_)) || shown.health == health {
            return shown.health;
        }
        shown.health = health;
        drop(shown);
        self.changed.notify_waiters();
        health
    }

    /// How long the lease is certain to last without a confirmation.
    pub(crate) fn remaining(&self) -> Duration {
        match self.health() {
            Health::Lost(_) => Duration::ZERO,
            Health::Good | Health::Jeopardy => {
                clock::now().until(self.lease.get().ends().min(self.forced_at()))
            }
        }
    }

    /// Resolves when the guard is lost, as set by the driver or by the clock, whichever is first.
    pub(crate) async fn lost(&self) -> EndReason {
        loop {
            let changed = self.changed.notified();
            if let Health::Lost(how) = self.health() {
                return how;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(self.remaining().max(PAUSE_MIN)) => {}
            }
        }
    }

    /// Resolves when the health or the number of revocations has changed, or when it is lost by the
    /// clock.
    pub(crate) async fn changed(&self, health: Health, seen: u64) {
        loop {
            let changed = self.changed.notified();
            if self.health() != health || self.shown().revocations != seen {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(self.remaining().max(PAUSE_MIN)) => {}
            }
        }
    }

    /// The last request to release, if it came after the first `seen`, which is updated.
    pub(crate) fn revocation_after(&self, seen: &mut u64) -> Option<Revocation> {
        let shown = self.shown();
        if shown.revocations == *seen {
            return None;
        }
        *seen = shown.revocations;
        shown.revocation.clone()
    }

    /// Resolves when the holder is asked to release, or has been before.
    pub(crate) async fn asked_to_let_go(&self) -> Revocation {
        loop {
            let changed = self.changed.notified();
            let asked = self.shown().revocation.clone();
            match asked {
                Some(asked) => return asked,
                None => changed.await,
            }
        }
    }
}
