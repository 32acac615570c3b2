//! Everything in any order, each future polled a few times and then dropped, over connections that
//! delay answers or break: at every moment no guard claims more than the server says, and in the
//! end nothing is held, nobody waits and nobody has died.

use crate::cancel::{poll_times, show};
use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{eventually, operator, soon};
use holdfast_client::{Client, Guard, Health, Watch};
use holdfast_proto::v1::Mode::Exclusive;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::time::Duration;
use tokio::time::sleep;
use tonic::transport::Channel;

/// Nothing here is freed by expiring.
const TTL: Duration = Duration::from_mins(10);

const NAMES: [&str; 3] = ["left", "right", "boss"];
const STEPS: usize = 150;
const GUARDS_MAX: usize = 5;

/// Pseudo-random numbers: xorshift.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}

struct Seat {
    client: Client,
    proxy: Proxy,
}

struct World {
    random: Random,
    node: Node,
    operator: HoldfastClient<Channel>,
    seats: Vec<Seat>,
    /// With the index of its client.
    guards: Vec<(usize, Guard)>,
    watch: Option<Watch>,
    done: Vec<String>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let node = Node::start().await;
        let operator = operator(&node).await;
        let mut seats = Vec::new();
        for _ in 0..3 {
            let proxy = Proxy::to(&node.url);
            seats.push(Seat { client: connect(&proxy).await, proxy });
        }
        // Neighbouring seeds must not start alike.
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(2);
        let (guards, done) = (Vec::new(), Vec::new());
        Self { random, node, operator, seats, guards, watch: None, done }
    }

    /// Polls it a few times, and drops it if it is not done by then.
    async fn a_few_polls<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let times = self.random.index(6);
        let mut random = self.random.clone();
        let pause = || Duration::from_micros(random.below(1_500));
        let done = poll_times(work, times, pause).await;
        self.random.below(2);
        self.did(&format!("  polled {times} times, done: {}", done.is_some()));
        done
    }

    fn did(&mut self, what: &str) {
        self.done.push(what.to_owned());
    }

    async fn step(&mut self) {
        match self.random.below(16) {
            0..=4 => self.acquire().await,
            5 => self.campaign().await,
            6..=7 => self.upgrade().await,
            8..=9 => self.downgrade().await,
            10 => self.note().await,
            11 => self.release().await,
            12 => self.drop_guard(),
            13 => self.watch().await,
            14 => self.disturb(),
            _ => self.close().await,
        }
    }

    async fn acquire(&mut self) {
        if self.guards.len() >= GUARDS_MAX {
            return;
        }
        let seat = self.random.index(self.seats.len());
        let name = NAMES[self.random.index(2)];
        let mut lock = self.seats[seat].client.lock(name);
        let (shared, own) = (!self.random.one_in(3), self.random.one_in(2));
        let (reentrant, wait) = (self.random.one_in(4), self.random.below(3));
        if shared {
            lock = lock.shared();
        }
        if own {
            lock = lock.ttl(TTL);
        }
        if reentrant {
            lock = lock.reentrant();
        }
        lock = match wait {
            0 => lock.wait(Duration::ZERO),
            1 => lock.wait(Duration::from_millis(3)),
            _ => lock,
        };
        self.did(&format!("{seat} acquires {name}, {shared} {own} {reentrant} {wait}"));
        if let Some(Ok(guard)) = self.a_few_polls(lock.acquire()).await {
            self.did(&format!("  has {}", guard.token()));
            self.guards.push((seat, guard));
        }
    }

    async fn campaign(&mut self) {
        let seat = self.random.index(self.seats.len());
        self.did(&format!("{seat} campaigns"));
        let election = self.seats[seat].client.election(NAMES[2]);
        if let Some(Ok(leadership)) = self.a_few_polls(election.campaign("me")).await {
            assert!(leadership.token().get() > 0);
            let _ = self.a_few_polls(leadership.resign()).await;
        }
    }

    fn take_guard(&mut self) -> Option<(usize, Guard)> {
        let some = !self.guards.is_empty();
        some.then(|| self.guards.swap_remove(self.random.index(self.guards.len())))
    }

    async fn upgrade(&mut self) {
        let Some((seat, mut guard)) = self.take_guard() else { return };
        self.did(&format!("{seat} upgrades {}", guard.token()));
        let wait = (!self.random.one_in(3)).then_some(Duration::from_millis(4));
        self.a_few_polls(guard.upgrade(wait)).await;
        self.guards.push((seat, guard));
    }

    async fn downgrade(&mut self) {
        let Some((seat, mut guard)) = self.take_guard() else { return };
        self.did(&format!("{seat} downgrades {}", guard.token()));
        self.a_few_polls(guard.downgrade()).await;
        self.guards.push((seat, guard));
    }

    async fn note(&mut self) {
        let Some((seat, guard)) = self.take_guard() else { return };
        self.did(&format!("{seat} notes on {}", guard.token()));
        self.a_few_polls(guard.note(Some(b"here"))).await;
        self.guards.push((seat, guard));
    }

    async fn release(&mut self) {
        let Some((seat, guard)) = self.take_guard() else { return };
        self.did(&format!("{seat} releases {}", guard.token()));
        let released = self.a_few_polls(guard.release()).await;
        assert!(matches!(released, None | Some(Ok(()))), "{released:?}");
    }

    fn drop_guard(&mut self) {
        let Some((seat, guard)) = self.take_guard() else { return };
        self.did(&format!("{seat} drops {}", guard.token()));
    }

    async fn watch(&mut self) {
        let seat = self.random.index(self.seats.len());
        if let Some(mut watch) = self.watch.take() {
            self.a_few_polls(watch.next()).await;
            self.watch = Some(watch);
        } else {
            let client = self.seats[seat].client.clone();
            let watch = self.a_few_polls(client.watch(NAMES[0])).await;
            self.watch = watch.and_then(Result::ok);
        }
    }

    fn disturb(&mut self) {
        let (seat, way) = (self.random.index(self.seats.len()), self.random.below(5));
        let way = match way {
            0 => Way::Cut,
            1 => Way::AnswersWait,
            _ => Way::Open,
        };
        self.did(&format!("the way of {seat} is {way:?}"));
        self.seats[seat].proxy.set(way);
    }

    async fn close(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let seat = self.random.index(self.seats.len());
        self.did(&format!("{seat} closes"));
        self.guards.retain(|(of, _)| *of != seat);
        self.seats[seat].proxy.set(Way::Open);
        let new = connect(&self.seats[seat].proxy).await;
        let old = std::mem::replace(&mut self.seats[seat].client, new);
        if self.random.one_in(2) {
            self.a_few_polls(old.close()).await;
        }
    }

    /// What was claimed before the server was queried and is still claimed afterwards must be true.
    async fn check_claims(&mut self) {
        for (_, guard) in &self.guards {
            let claim = || (guard.token().get(), guard.is_shared(), guard.health());
            let before = claim();
            let name = std::str::from_utf8(guard.name()).unwrap();
            let lock = show(&mut self.operator, name).await;
            let (token, shared, health) = before;
            if before != claim() || health != Health::Good {
                assert!(!matches!(health, Health::Lost(_)), "{}", self.done.join("\n"));
                continue;
            }
            let held = lock
                .holders
                .iter()
                .any(|holder| holder.token == token && (shared || holder.mode() == Exclusive));
            // A reader whose upgrade was served, and that has not been notified yet.
            let upgraded = shared
                && lock.holding == 1
                && lock.holders[0].mode() == Exclusive
                && lock.holders[0].token > token;
            assert!(held || upgraded, "{before:?} {lock:?}\n{}", self.done.join("\n"));
        }
    }

    async fn end(mut self) {
        for seat in &self.seats {
            seat.proxy.set(Way::Open);
        }
        for (_, guard) in &self.guards {
            let noted = soon(guard.note(None)).await;
            assert_eq!(noted, Ok(()), "{guard:?}\n{}", self.done.join("\n"));
        }
        self.check_claims().await;
        for (_, guard) in &self.guards {
            let name = std::str::from_utf8(guard.name()).unwrap();
            let holders = show(&mut self.operator, name).await.holders;
            let holder = holders.iter().find(|holder| holder.token == guard.token().get()).unwrap();
            // One whose downgrade is unanswered may hold more than it reports, never less.
            assert!(guard.is_shared() || holder.mode() == Exclusive);
        }
        self.guards.clear();
        let operator = &mut self.operator;
        for name in NAMES {
            let free = async || {
                let lock = show(operator, name).await;
                lock.holding + lock.waiting == 0
            };
            eventually(&format!("{name} is free:\n{}", self.done.join("\n")), free).await;
            let lock = show(operator, name).await;
            assert_eq!(lock.needs_recovery, None, "{name}\n{}", self.done.join("\n"));
        }
        self.node.end().await;
    }
}

async fn connect(proxy: &Proxy) -> Client {
    soon(Client::builder().session_ttl(TTL).connect([&proxy.url])).await.unwrap()
}

/// `HOLDFAST_SEEDS=1..1000` runs others.
#[tokio::test]
async fn dropped_futures_leave_no_false_claims_or_locks() {
    let seeds = std::env::var("HOLDFAST_SEEDS").unwrap_or_else(|_| "1..4".to_owned());
    let (first, end) = seeds.split_once("..").expect("seeds as in 1..4");
    let seeds: std::ops::Range<u64> = first.parse().unwrap()..end.parse().unwrap();
    for seed in seeds {
        let mut world = World::new(seed).await;
        world.did(&format!("seed {seed}"));
        for _ in 0..STEPS {
            world.step().await;
            world.check_claims().await;
            if world.random.one_in(8) {
                sleep(Duration::from_millis(2)).await;
            }
        }
        world.end().await;
    }
}
