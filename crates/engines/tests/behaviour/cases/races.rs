//! A holder that extends, hands over, releases and drops its lock in any order, over a network that
//! delays and loses packets: nobody else may hold the lock while it believes that it does.

use crate::engine::{Engine, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Guard, Locks};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::{sleep, timeout};

use super::through_proxies;

const ROUNDS: u32 = 8;

/// A generator that is good enough to choose with.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % sides
    }

    fn ttl(&mut self, engine: &Engine) -> Duration {
        engine.ttl + Duration::from_secs(self.roll(6))
    }
}

/// Takes the lock whenever it is free, for a moment.
#[derive(Default)]
struct Rival {
    holds: AtomicBool,
    times: AtomicU64,
}

impl Rival {
    async fn run(self: Arc<Self>, locks: Locks, name: String, ttl: Duration) {
        loop {
            if let Ok(Some(guard)) = locks.lock(&name).ttl(ttl).try_acquire().await {
                self.holds.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(10)).await;
                self.holds.store(false, Ordering::SeqCst);
                self.times.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
            sleep(Duration::from_millis(30)).await;
        }
    }

    fn check(&self, guard: &Guard, after: &str) {
        // In this order: a lost guard stays lost.
        let holds = self.holds.load(Ordering::SeqCst);
        assert!(!holds || guard.is_lost(), "two hold the lock after {after}");
    }
}

pub(crate) async fn races(engine: &Engine) {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let mut dice = Dice(u64::try_from(seed & u128::from(u64::MAX)).unwrap());
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(2)).await;
    let (direct, name) = (engine.connect().await, unique("races"));
    let rival = Arc::new(Rival::default());
    let running = rival.clone().run(direct.clone(), name.clone(), engine.ttl);
    let running = tokio::spawn(running);
    for _ in 0..ROUNDS {
        let lock = locks.lock(&name).ttl(dice.ttl(engine)).wait(Duration::from_secs(10));
        let lock = if dice.roll(2) == 0 { lock.fixed() } else { lock };
        let Ok(guard) = lock.acquire().await else {
            proxies.iter().for_each(Proxy::deliver);
            proxies.iter().for_each(Proxy::cut);
            continue;
        };
        for _ in 0..dice.roll(5) {
            disturb(&proxies, &mut dice).await;
            let did = act(engine, &guard, &mut dice).await;
            rival.check(&guard, did);
            sleep(Duration::from_millis(dice.roll(500))).await;
            rival.check(&guard, did);
        }
        end(&direct, guard, &mut dice).await;
        proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
        proxies.iter().for_each(Proxy::deliver);
        // Whatever happened, the lock becomes free some time after.
        let served = rival.times.load(Ordering::SeqCst);
        let again = async {
            while rival.times.load(Ordering::SeqCst) <= served + 1 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(timeout(Duration::from_secs(40), again).await.is_ok(), "nobody gets the lock");
    }
    running.abort();
}

async fn disturb(proxies: &[Proxy], dice: &mut Dice) {
    match dice.roll(5) {
        0 => proxies.iter().for_each(Proxy::delay),
        1 => proxies.iter().for_each(Proxy::deliver),
        2 => proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers)),
        3 => {
            proxies.iter().for_each(Proxy::cut);
            proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
        }
        _ => {}
    }
}

async fn act(engine: &Engine, guard: &Guard, dice: &mut Dice) -> &'static str {
    let (one, other) = (dice.ttl(engine), dice.ttl(engine) / 2);
    match dice.roll(4) {
        0 => {
            let _ = guard.extend(other).await;
            "an extension"
        }
        1 => {
            let _ = tokio::join!(guard.extend(one), guard.extend(other));
            "two extensions at once"
        }
        2 => {
            let _ = timeout(Duration::from_millis(dice.roll(50)), guard.extend(other)).await;
            let _ = guard.extend(one).await;
            "an extension after a dropped one"
        }
        _ => "nothing",
    }
}

async fn end(direct: &Locks, guard: Guard, dice: &mut Dice) {
    let soon = Duration::from_millis(dice.roll(50));
    match dice.roll(5) {
        0 => drop(guard),
        1 => drop(timeout(soon, guard.release()).await),
        2 => drop(timeout(soon, guard.detach()).await),
        3 => {
            let detached = timeout(Duration::from_secs(20), guard.detach()).await;
            let Ok(Ok(lease)) = detached else { return };
            let lease = direct.attach(lease).await.unwrap();
            let _ = lease.extend(Duration::from_secs(5)).await;
            let _ = lease.release().await;
        }
        _ => drop(guard.release().await),
    }
}
