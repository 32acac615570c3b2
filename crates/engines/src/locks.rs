//! The entry point: connect to an engine by URL, then take locks.

use crate::clock::Moment;
use crate::driver::{Acquired, Driver, Held, Request, Step};
use crate::drivers;
use crate::error::Error;
use crate::guard::{Guard, Lease, LeaseRef};
use crate::keeper::Keeper;
use crate::promises::Promises;
use crate::runtime::{self, Releases};
use crate::token::Token;
use crate::url::EngineUrl;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Default TTL of a lease.
const TTL: Duration = Duration::from_secs(15);

/// Shorter leases would be lost at an ordinary hiccup.
const TTL_MIN: Duration = Duration::from_millis(100);

/// A year, as everywhere in Holdfast.
const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Default timeout for connecting, releasing, and other calls that don't wait for a lock.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longer ones could overflow clocks that they are added to.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The limit of Holdfast's own names, so that every lock can move to Holdfast.
const NAME_BYTES_MAX: usize = 512;

/// Labels and notes are stored with the lock on most engines.
const TEXT_BYTES_MAX: usize = 1024;

/// A connection to a lock engine. Cheap to clone; all clones share the connection.
#[derive(Clone)]
pub struct Locks {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<dyn Driver>,
    releases: Arc<Releases>,
    timeout: Duration,
    label: String,
}

/// Settings for a connection: see [`Locks::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is connected until connect is called"]
pub struct Builder {
    timeout: Duration,
    label: Option<String>,
}

impl Builder {
    /// How long to wait for an engine that does not answer. Default: 10s; at most a day.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// The label of holders that do not set their own. Default: `host:pid`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Connects to the engine named by the URL.
    pub async fn connect(self, url: &str) -> Result<Locks, Error> {
        let parsed = EngineUrl::parse(url)?;
        let releases = Releases::of_current_runtime();
        let timeout = self.timeout;
        let driver = runtime::run(async move { drivers::connect(&parsed, timeout).await }).await?;
        let label = self.label.unwrap_or_else(default_label);
        Ok(Locks { inner: Arc::new(Inner { driver, releases, timeout, label }) })
    }
}

impl Locks {
    /// Connects to the engine named by the URL, for example `etcd://127.0.0.1:2379`. Fails within
    /// ten seconds if no engine answers there.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// For connecting with settings other than the defaults.
    pub fn builder() -> Builder {
        Builder { timeout: TIMEOUT, label: None }
    }

    /// A lock by name: set its options, then call [`Lock::acquire`] or [`Lock::try_acquire`].
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        let (locks, label) = (self.clone(), self.inner.label.clone());
        Lock { locks, name: name.into(), ttl: TTL, wait: None, label, note: None, fixed: false }
    }

    /// What this engine and recipe guarantee, and what they don't.
    pub fn promises(&self) -> &'static Promises {
        self.inner.driver.promises()
    }

    /// The lock as the engine sees it; `None` if nobody holds it or waits for it.
    pub async fn inspect(&self, name: &str) -> Result<Option<Inspection>, Error> {
        check_name(name)?;
        let (driver, name) = (self.inner.driver.clone(), name.to_owned());
        runtime::run(async move { driver.inspect(&name).await }).await
    }

    /// Attaches a lease that [`Guard::detach`] handed over, possibly in another process. Does not
    /// contact the engine: [`Lease::check`] does.
    pub async fn attach(&self, lease: LeaseRef) -> Result<Lease, Error> {
        check_name(&lease.name)?;
        let (driver, locks) = (self.inner.driver.clone(), self.clone());
        runtime::run(async move {
            let hold = driver.attach(&lease.name, &lease.proof).await?;
            Ok(Lease::new(locks, lease, hold))
        })
        .await
    }

    /// Waits until nothing is in progress: acquires whose future was dropped have left their lines,
    /// and dropped guards have been released. Then closes the connection; clones can no longer be
    /// used. Call it before the program exits if there may be any of these.
    ///
    /// Guards that are still held are not released. If the engine does not answer, this takes until
    /// the leases in question are over: use a timeout.
    pub async fn close(self) {
        let closing = async move {
            self.inner.releases.all_ended().await;
            self.inner.driver.close().await;
            Ok(())
        };
        // Only starting a thread can fail, and then nothing is in progress.
        let _ = runtime::run(closing).await;
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    pub(crate) fn releases(&self) -> &Arc<Releases> {
        &self.inner.releases
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Promises { engine, recipe, .. } = self.promises();
        f.debug_struct("Locks").field("engine", engine).field("recipe", recipe).finish()
    }
}

/// A lock to be taken.
#[derive(Debug, Clone)]
#[must_use = "nothing is taken until acquire is called"]
pub struct Lock {
    locks: Locks,
    name: String,
    ttl: Duration,
    wait: Option<Duration>,
    label: String,
    note: Option<String>,
    fixed: bool,
}

impl Lock {
    /// How long the engine keeps the lock if this process dies. Default: 15s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`Lock::acquire`] waits. Default: until the lock is free.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The holder's label, for people who look at the lock. Default: `host:pid`, or
    /// [`Builder::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// A note left with the lock: the next holder gets it if this one dies, if the engine supports
    /// that (see [`crate::Promises::reports_death`]).
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Don't renew the lease: it ends after its TTL, unless [`Guard::extend`] is called.
    pub fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }

    /// Takes the lock, waiting as long as [`Lock::wait`] allows. [`Error::TimedOut`] if it is not
    /// free by then.
    ///
    /// If the future is dropped, the wait ends; if the lock was taken in the meantime, it is
    /// released.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let deadline = self.wait.map(|wait| Moment::now().plus(wait));
        self.take(deadline).await?.map_err(|holder| Error::TimedOut { holder })
    }

    /// Takes the lock if it is free; `None` if it is not.
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        Ok(self.take(Some(Moment::now())).await?.ok())
    }

    /// The guard, or the holder's label if the wait ended first. Boxed for the same reason as
    /// [`drivers::connect`].
    fn take(self, deadline: Option<Moment>) -> Step<'static, Result<Guard, Option<String>>> {
        Box::pin(self.take_or_wait(deadline))
    }

    async fn take_or_wait(
        self,
        deadline: Option<Moment>,
    ) -> Result<Result<Guard, Option<String>>, Error> {
        let Self { locks, name, ttl, label, note, fixed, .. } = self;
        check_name(&name)?;
        check_text("label", &label)?;
        check_text("note", note.as_deref().unwrap_or_default())?;
        check_ttl(ttl)?;
        let nonce = nonce()?;
        // Dropped with this future, which tells the driver to give up.
        let (_waiting, caller) = watch::channel(());
        let background = locks.inner.releases.clone();
        let request =
            Request { name, ttl, fixed, label, note, nonce, deadline, caller, background };
        locks.inner.driver.check(&request)?;

        let (reply, answer) = oneshot::channel();
        let in_progress = locks.inner.releases.begin();
        runtime::handle()?.spawn(async move {
            let _under_way = in_progress;
            let acquired = locks.inner.driver.acquire(&request).await;
            let guard = acquired.map(|acquired| match acquired {
                Acquired::Held(held) => Ok(start(locks, request.name, held, ttl, fixed)),
                Acquired::Busy { holder } => Err(holder),
            });
            // If the caller is gone, the guard is dropped here, which releases the lock.
            drop(reply.send(guard));
        });
        answer.await.map_err(|_| Error::Unreachable("internal error: the task died".to_owned()))?
    }
}

/// Creates the guard, and starts the task that keeps its lease.
fn start(locks: Locks, name: String, held: Held, ttl: Duration, fixed: bool) -> Guard {
    let Held { hold, token, ending, validity } = held;
    let keeper = Keeper::new(name, hold, validity);
    if fixed {
        tokio::spawn(keeper.clone().watch());
    } else {
        tokio::spawn(keeper.clone().run(ttl));
    }
    Guard::new(locks, keeper, token, ending)
}

/// A lock as its engine sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The holder's label, if the engine knows it.
    pub holder: Option<String>,
    /// The holder's token, if the engine has tokens.
    pub token: Option<Token>,
    /// The labels of the waiters, in order; `None` if the engine can't tell.
    pub line: Option<Vec<String>>,
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let length = name.len();
        return Err(Error::Unsupported(format!(
            "a lock's name has 1 to {NAME_BYTES_MAX} bytes, this one has {length}"
        )));
    }
    if name.contains('\0') {
        return Err(Error::Unsupported("a lock's name can't contain a zero byte".to_owned()));
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), Error> {
    if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
        return Err(Error::Unsupported(format!(
            "a {what} has at most {TEXT_BYTES_MAX} bytes and no zero byte"
        )));
    }
    Ok(())
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Error> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(());
    }
    Err(Error::Unsupported(format!("a TTL is between 100ms and a year, this one is {ttl:?}")))
}

fn nonce() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Unreachable(format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn default_label() -> String {
    let host = rustix::system::uname();
    format!("{}:{}", host.nodename().to_string_lossy(), std::process::id())
}
