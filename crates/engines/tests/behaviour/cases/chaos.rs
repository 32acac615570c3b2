//! Everything at once: futures dropped at any moment, connections cut, replies lost, networks
//! silent.

use crate::cases::through_proxies;
use crate::engine::{Engine, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Error, Guard, Locks};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const LASTS: Duration = Duration::from_secs(20);
const WORKERS: u64 = 6;

/// A small generator, good enough to choose what happens next.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn millis(&mut self, limit: Duration) -> Duration {
        Duration::from_millis(self.below(u64::try_from(limit.as_millis()).unwrap() + 1))
    }
}

/// The existing guards, to check that at most one of them believes that it holds the lock.
#[derive(Default)]
struct Holders {
    guards: Mutex<Vec<Arc<Guard>>>,
    served: AtomicUsize,
}

impl Holders {
    fn enter(&self, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut guards = self.guards.lock().unwrap();
        let believes = guards.iter().find(|other| !other.is_lost());
        // In this order: a guard that is lost by now may already have a successor.
        if let Some(other) = believes
            && !guard.is_lost()
        {
            panic!("{other:?} and {guard:?} both believe");
        }
        guards.push(guard.clone());
        self.served.fetch_add(1, Ordering::Relaxed);
        guard
    }

    /// Call it before the release, which may take effect at any moment from then on.
    fn leave(&self, guard: Arc<Guard>) -> Guard {
        self.guards.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).expect("it was only in the list")
    }
}

/// Takes the lock and gives it up in every possible way.
async fn work(engine_ttl: Duration, locks: Locks, name: String, holders: Arc<Holders>, seed: u64) {
    let (mut random, until) = (Random(seed), Instant::now() + LASTS);
    while Instant::now() < until {
        let lock = locks.lock(&name).ttl(engine_ttl).wait(random.millis(engine_ttl));
        let lock = if random.below(4) == 0 { lock.fixed() } else { lock };
        let wait_limit = if random.below(2) == 0 { 20 } else { 20_000 };
        let wait_limit = random.millis(Duration::from_millis(wait_limit));
        let Ok(Ok(guard)) = timeout(wait_limit, lock.acquire()).await else { continue };
        let guard = holders.enter(guard);
        let most = if random.below(3) == 0 { engine_ttl * 3 } else { engine_ttl / 10 };
        timeout(random.millis(most), guard.lost()).await.ok();
        if random.below(4) == 0 {
            let extending = guard.extend(engine_ttl);
            let _ = timeout(random.millis(Duration::from_millis(20)), extending).await;
        }
        let guard = holders.leave(guard);
        match random.below(3) {
            0 => drop(guard),
            1 => drop(timeout(random.millis(Duration::from_millis(20)), guard.release()).await),
            _ => {
                let released = guard.release().await;
                let expected =
                    matches!(released, Ok(()) | Err(Error::NotHeld(_) | Error::Unsure { .. }));
                assert!(expected, "{released:?}");
            }
        }
    }
}

/// Breaks the network now and then.
async fn disturb(proxies: Vec<Proxy>, ttl: Duration, seed: u64) {
    let (mut random, until) = (Random(seed), Instant::now() + LASTS);
    while Instant::now() < until && !proxies.is_empty() {
        sleep(random.millis(Duration::from_secs(1))).await;
        // Outlasts a lease in silence; otherwise a moment is enough.
        let (mode, lasts) = match random.below(4) {
            0 => (Mode::Open, Duration::ZERO),
            1 => (Mode::LoseAnswers, random.millis(Duration::from_millis(100))),
            _ => (Mode::Silent, random.millis(ttl * 2)),
        };
        proxies.iter().for_each(|proxy| proxy.set(mode));
        sleep(lasts).await;
        proxies.iter().for_each(Proxy::cut);
        proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
    }
}

/// Whatever happens, two guards never believe at once, and afterwards the lock is free after one
/// lease. An engine whose holders may learn of a loss too late is left undisturbed.
pub(crate) async fn chaos(engine: &Engine) {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).unwrap();
    let seed = u64::from_le_bytes(seed);
    let (proxies, disturbed) = through_proxies(engine, Duration::from_secs(2)).await;
    let (direct, name) = (engine.connect().await, unique("chaos"));
    let holders = Arc::new(Holders::default());
    let mut tasks = JoinSet::new();
    for worker in 0..WORKERS {
        let locks = if worker % 3 == 0 { direct.clone() } else { disturbed.clone() };
        tasks.spawn(work(engine.ttl, locks, name.clone(), holders.clone(), seed ^ worker));
    }
    let in_time = direct.promises().lost_in_time.holds;
    tasks.spawn(disturb(if in_time { proxies } else { Vec::new() }, engine.ttl, !seed));
    while let Some(task) = tasks.join_next().await {
        task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let served = holders.served.load(Ordering::Relaxed);
    assert!(served > 0, "seed {seed}: nobody was served");
    engine.take(&direct, &name).await.unwrap().release().await.unwrap();
}
