//! What becomes of a held ticket: the link hears it, guards look.

use crate::clock::Moment;
use crate::error::How;
use crate::lease::{DRIFT_PARTS, Lease, Standing};
use crate::timer::sleep;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

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
    Lost(How),
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

/// What becomes of a held ticket.
#[derive(Debug)]
pub(crate) struct Fate {
    pub(crate) lease: Arc<Lease>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) revocation: watch::Sender<Option<Revocation>>,
    /// When the lock is taken away, whatever its lease: a [`Moment`], or the end of time. A server
    /// does not take that back, nor put it off.
    forced_at: AtomicU64,
}

impl Fate {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        let (health, revocation) = (watch::Sender::new(Health::Good), watch::Sender::new(None));
        Self { lease, health, revocation, forced_at: AtomicU64::new(u64::MAX) }
    }

    /// Somebody asks the holder to let go.
    pub(crate) fn ask_to_let_go(&self, asked: Revocation) {
        if asked.force {
            let surely = asked.within - asked.within / DRIFT_PARTS;
            self.forced_at.fetch_min(Moment::now().plus(surely).nanos(), Ordering::AcqRel);
        }
        self.revocation.send_replace(Some(asked));
    }

    fn forced_at(&self) -> Moment {
        Moment::of_nanos(self.forced_at.load(Ordering::Acquire))
    }

    /// How it is by the clock, whatever was heard: a process that was stopped looks here first.
    pub(crate) fn health(&self) -> Health {
        let (shown, now) = (*self.health.borrow(), Moment::now());
        match (shown, self.lease.standing(now)) {
            (Health::Lost(_), _) => shown,
            (_, Standing::Over) => self.lose(How::Expired),
            _ if now >= self.forced_at() => self.lose(How::Forced),
            (_, Standing::Jeopardy) => Health::Jeopardy,
            (_, Standing::Good) => Health::Good,
        }
    }

    /// It is over. Whoever was told so is never told otherwise.
    pub(crate) fn lose(&self, how: How) -> Health {
        self.show(Health::Lost(how));
        *self.health.borrow()
    }

    pub(crate) fn show(&self, now: Health) {
        self.health.send_if_modified(|before| {
            !matches!(before, Health::Lost(_)) && std::mem::replace(before, now) != now
        });
    }

    /// How long it is surely good, if nothing is heard.
    pub(crate) fn remaining(&self) -> Duration {
        match self.health() {
            Health::Lost(_) => Duration::ZERO,
            Health::Good | Health::Jeopardy => {
                Moment::now().until(self.lease.ends().min(self.forced_at()))
            }
        }
    }

    /// Resolves when it is over, by what was heard or by the clock, whichever is first.
    pub(crate) async fn lost(&self) -> How {
        let (mut shown, mut asked) = (self.health.subscribe(), self.revocation.subscribe());
        loop {
            if let Health::Lost(how) = self.health() {
                return how;
            }
            tokio::select! {
                // They can't fail: the senders are here.
                _ = shown.changed() => {}
                _ = asked.changed() => {}
                () = sleep(self.remaining().max(PAUSE_MIN)) => {}
            }
        }
    }
}
