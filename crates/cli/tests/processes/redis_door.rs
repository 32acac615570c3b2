//! Redis clients of three nodes: on a follower, while leaders die, together with other doors.

use crate::resp::{Redis, RedisReply};
use crate::support::{Cluster, Http, TIMEOUT, eventually, measured};
use holdfast_client::Client;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                      return redis.call('del', KEYS[1]) else return 0 end";

fn connect(port: u16) -> Redis {
    eventually("the Redis door is open", || Redis::connect(port + 1).ok())
}

#[test]
fn redis_clients_of_any_node_are_served_and_receive_messages() {
    let mut cluster = Cluster::start(3);
    let follower = cluster.follower();
    let ports = cluster.ports();
    let mut ana = connect(cluster.nodes[follower].port);
    let mut others: Vec<Redis> = ports.iter().map(|port| connect(*port)).collect();
    assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
    for other in &mut others {
        assert_eq!(other.ask("GET job"), "ana");
        assert_eq!(other.ask("SET job other NX PX 60000"), "nil");
    }
    assert_eq!(ana.ask_words(&["EVAL", DELETE, "1", "job", "ana"]), "1");
    for other in &mut others {
        assert_eq!(other.ask("GET job"), "nil");
        assert_eq!(other.ask("SUBSCRIBE news"), "[subscribe news 1]");
    }
    for message in ["one", "two", "three"] {
        ana.ask(&format!("PUBLISH news {message}"));
    }
    for other in &mut others {
        for message in ["one", "two", "three"] {
            assert_eq!(other.receive(), format!("[message news {message}]"));
        }
    }
    // A pop on one node waits for a push on another.
    let mut waits = connect(ports[0]);
    waits.send(&["BLPOP jobs 0"]);
    assert_eq!(connect(ports[1]).ask("RPUSH jobs a"), "1");
    assert_eq!(waits.receive(), "[jobs a]");
}

/// A client that reconnects, to any node, finds everything that was acknowledged to it.
#[test]
fn reconnecting_is_enough_when_the_leader_is_killed() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let mut redis = connect(ports[0]);
    let mut told = Vec::new();
    for round in 0..2 {
        for at in 0..50 {
            let key = format!("key-{round}-{at}");
            assert_eq!(redis.ask(&format!("SET {key} x NX PX 600000")), "OK");
            told.push(key);
        }
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        let port = cluster.ports()[0];
        // During the election the reply may be that there is no leader; never that a key is gone.
        redis = eventually("a node answers", || {
            let mut redis = Redis::connect(port + 1).ok()?;
            matches!(redis.try_ask(&["SET", "probe", "x"]), Ok(RedisReply::Status(_)))
                .then_some(redis)
        });
        for key in &told {
            assert_eq!(redis.ask(&format!("GET {key}")), "x", "{key}");
        }
        cluster.nodes[leader].start();
        cluster.all_ready();
        redis = connect(cluster.nodes[leader].port);
    }
}

/// One connection stays where it is while another node loses leadership: its command waits.
#[test]
fn commands_wait_for_the_election() {
    let mut cluster = Cluster::start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut redis = connect(cluster.nodes[follower].port);
    assert_eq!(redis.ask("SET a 0"), "OK");
    cluster.nodes[leader].kill();
    assert_eq!(redis.ask("INCR a"), "1");
    assert_eq!(redis.ask("GET a"), "1");
}

/// Who holds the one lock that everybody wants.
#[derive(Default)]
struct Book {
    holder: Option<u64>,
    last: u64,
    taken: [usize; 3],
    wrong: Vec<String>,
}

struct Contest {
    book: Mutex<Book>,
    over: AtomicBool,
}

impl Contest {
    fn took(&self, door: usize, token: u64) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = book.holder.replace(token) {
            book.wrong.push(format!("{token} was granted while {other} held it"));
        }
        if token <= book.last {
            let last = book.last;
            book.wrong.push(format!("{token} was granted after {last}"));
        }
        book.last = token;
        book.taken[door] += 1;
    }

    fn lets_go(&self) {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).holder = None;
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

#[test]
fn three_doors_share_one_holder_and_rising_tokens() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let contest = Contest { book: Mutex::default(), over: AtomicBool::new(false) };
    thread::scope(|scope| {
        for (number, port) in ports.iter().copied().enumerate() {
            let contest = &contest;
            scope.spawn(move || redis_client(contest, port, number));
            scope.spawn(move || http_client(contest, port));
            scope.spawn(move || native_client(contest, port));
        }
        let until = Instant::now() + Duration::from_secs(3);
        eventually("every door has its share", || {
            let book = contest.book.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = book.taken.iter().all(|taken| *taken >= 10);
            (!book.wrong.is_empty() || shared && Instant::now() > until).then_some(())
        });
        contest.over.store(true, Ordering::Relaxed);
    });
    let book = contest.book.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(book.wrong.is_empty(), "{:#?}", book.wrong);
    let [redis, http, native] = book.taken;
    measured(&format!("one lock, three doors: Redis {redis}, HTTP {http}, gRPC {native}"));
}

fn redis_client(contest: &Contest, port: u16, number: usize) {
    let mut redis = connect(port);
    let label = format!("redis-{number}");
    while contest.goes_on() {
        if redis.ask(&format!("SET seat {label} NX PX 600000")) != "OK" {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let token = redis.ask("HOLDFAST.TOKEN seat").parse().expect("a token");
        contest.took(0, token);
        thread::sleep(Duration::from_millis(1));
        contest.lets_go();
        assert_eq!(redis.ask_words(&["EVAL", DELETE, "1", "seat", &label]), "1");
        // A try does not wait in line: it must leave the lock to the others now and then.
        thread::sleep(Duration::from_millis(2));
    }
}

fn http_client(contest: &Contest, port: u16) {
    let http = Http::new(TIMEOUT);
    while contest.goes_on() {
        let body = json!({ "name": "seat", "ttl_ms": 600_000, "wait_ms": 200 });
        let Ok(reply) = http.post(port, "/v1/grab_lock", &body) else { continue };
        let Some(token) = reply.body["fencing_token"].as_u64() else { continue };
        contest.took(1, token);
        contest.lets_go();
        let own = json!({ "name": "seat", "fencing_token": token, "secret": reply.body["secret"] });
        let released = http.post(port, "/v1/release_lock", &own).expect("an answer");
        assert_eq!(released.status, 200, "{}", released.body);
        // Tries get the lock only when nobody is waiting.
        thread::sleep(Duration::from_millis(20));
    }
}

fn native_client(contest: &Contest, port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = Client::connect([format!("http://127.0.0.1:{port}")]).await.expect("a client");
        while contest.goes_on() {
            let wait = Duration::from_millis(200);
            let Ok(guard) = client.lock("seat").wait(wait).acquire().await else { continue };
            contest.took(2, guard.token().get());
            contest.lets_go();
            guard.release().await.expect("it is released");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
