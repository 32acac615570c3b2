//! What a driver implements. Everything that does not depend on the engine (renewal, the clock,
//! retries of a release, dropped futures) is done once, in `locks.rs` and `keeper.rs`.

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
/// library's own runtime and are never dropped half-way.
pub(crate) trait Driver: Send + Sync + 'static {
    /// What this engine and recipe hold and don't.
    fn promises(&self) -> &'static Promises;

    /// Refuses a name or TTL that the engine can't take, before anything is sent.
    fn check(&self, request: &Request) -> Result<(), Error>;

    /// Takes the lock: tries at least once, then waits until [`Request::given_up`] resolves.
    ///
    /// Once it has resolved, returns soon with [`Acquired::Busy`] and leaves nothing in line. After
    /// an ambiguous answer the driver settles what is true before it returns; if it can't, it
    /// returns [`Error::Unsure`].
    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired>;

    /// The lock as the engine shows it; `None` if nobody holds it or waits.
    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>>;

    /// A lease that another process detached. Checks only the form of the proof; whether the lease
    /// still lives, [`Hold::check`] says.
    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>>;

    /// Ends what the driver keeps at the engine beside held locks, such as a session. Called when no
    /// acquire is under way, before the connection is dropped.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// One held lock, as the engine knows it.
pub(crate) trait Hold: Send + Sync + 'static {
    /// Keeps the lease for another `ttl` from now. [`Error::NotHeld`] is definite and final,
    /// [`Error::Unsupported`] means that nothing was sent; any other error means "unknown", and the
    /// call is repeated. It may be dropped half-way, which is as if the answer were lost.
    fn extend(&self, ttl: Duration) -> Step<'_, Validity>;

    /// Ends the lease. [`Error::NotHeld`] is definite; any other error means "unknown", and the call
    /// is repeated.
    fn release(&self) -> Step<'_, ()>;

    /// Sees to it that no earlier extension whose answer was lost can take effect any more. If only
    /// time helps, returns when to ask again. By default nothing arrives late.
    fn settle(&self) -> Step<'_, Option<Moment>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Until when an attempt to take the lock whose answer was lost may still bring the lease back
    /// after its release. By default never.
    fn revives_until(&self) -> Option<Moment> {
        None
    }

    /// How long the engine will keep the lease if nobody extends it; [`Error::NotHeld`] if it is
    /// over.
    fn check(&self) -> Step<'_, Duration>;

    /// What another process needs to extend and release this lease; `None` if the lease can't
    /// outlive this process's connection.
    fn proof(&self) -> Option<String>;

    /// Resolves, with the reason, as soon as the driver hears that the lease is over. By default
    /// never: the clock and [`Hold::extend`] tell.
    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// What an attempt to take a lock came to.
pub(crate) enum Acquired {
    Held(Held),
    /// The wait was over first.
    Busy {
        /// The label of the holder, if known.
        holder: Option<String>,
    },
}

pub(crate) struct Held {
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) token: Option<Token>,
    /// How the previous holder ended; `None` if the engine can't know or nobody held it before.
    pub(crate) ending: Option<Ending>,
    pub(crate) validity: Validity,
}

/// Between which moments the engine will end a lease that nobody extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The holder must have stopped by then.
    pub(crate) valid_until: Moment,
    /// The lease is certainly over by then.
    pub(crate) over_by: Moment,
}

impl Validity {
    /// Of a lease of `ttl` that was confirmed just now, by a request first sent at `sent`.
    pub(crate) fn of_ttl(sent: Moment, ttl: Duration) -> Self {
        let valid_until = sent.plus(safe_part(ttl));
        Self { valid_until, over_by: Moment::now().plus(ttl + ttl / 10) }
    }

    /// Of a request of `ttl` sent just now that may or may not have arrived.
    pub(crate) fn unsure(ttl: Duration) -> Moment {
        Moment::now().plus(ttl + ttl / 10)
    }
}

/// One acquire.
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) ttl: Duration,
    /// Nobody will renew it.
    pub(crate) fixed: bool,
    pub(crate) label: String,
    pub(crate) note: Option<String>,
    /// Unique to this acquisition: 128 random bits in hex.
    pub(crate) nonce: String,
    /// When the wait ends; `None` means never. Already past for a try.
    pub(crate) deadline: Option<Moment>,
    /// Closed when the caller dropped its future.
    pub(crate) caller: watch::Receiver<()>,
    /// Counts what goes on after the answer.
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

    /// Whether there is no (more) time to wait.
    pub(crate) fn is_given_up(&self) -> bool {
        self.deadline.is_some_and(Moment::has_passed) || self.caller.has_changed().is_err()
    }

    /// Waits for `wake`, `most` or the end of the wait, whichever comes first. Returns false at the
    /// end of the wait.
    pub(crate) async fn pause(&self, most: Duration, wake: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.given_up() => false,
            () = wake => true,
            () = sleep(most) => true,
        }
    }

    /// Finishes something after the answer: [`crate::Locks::close`] waits for it.
    pub(crate) fn finish_later<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let under_way = self.background.begin();
        tokio::spawn(async move {
            let _under_way = under_way;
            work.await
        })
    }

    /// `label/nonce`: shows who holds the lock, and is unique to the acquisition.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.label, self.nonce)
    }
}

/// Sleeps until a moment, also across a suspend of the machine.
pub(crate) async fn reached(moment: Option<Moment>) {
    /// The timer stands still while the machine sleeps, so it is checked now and then.
    const CHECK_EVERY: Duration = Duration::from_secs(1);
    let Some(moment) = moment else { return std::future::pending().await };
    while !moment.has_passed() {
        sleep(moment.remaining().min(CHECK_EVERY)).await;
    }
}

/// The label in an owner written by [`Request::owner`].
pub(crate) fn label_of(owner: &str) -> String {
    owner.rsplit_once('/').map_or(owner, |(label, _)| label).to_owned()
}

/// Gives a call to the engine a time limit.
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
