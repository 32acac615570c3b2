//! A held lock, and a lease that was handed over.

use crate::clock::{Moment, unix_ms};
use crate::driver::{Hold, Validity};
use crate::error::Error;
use crate::keeper::{Keeper, after_release, release_for_good, release_until_definite};
use crate::locks::{Locks, check_ttl};
use crate::runtime;
use crate::token::Token;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How the previous holder of a lock ended, as far as the engine knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ending {
    /// Whether it died (expired, crashed, was forced out) instead of releasing the lock.
    pub died: bool,
    /// Its token, if the engine has tokens.
    pub token: Option<Token>,
    /// Its label.
    pub label: Option<String>,
    /// The note it left.
    pub note: Option<String>,
}

impl Ending {
    pub(crate) fn of_death(
        token: Option<Token>,
        label: Option<String>,
        note: Option<String>,
    ) -> Self {
        Self { died: true, token, label, note }
    }

    pub(crate) fn of_release(token: Option<Token>, label: Option<String>) -> Self {
        Self { died: false, token, label, note: None }
    }
}

/// Why a lock was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub(crate) why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A held lock. It is renewed in the background until it is released, detached or dropped, unless
/// it was taken with [`fixed`](crate::Lock::fixed).
///
/// Dropping a guard releases the lock in the background, but nobody learns whether that worked:
/// prefer [`Guard::release`].
pub struct Guard {
    keeper: Arc<Keeper>,
    locks: Locks,
    token: Option<Token>,
    /// Boxed: it is rare, and `detach` returns the guard by value if it fails.
    ending: Option<Box<Ending>>,
    /// False once it has been released or detached.
    held: bool,
}

impl Guard {
    pub(crate) fn new(
        locks: Locks,
        keeper: Arc<Keeper>,
        token: Option<Token>,
        ending: Option<Ending>,
    ) -> Self {
        Self { keeper, locks, token, ending: ending.map(Box::new), held: true }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.keeper.name()
    }

    /// The fencing token; `None` if the engine has none (see [`crate::Promises::token`]).
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// How the previous holder ended; `None` if the engine can't tell, or there was no previous
    /// holder.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_deref()
    }

    /// How long the lease is certainly valid if no further renewal succeeds. Zero once it is lost.
    /// Uses a clock that keeps running while the machine sleeps, so the answer is right even in a
    /// process that was stopped or suspended.
    pub fn remaining(&self) -> Duration {
        self.keeper.remaining()
    }

    /// Whether the lease is over, or may be.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Resolves when the lease is over, or may be: stop the work it protects. Cancel-safe.
    pub async fn lost(&self) -> Lost {
        self.watch_lost().await
    }

    pub(crate) fn watch_lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let keeper = self.keeper.clone();
        async move { keeper.lost().await }
    }

    /// Extends the lease to `ttl` from now. For a lease taken with [`fixed`](crate::Lock::fixed);
    /// others are renewed by themselves. If the reply is lost, the guard counts on the shorter of
    /// the two leases. Concurrent calls are sent one after the other.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.start_extend(ttl).await
    }

    pub(crate) fn start_extend(
        &self,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        start_extend(self.keeper.clone(), ttl)
    }

    /// Releases the lock. `Ok` means that this call released it; [`Error::NotHeld`] that the lease
    /// was already over; [`Error::Unsure`] that the engine did not answer in time, and until when
    /// the lock may stay held.
    ///
    /// If the future is dropped or returns [`Error::Unsure`], the release continues in the
    /// background until the engine acknowledges it or the lease is over.
    pub async fn release(mut self) -> Result<(), Error> {
        self.held = false;
        release(self.keeper.clone(), &self.locks).await
    }

    /// Stops renewing and hands the lease over: the returned value can be stored or sent, and used
    /// with [`Locks::attach`] in another process until its deadline. Waits for a renewal in
    /// progress, and until no unanswered one can take effect any more: nothing in this process
    /// changes the lease afterwards. If the future is dropped, the lock is released.
    ///
    /// Fails, and returns the guard, if the engine's leases can't outlive this process's connection
    /// (see [`crate::Promises::detachable`]), or if the lease is lost.
    pub async fn detach(self) -> Result<LeaseRef, (Self, Error)> {
        let handed_over = self.start_hand_over().await;
        self.into_ref(handed_over)
    }

    pub(crate) fn start_hand_over(
        &self,
    ) -> impl Future<Output = Result<Validity, Error>> + Send + 'static {
        let (keeper, why) = (self.keeper.clone(), self.locks.promises().detachable.because);
        runtime::run(async move {
            if keeper.hold().proof().is_none() {
                return Err(Error::Unsupported(format!("this lease can't be detached: {why}")));
            }
            keeper.hand_over().await
        })
    }

    pub(crate) fn into_ref(
        mut self,
        handed_over: Result<Validity, Error>,
    ) -> Result<LeaseRef, (Self, Error)> {
        let Validity { valid_until, over_by } = match handed_over {
            Ok(validity) => validity,
            Err(error) => return Err((self, error)),
        };
        self.held = false;
        Ok(LeaseRef {
            name: self.name().to_owned(),
            token: self.token,
            proof: self.keeper.hold().proof().unwrap_or_default(),
            deadline_unix_ms: unix_ms(valid_until.wall_clock()),
            over_by_unix_ms: unix_ms(over_by.wall_clock()),
        })
    }
}

fn start_extend(
    keeper: Arc<Keeper>,
    ttl: Duration,
) -> impl Future<Output = Result<(), Error>> + Send + 'static {
    runtime::run(async move {
        check_ttl(ttl)?;
        keeper.extend(ttl).await
    })
}

async fn release(keeper: Arc<Keeper>, locks: &Locks) -> Result<(), Error> {
    keeper.stop();
    let (background, timeout) = (locks.releases().clone(), locks.timeout());
    let in_progress = background.begin();
    runtime::run(async move {
        let _under_way = in_progress;
        let result = release_until_definite(&keeper, Some(timeout)).await;
        if let Some(rest) = after_release(&keeper, &result) {
            background.start(rest);
        }
        result
    })
    .await
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        self.keeper.stop();
        self.locks.releases().start(release_for_good(self.keeper.clone(), false));
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// A lease that was detached from its guard: plain data that can be sent to another process. Anyone
/// who has it can release the lock, so treat it like a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRef {
    pub(crate) name: String,
    pub(crate) token: Option<Token>,
    pub(crate) proof: String,
    pub(crate) deadline_unix_ms: u64,
    /// When the engine has certainly ended it if nobody extends it.
    pub(crate) over_by_unix_ms: u64,
}

impl LeaseRef {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token, if the engine has tokens.
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// Until when the lease was certainly valid when it was detached, by the wall clock of the
    /// process that held it.
    pub fn deadline(&self) -> SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(self.deadline_unix_ms)
    }
}

impl fmt::Debug for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRef")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// A lease attached with [`Locks::attach`]. Nothing happens in the background: it is not renewed,
/// and dropping it does not release it.
pub struct Lease {
    keeper: Arc<Keeper>,
    locks: Locks,
    token: Option<Token>,
}

impl Lease {
    pub(crate) fn new(locks: Locks, lease: LeaseRef, hold: Arc<dyn Hold>) -> Self {
        let valid_until = Moment::at_unix_ms(lease.deadline_unix_ms);
        let over_by = Moment::at_unix_ms(lease.over_by_unix_ms);
        let keeper = Keeper::attached(lease.name, hold, Validity { valid_until, over_by });
        Self { keeper, locks, token: lease.token }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.keeper.name()
    }

    /// The fencing token, if the engine has tokens.
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// Asks the engine how long the lease will last if nobody extends it. [`Error::NotHeld`] if it
    /// is over.
    pub async fn check(&self) -> Result<Duration, Error> {
        self.start_check().await
    }

    pub(crate) fn start_check(
        &self,
    ) -> impl Future<Output = Result<Duration, Error>> + Send + 'static {
        let keeper = self.keeper.clone();
        runtime::run(async move { keeper.hold().check().await })
    }

    /// Extends the lease to `ttl` from now.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.start_extend(ttl).await
    }

    pub(crate) fn start_extend(
        &self,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        start_extend(self.keeper.clone(), ttl)
    }

    /// Releases the lock, with the same results as [`Guard::release`]. The time in
    /// [`Error::Unsure`] does not take extensions by other processes into account.
    pub async fn release(self) -> Result<(), Error> {
        release(self.keeper, &self.locks).await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name())
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
