//! The interface that a driver implements. Everything that does not depend on the engine (renewal,
//! clocks, retrying a release, dropped futures) is done once, in `locks.rs` and `keeper.rs`.

use crate::clock::{Moment, safe_part};
use crate::error::Error;
use crate::guard::Ending;
use crate::locks::Inspection;
use crate::promises::Promises;
use crate::runtime::Releases;
use crate::token::Token;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What an asynchronous method of a driver returns.
pub(crate) type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A connection to one engine, used by any number of tasks at once. Its futures run on the
/// library's own runtime and are never dropped before they finish.
pub(crate) trait Driver: Send + Sync + 'static {
    /// What this engine and recipe guarantee.
    fn promises(&self) -> &'static Promises;

    /// Refuses a name or TTL that the engine does not accept, before anything is sent.
    fn check(&self, request: &Request) -> Result<(), Error>;

    /// Takes the lock: tries at least once, then waits until [`Request::given_up`] resolves.
    ///
    /// Once that has resolved, returns soon with [`Acquired::Busy`] and leaves nothing in line.
    /// After an ambiguous reply the driver finds out what happened before it returns; if it can't,
    /// it returns [`Error::Unsure`].
    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired>;

    /// The lock as the engine sees it; `None` if nobody holds it or waits for it.
    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>>;

    /// A lease that another process detached. Checks only the format of the proof; [`Hold::check`]
    /// tells whether the lease still exists.
    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>>;

    /// Ends what the driver keeps on the engine besides held locks, such as a session. Called when
    /// no acquire is in progress, before the connection is dropped.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// One held lock, as the engine sees it.
pub(crate) trait Hold: Send + Sync + 'static {
    /// Extends the lease to `ttl` from now. [`Error::NotHeld`] is definite and final, and
    /// [`Error::Unsupported`] means that nothing was sent; after any other error the outcome is
    /// unknown, and the call is retried. The future may be dropped at any await, which is as if the
    /// reply had been lost.
    fn extend(&self, ttl: Duration) -> Step<'_, Validity>;

    /// Ends the lease. [`Error::NotHeld`] is definite; after any other error the outcome is
    /// unknown, and the call is retried.
    fn release(&self) -> Step<'_, ()>;

    /// Makes sure that no earlier extension whose reply was lost can still take effect. If only
    /// waiting helps, returns when to call this again. The default is for engines where nothing
    /// arrives late.
    fn settle(&self) -> Step<'_, Option<Moment>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Until when an attempt to take the lock whose reply was lost may still bring the lease back
    /// after its release. By default, it can't.
    fn revives_until(&self) -> Option<Moment> {
        None
    }

    /// How long the engine will keep the lease if nobody extends it; [`Error::NotHeld`] if it is
    /// over.
    fn check(&self) -> Step<'_, Duration>;

    /// What another process needs to extend and release this lease; `None` if the lease can't
    /// outlive this process's connection.
    fn proof(&self) -> Option<String>;

    /// Resolves, with the reason, as soon as the driver learns that the lease is over. By default
    /// never: the clock and [`Hold::extend`] tell.
    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// The result of an attempt to take a lock.
pub(crate) enum Acquired {
    Held(Held),
    /// The wait ended first.
    Busy {
        /// The holder's label, if known.
        holder: Option<String>,
    },
}

pub(crate) struct Held {
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) token: Option<Token>,
    /// How the previous holder ended; `None` if the engine can't tell, or there was no previous
    /// holder.
    pub(crate) ending: Option<Ending>,
    pub(crate) validity: Validity,
}

/// The earliest and latest moment at which the engine may end a lease that nobody extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The holder must have stopped by this moment.
    pub(crate) valid_until: Moment,
    /// The lease is certainly over by this moment.
    pub(crate) over_by: Moment,
}

impl Validity {
    /// For a lease of `ttl` that was confirmed just now, by a request first sent at `sent`.
    pub(crate) fn of_ttl(sent: Moment, ttl: Duration) -> Self {
        let valid_until = sent.plus(safe_part(ttl));
        Self { valid_until, over_by: Moment::now().plus(ttl + ttl / 10) }
    }

    /// When a lease of `ttl` is certainly over, if the request for it was sent just now and may or
    /// may not have arrived.
    pub(crate) fn unsure(ttl: Duration) -> Moment {
        Moment::now().plus(ttl + ttl / 10)
    }
}

/// One acquire.
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) ttl: Duration,
    /// Whether it won't be renewed.
    pub(crate) fixed: bool,
    pub(crate) label: String,
    pub(crate) note: Option<String>,
    /// Unique to this acquisition: 128 random bits in hex.
    pub(crate) nonce: String,
    /// When the wait ends; `None` means never. Already past for a try.
    pub(crate) deadline: Option<Moment>,
    /// Closed when the caller drops its future.
    pub(crate) caller: watch::Receiver<()>,
    /// Counts the work that continues after the reply.
    pub(crate) background: Arc<Releases>,
}

impl Request {
    /// Resolves when the wait is over or the caller has dropped its future.
    pub(crate) async fn given_up(&self) {
        let mut caller = self.caller.clone();
        let dropped = async { while caller.changed().await.is_ok() {} };
        tokio::select! {
            () = dropped => {}
            () = reached(self.deadline) => {}
        }
    }

    /// Whether the wait is over or the caller has dropped its future.
    pub(crate) fn is_given_up(&self) -> bool {
        self.deadline.is_some_and(Moment::has_passed) || self.caller.has_changed().is_err()
    }

    /// Waits for `wake`, for `most`, or for the end of the wait, whichever comes first. Returns
    /// false at the end of the wait.
    pub(crate) async fn pause(&self, most: Duration, wake: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.given_up() => false,
            () = wake => true,
            () = sleep(most) => true,
        }
    }

    /// Continues `work` in the background after the reply; [`crate::Locks::close`] waits for it.
    pub(crate) fn finish_later<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let in_progress = self.background.begin();
        tokio::spawn(async move {
            let _under_way = in_progress;
            work.await
        })
    }

    /// `label/nonce`: shows who holds the lock, and is unique to the acquisition.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.label, self.nonce)
    }
}

/// Sleeps until `moment`, even across a suspend of the machine. `None` is forever.
pub(crate) async fn reached(moment: Option<Moment>) {
    /// Timers stop while the machine sleeps, so the clock is checked now and then.
    const CHECK_EVERY: Duration = Duration::from_secs(1);
    let Some(moment) = moment else { return std::future::pending().await };
    while !moment.has_passed() {
        sleep(moment.remaining().min(CHECK_EVERY)).await;
    }
}

/// The label in an owner string written by [`Request::owner`].
pub(crate) fn label_of(owner: &str) -> String {
    owner.rsplit_once('/').map_or(owner, |(label, _)| label).to_owned()
}

/// Limits how long a call to the engine may take.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = || Error::Unreachable(format!("{what}: no answer within {}", seconds(limit)));
    timeout(limit, call).await.unwrap_or_else(|_| Err(late()))
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f32())
}
