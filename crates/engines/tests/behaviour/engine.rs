//! An engine under test.

use crate::servers::Server;
use holdfast_locks::{Error, Guard, Locks};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any case may take, on a busy machine: a case that hangs is then named.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

/// An engine, its URL and how hard it may be pressed.
pub(crate) struct Engine {
    /// With `{hosts}` where the list of hosts goes, so that a proxy can be put in between.
    pub(crate) url: String,
    /// `host:port` of each server.
    pub(crate) hosts: Vec<String>,
    /// How many tasks contend for one lock.
    pub(crate) tasks: usize,
    /// The shortest TTL that the engine serves well on a busy machine.
    pub(crate) ttl: Duration,
    /// How late after its TTL a lease may end.
    pub(crate) late: Duration,
    /// Whether processes share its locks.
    pub(crate) shared: bool,
    /// The server, to be killed and restarted; `None` if there is none.
    pub(crate) server: Option<Arc<dyn Server>>,
}

impl Engine {
    pub(crate) fn url(&self) -> String {
        self.url.replace("{hosts}", &self.hosts.join(","))
    }

    pub(crate) async fn connect(&self) -> Locks {
        Locks::connect(&self.url()).await.unwrap_or_else(|error| panic!("{}: {error}", self.url()))
    }

    /// How long until a lease that nobody renews is over, at the most.
    pub(crate) fn over(&self) -> Duration {
        self.ttl + self.late
    }

    /// Takes a lock that becomes free by a lease's end at the latest.
    pub(crate) async fn take(&self, locks: &Locks, name: &str) -> Result<Guard, Error> {
        locks.lock(name).ttl(self.ttl).wait(self.over() + Duration::from_secs(30)).acquire().await
    }
}

thread_local! {
    static OWN_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the case at hand kills its server, which therefore can't be the one that all cases share.
pub(crate) fn needs_own_server() -> bool {
    OWN_SERVER.get()
}

/// Runs one case against an engine. Names get the case's name and a random part, so cases share a
/// server without meeting.
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
