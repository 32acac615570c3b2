//! Many stops at random moments: `./test fences`.

use crate::server::Node;
use crate::stopped::fenced;
use crate::support::holder::{Holder, LEASE};
use crate::support::postgres::Server;
use crate::support::s3::S3;
use crate::support::service::Service;
use crate::support::store::{self, LEDGER};
use holdfast_fence::sqlite::Sqlite;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often each story is run in each store.
const STORIES: usize = 8;
/// How many holders contend, and how often one of them is stopped or killed.
const HOLDERS: usize = 4;
const STOPS: usize = 16;

fn random_ms(below: u64) -> Duration {
    Duration::from_millis(RandomState::new().hash_one(0) % below)
}

/// The two stories, each many times at once, each with its own Holdfast node and place.
async fn many_stories(places: Vec<String>) {
    assert_eq!(places.len(), STORIES);
    let mut tasks = tokio::task::JoinSet::new();
    for place in places {
        tasks.spawn(async move { fenced(&place, random_ms(1_500)).await });
    }
    tasks.join_all().await;
}

/// Holders append lines to the ledger while others are stopped past their lease, or killed. Each
/// line that was acknowledged to a holder is there in the end, exactly once.
#[allow(clippy::print_stdout, reason = "./test shows what was measured")]
async fn nothing_is_lost(place: &str) {
    let node = Node::start().await;
    let mut holders = Vec::new();
    let written = Arc::<AtomicUsize>::default();
    for number in 0..HOLDERS {
        holders.push(Watched::start(format!("{number}"), &node.url, place, &written));
    }
    let mut killed = 0;
    for stop in 0..STOPS {
        tokio::time::sleep(random_ms(700)).await;
        let which = stop % HOLDERS;
        holders[which].handle.stop().await;
        // Some are woken in time, most are not.
        tokio::time::sleep(LEASE / 2 + random_ms(1_500)).await;
        if stop % 5 == 4 {
            killed += 1;
            holders[which].handle.kill().await;
            let name = format!("{which}-after-{killed}");
            let next = Watched::start(name, &node.url, place, &written);
            let dead = std::mem::replace(&mut holders[which], next);
            holders.push(dead);
        } else {
            holders[which].handle.wake().await;
        }
    }
    // On a busy machine, holders are slow.
    for _ in 0..600 {
        if written.load(Ordering::Relaxed) > STOPS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut acknowledged = BTreeSet::new();
    for holder in holders {
        acknowledged.extend(holder.ends().await);
    }

    let client = node.client().await;
    let guard = client.lock("look").acquire().await.unwrap();
    let fence = store::open(place, &client, &guard).await.unwrap();
    let ledger = store::text(fence.read(LEDGER).await.unwrap().value);
    let lines: Vec<&str> = ledger.lines().collect();
    let there: BTreeSet<&str> = lines.iter().copied().collect();
    assert_eq!(there.len(), lines.len(), "a line is there twice:\n{ledger}");
    for line in &acknowledged {
        assert!(there.contains(line.as_str()), "{line} was acknowledged, and is lost:\n{ledger}");
    }
    assert!(acknowledged.len() > STOPS, "too little was written: {acknowledged:?}");
    let kind = place.split(':').next().unwrap();
    println!("measured: {kind}: {} lines acknowledged, none lost", acknowledged.len());
    drop(fence);
    guard.release().await.unwrap();
}

/// A holder whose output is read as it arrives, so that it never waits for its reader.
struct Watched {
    handle: Handle,
    lines: tokio::task::JoinHandle<Vec<String>>,
}

struct Handle(tokio::sync::mpsc::Sender<Order>);

enum Order {
    Stop,
    Wake,
    Kill,
}

impl Handle {
    async fn stop(&self) {
        self.0.send(Order::Stop).await.unwrap();
    }

    async fn wake(&self) {
        self.0.send(Order::Wake).await.unwrap();
    }

    async fn kill(&self) {
        self.0.send(Order::Kill).await.unwrap();
    }
}

impl Watched {
    /// Counts its lines in `written`.
    fn start(name: String, server: &str, place: &str, written: &Arc<AtomicUsize>) -> Self {
        let mut holder = Holder::start(&format!("forever {name}"), server, place);
        let (orders, mut ordered) = tokio::sync::mpsc::channel(1);
        let written = written.clone();
        let lines = tokio::spawn(async move {
            let mut lines = Vec::new();
            loop {
                tokio::select! {
                    line = holder.next() => match line {
                        Some(line) => {
                            lines.push(line.strip_prefix("wrote ").unwrap().to_owned());
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        None => return lines,
                    },
                    order = ordered.recv() => match order {
                        Some(Order::Stop) => holder.stop(),
                        Some(Order::Wake) => holder.wake(),
                        // What it printed before it died still arrives.
                        Some(Order::Kill) | None => holder.kill().await,
                    },
                }
            }
        });
        Self { handle: Handle(orders), lines }
    }

    /// Kills it, and returns the lines that were acknowledged to it.
    async fn ends(self) -> Vec<String> {
        drop(self.handle);
        self.lines.await.unwrap()
    }
}

async fn in_folders(kind: &str, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let place = |number: usize| {
        format!("{kind}:{}", folder.path().join(format!("{number}{name}")).display())
    };
    many_stories((0..STORIES).map(place).collect()).await;
    nothing_is_lost(&place(STORIES)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: ./test fences"]
async fn sqlite_at_random() {
    in_folders("sqlite", ".db").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: ./test fences"]
async fn local_disk_at_random() {
    in_folders("disk", "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: ./test fences"]
async fn s3_at_random() {
    let mut servers = Vec::new();
    for _ in 0..=STORIES {
        servers.push(S3::start().await);
    }
    let places: Vec<_> = servers.iter().map(|server| format!("s3:{}", server.url)).collect();
    many_stories(places[..STORIES].to_vec()).await;
    nothing_is_lost(&places[STORIES]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: ./test fences"]
async fn an_http_service_at_random() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Vec::new();
    for number in 0..=STORIES {
        let numbers = Sqlite::open(folder.path().join(format!("{number}.db"))).unwrap();
        services.push(Service::start(Arc::new(numbers)).await);
    }
    let places: Vec<_> = services.iter().map(|service| format!("http:{}", service.url)).collect();
    many_stories(places[..STORIES].to_vec()).await;
    nothing_is_lost(&places[STORIES]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: ./test fences"]
async fn holdfasts_register_at_random() {
    many_stories(vec!["register:".into(); STORIES]).await;
    nothing_is_lost("register:").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn postgresql_at_random() {
    let server = Server::start().await;
    let mut places = Vec::new();
    for number in 0..=STORIES {
        let made = server.psql().arg("-c").arg(format!("CREATE DATABASE d{number}")).status();
        assert!(made.unwrap().success());
        let config = server.config().replace("dbname=postgres", &format!("dbname=d{number}"));
        places.push(format!("postgres:{config}"));
    }
    many_stories(places[..STORIES].to_vec()).await;
    nothing_is_lost(&places[STORIES]).await;
}
