//! The state of a guard: the session's driver sets it, guards look at it.

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

/// A timer that is due at once must not spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// How the lease of a guard is.
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
    /// Confirmed not long ago.
    Good,
    /// The server has not confirmed it for a while. It is still good; prepare to stop.
    Jeopardy,
    /// It is over, or may be: stop. This is final.
    Lost(EndReason),
}

/// Somebody asks the holder to let go.
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
    /// How long the holder has, from when it was heard.
    pub within: Duration,
    /// Whether the lock is taken away then. The guard is lost a tenth before that, as with any
    /// lease.
    pub force: bool,
}

/// A lease that the driver confirms and guards look at.
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

/// The state of a guard, whichever ticket it has: an upgrade gives it another one.
#[derive(Debug)]
pub(crate) struct GuardState {
    lease: Arc<SharedLease>,
    shown: Mutex<Shown>,
    changed: Notify,
    /// When the lock is taken away, whatever its lease: a [`Moment`], or the end of time. A server
    /// does not take that back, nor put it off.
    forced_at: AtomicU64,
    /// Closed while a change of the mode is not settled.
    pub(crate) gate: Gate,
}

#[derive(Debug)]
struct Shown {
    health: Health,
    revocation: Option<Revocation>,
    /// How often somebody has asked the holder to let go.
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

    /// How long the lease is, if nobody confirms it.
    pub(crate) fn ttl(&self) -> Duration {
        self.lease.ttl
    }

    /// Somebody asks the holder to let go; from that moment on the lock may be taken away.
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

    /// The health by the clock, whatever the driver has shown: a process that was stopped looks
    /// here first.
    pub(crate) fn health(&self) -> Health {
        let shown = self.shown().health;
        match guard_health(shown, self.lease.get(), self.forced_at(), clock::now()) {
            lost @ Health::Lost(_) => self.show(lost),
            health => health,
        }
    }

    /// Shows another health, and returns what is shown then: a guard that was lost stays lost.
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

    /// How long it is surely good if nothing is heard.
    pub(crate) fn remaining(&self) -> Duration {
        match self.health() {
            Health::Lost(_) => Duration::ZERO,
            Health::Good | Health::Jeopardy => {
                clock::now().until(self.lease.get().ends().min(self.forced_at()))
            }
        }
    }

    /// Resolves when it is lost, by what the driver shows or by the clock, whichever is first.
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

    /// Resolves when something has changed since `seen` revocations, or when it is lost by the
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

    /// The last time somebody asked the holder to let go, if that was after `seen` times, which is
    /// updated.
    pub(crate) fn revocation_after(&self, seen: &mut u64) -> Option<Revocation> {
        let shown = self.shown();
        if shown.revocations == *seen {
            return None;
        }
        *seen = shown.revocations;
        shown.revocation.clone()
    }

    /// Resolves when somebody asks the holder to let go, or has asked before.
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
