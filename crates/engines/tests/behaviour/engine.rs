//! An engine under test.

use crate::servers::Server;
use holdfast_locks::{Error, Guard, Locks, Promises};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any case may take, on a busy machine: a case that hangs is then named.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

/// An engine, its URL and how much load it can take.
pub(crate) struct Engine {
    /// With `{hosts}` where the list of hosts goes, so that a proxy can be put in between.
    pub(crate) url: String,
    /// `host:port` of each server.
    pub(crate) hosts: Vec<String>,
    /// How many tasks contend for one lock.
    pub(crate) tasks: usize,
    /// The shortest TTL that works well on a busy machine.
    pub(crate) ttl: Duration,
    /// How long after its TTL a lease may end.
    pub(crate) late: Duration,
    /// What is different about it; the cases say what they assert then.
    pub(crate) exceptions: &'static [Exception],
    /// The server, for killing and restarting; `None` if there is none.
    pub(crate) server: Option<Arc<dyn Server>>,
    /// Ends the connection of the holder with this label on the server, for engines whose locks are
    /// tied to one.
    pub(crate) end_connection: Option<fn(&str)>,
}

/// Why a case can't show for an engine what it shows for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exception {
    /// Its locks are inside one process: no other process has them, and there is neither a network
    /// nor a server.
    OneProcess,
    /// The server guarantees more than the driver can know of: Holdfast behind its Redis door has
    /// every lock on disk.
    SurvivesFailover,
}

impl Exception {
    /// Whether it agrees with the promises.
    pub(crate) fn agrees_with(self, promises: &Promises) -> bool {
        match self {
            Self::OneProcess => {
                promises.after_disconnect == "there is no connection"
                    && !promises.survives_failover.holds
            }
            Self::SurvivesFailover => !promises.survives_failover.holds,
        }
    }
}

impl Engine {
    pub(crate) fn url(&self) -> String {
        self.url.replace("{hosts}", &self.hosts.join(","))
    }

    pub(crate) async fn connect(&self) -> Locks {
        let connected = Locks::connect(&self.url()).await;
        let locks = connected.unwrap_or_else(|error| panic!("{}: {error}", self.url()));
        let agrees = |exception: &Exception| exception.agrees_with(locks.promises());
        assert!(self.exceptions.iter().all(agrees), "{:?}: {:?}", self.exceptions, locks);
        locks
    }

    pub(crate) fn has(&self, exception: Exception) -> bool {
        self.exceptions.contains(&exception)
    }

    /// Whether processes share its locks.
    pub(crate) fn is_shared(&self) -> bool {
        !self.has(Exception::OneProcess)
    }

    /// The longest time until a lease that is not renewed is over.
    pub(crate) fn over(&self) -> Duration {
        self.ttl + self.late
    }

    /// Takes a lock that is free by the end of a lease at the latest.
    pub(crate) async fn take(&self, locks: &Locks, name: &str) -> Result<Guard, Error> {
        locks.lock(name).ttl(self.ttl).wait(self.over() + Duration::from_secs(30)).acquire().await
    }
}

thread_local! {
    static OWN_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this case kills its server, so that it can't use the one that all cases share.
pub(crate) fn needs_own_server() -> bool {
    OWN_SERVER.get()
}

/// Runs one case against an engine. Names get the case's name and a random part, so that cases can
/// share a server.
pub(crate) fn run(
    engine: impl FnOnce() -> Engine,
    case: &str,
    work: impl AsyncFnOnce(&Engine) -> (),
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    OWN_SERVER.set(case == "restart");
    let engine = engine();
    let finished =
        runtime.block_on(async { tokio::time::timeout(CASE_TIMEOUT, work(&engine)).await });
    assert!(finished.is_ok(), "{case} on {} did not end in time", engine.url);
}

/// A name that nobody else uses.
pub(crate) fn unique(what: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{number}", std::process::id())
}
