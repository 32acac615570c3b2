//! docs/failed-writes.md: requests that nobody knows the outcome of. Its tables contain what this
//! finds on real nodes; after a change, run it with `UPDATE_DOCS=1` to rewrite them.

use super::replicas::Replicas;
use crate::cases::through_proxies;
use crate::engine::{Engine, unique};
use crate::page;
use crate::proxy::{Mode, Proxy};
use crate::servers::holdfast::Members;
use holdfast_locks::{Error, Guard, Locks};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PAGE: &str = "failed-writes.md";

/// Far longer than the test: a lock that is free by then did not just expire.
const TTL: Duration = Duration::from_secs(3600);

/// Longer than any of the engines takes to settle the outcome, on a busy machine.
const SETTLED: Duration = Duration::from_secs(90);

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    RequestLost,
    TwoNodesStop,
    OneNodeStops,
    AnswerLost,
}

const FAULTS: [(&str, Fault); 4] = [
    ("the request is lost", Fault::RequestLost),
    ("two of three nodes stop, and go on later", Fault::TwoNodesStop),
    ("one of three nodes stops", Fault::OneNodeStops),
    ("the answer is lost", Fault::AnswerLost),
];

/// An engine as one server behind a proxy, and as three nodes that can be stopped.
struct Site<'a> {
    single: &'a Engine,
    cluster: String,
    signal: &'a (dyn Fn(usize, Signal) + Sync),
}

/// Clients, and how to start and end a fault.
struct Scene<'a> {
    locks: Locks,
    others: Locks,
    proxies: Vec<Proxy>,
    site: &'a Site<'a>,
    fault: Fault,
}

impl Site<'_> {
    async fn scene(&self, fault: Fault) -> Scene<'_> {
        let deadline = Duration::from_secs(10);
        let (proxies, locks, others) = match fault {
            Fault::RequestLost | Fault::AnswerLost => {
                let (proxies, locks) = through_proxies(self.single, deadline).await;
                (proxies, locks, self.single.connect().await)
            }
            Fault::TwoNodesStop | Fault::OneNodeStops => {
                let connect = || Locks::builder().timeout(deadline).connect(&self.cluster);
                (Vec::new(), eventually(connect).await, eventually(connect).await)
            }
        };
        Scene { locks, others, proxies, site: self, fault }
    }
}

/// Retries a call until it succeeds.
async fn eventually<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    let mut last = None;
    for _ in 0..60 {
        match call().await {
            Ok(done) => return done,
            Err(error) => last = Some(error),
        }
        sleep(Duration::from_millis(500)).await;
    }
    panic!("it never succeeds: {last:?}");
}

impl Scene<'_> {
    fn begin(&self) {
        match self.fault {
            Fault::RequestLost => self.proxies.iter().for_each(|proxy| proxy.set(Mode::Silent)),
            Fault::AnswerLost => self.proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers)),
            Fault::TwoNodesStop => (1..3).for_each(|node| (self.site.signal)(node, Signal::STOP)),
            Fault::OneNodeStops => (self.site.signal)(2, Signal::STOP),
        }
    }

    fn end(&self) {
        self.proxies.iter().for_each(Proxy::cut);
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
        match self.fault {
            Fault::RequestLost | Fault::AnswerLost => {}
            Fault::TwoNodesStop | Fault::OneNodeStops => {
                (1..3).for_each(|node| (self.site.signal)(node, Signal::CONT));
            }
        }
    }

    /// The network is back after a moment; nodes stay away until the request has been given up.
    async fn during<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let running = tokio::spawn(request);
        if !self.proxies.is_empty() {
            sleep(Duration::from_millis(500)).await;
            self.end();
        }
        let ran = timeout(SETTLED, running).await.expect("it ends").unwrap();
        self.end();
        ran
    }

    async fn take(&self, locks: &Locks, name: &str) -> Guard {
        let take = || locks.lock(name).ttl(TTL).wait(Duration::from_secs(5)).acquire();
        timeout(SETTLED, eventually(take)).await.unwrap_or_else(|_| panic!("{name} is not free"))
    }

    /// What the caller of an acquire is told, and what is true. On Holdfast, a lock stayed held
    /// until its TTL was over although its taker had been told that it failed: nobody had the
    /// secret to release it with.
    async fn acquire(&self) -> &'static str {
        let name = unique("story");
        self.begin();
        let lock = self.locks.lock(&name).ttl(TTL).wait(Duration::from_secs(20));
        match self.during(lock.acquire()).await {
            Ok(guard) => {
                assert!(!guard.is_lost());
                let other = || self.others.lock(&name).try_acquire();
                assert!(eventually(other).await.is_none(), "two hold {name}");
                guard.release().await.unwrap();
                "held"
            }
            Err(Error::Unsure { .. } | Error::Unreachable(_) | Error::TimedOut { .. }) => {
                self.take(&self.others, &name).await.release().await.unwrap();
                "unsure; free once the nodes are back"
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// What the caller of a release is told, and what is true. The next holder must not take a
    /// release that finished late for a death.
    async fn release(&self) -> &'static str {
        let name = unique("story");
        let guard = self.take(&self.locks, &name).await;
        self.begin();
        let reported = match self.during(guard.release()).await {
            Ok(()) => "released",
            Err(Error::Unsure { .. }) => "unsure; free once the nodes are back",
            Err(error) => panic!("{name}: {error}"),
        };
        let next = self.take(&self.others, &name).await;
        assert!(next.ending().is_none_or(|ending| !ending.died), "{:?}", next.ending());
        next.release().await.unwrap();
        reported
    }
}

/// One column of the second table: for each fault, the results of an acquire and a release.
async fn column(site: &Site<'_>) -> Vec<&'static str> {
    let mut cells = Vec::new();
    for (_, fault) in FAULTS {
        let scene = site.scene(fault).await;
        cells.push(scene.acquire().await);
        cells.push(scene.release().await);
    }
    cells
}

fn table(columns: &[Vec<&'static str>]) -> String {
    let mut table = String::from("| | `cassandra://` | `holdfast://` |\n| --- | --- | --- |\n");
    let rows = FAULTS.iter().flat_map(|(what, _)| ["acquire", "release"].map(|call| (call, what)));
    for (row, (call, what)) in rows.enumerate() {
        let cells: Vec<_> = columns.iter().map(|column| column[row]).collect();
        table.push_str(&format!("| {call}: {what} | {} |\n", cells.join(" | ")));
    }
    table
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Cassandra: ./test engines"]
async fn failed_writes_match_the_documentation() {
    let (mut replicas, members) =
        tokio::task::spawn_blocking(|| (Replicas::start(), Members::start(3))).await.unwrap();
    let (readers, replicas) = tokio::task::spawn_blocking(move || {
        let readers = replicas.table();
        replicas.show_ghost();
        (readers, replicas)
    })
    .await
    .unwrap();

    let (lwt, holdfast) = tokio::task::spawn_blocking(|| {
        (crate::servers::cassandra::lwt(), crate::servers::holdfast::holdfast())
    })
    .await
    .unwrap();
    let port = replicas.nodes()[0].port;
    let cassandra = Site {
        single: &lwt,
        cluster: format!("cassandra://127.0.0.1:{port}/examples?replication_factor=3"),
        signal: &|node, signal| replicas.nodes()[node].signal(signal),
    };
    let holdfast = Site {
        single: &holdfast,
        cluster: format!("holdfast://{}", members.hosts().join(",")),
        signal: &|node, signal| members.signal(node, signal),
    };
    let outcomes = table(&[column(&cassandra).await, column(&holdfast).await]);
    page::check_generated(PAGE, &[("readers", &readers), ("outcomes", &outcomes)]);
}
