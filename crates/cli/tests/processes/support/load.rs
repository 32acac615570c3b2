//! Clients that take and release locks, and record what they were told: it must be true.
//!
//! Each request has a request id, and is retried under the same id with other nodes until its
//! outcome is certain.

use super::{Book, Held, Http, TIMEOUT, eventually, unique};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any test: only a release may end a grant.
const TTL_MS: u64 = 3_600_000;

/// After this many of its own locks, a client keeps one until the end.
const KEPT_EVERY: u64 = 25;

/// Locks that all clients want.
const SHARED: u64 = 2;

pub(crate) struct Load {
    shared_load: Arc<SharedLoad>,
    clients: Vec<JoinHandle<()>>,
}

struct SharedLoad {
    ports: Mutex<Vec<u16>>,
    closing: AtomicBool,
    book: Mutex<Book>,
}

impl SharedLoad {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, what: String) {
        eprintln!("wrong: {what}");
        self.book().wrong.push(what);
    }

    fn ports(&self) -> Vec<u16> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Load {
    pub(crate) fn start(clients: u64, ports: Vec<u16>) -> Self {
        let shared_load = Arc::new(SharedLoad {
            ports: Mutex::new(ports),
            closing: AtomicBool::new(false),
            book: Mutex::default(),
        });
        let run = |number| {
            let shared_load = shared_load.clone();
            thread::spawn(move || Client::new(number, shared_load).run())
        };
        Self { clients: (0..clients).map(run).collect(), shared_load }
    }

    /// Sets which nodes to use from now on.
    pub(crate) fn ask(&self, ports: Vec<u16>) {
        *self.shared_load.ports.lock().unwrap_or_else(PoisonError::into_inner) = ports;
    }

    /// How many locks have been taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.shared_load.book().acquired_at.len()
    }

    /// Waits until this many more locks have been taken.
    pub(crate) fn goes_on(&self, more: usize) {
        let before = self.taken();
        eventually("clients take locks", || (self.taken() >= before + more).then_some(()));
    }

    /// The longest time since then without a lock being taken.
    pub(crate) fn longest_gap(&self, since: Instant) -> Duration {
        let book = self.shared_load.book();
        let after = book.acquired_at.iter().filter(|at| **at > since);
        let mut longest = Duration::ZERO;
        let mut before = since;
        for at in after {
            longest = longest.max(at.duration_since(before));
            before = *at;
        }
        longest
    }

    /// Stops the clients and compares their records with a node's state: everything that was
    /// granted and not released is held by that token, and nothing else is. Returns how many locks
    /// were taken.
    pub(crate) fn finish(mut self, http: &Http) -> usize {
        self.shared_load.closing.store(true, Ordering::Relaxed);
        for client in std::mem::take(&mut self.clients) {
            client.join().expect("a client ends");
        }
        let book = std::mem::take(&mut *self.shared_load.book());
        let told: Vec<&String> = book.wrong.iter().take(20).collect();
        assert!(book.wrong.is_empty(), "{} things were wrong: {told:#?}", book.wrong.len());
        for port in self.shared_load.ports() {
            let held = held(http, port);
            let lost: Vec<_> =
                book.holding.iter().filter(|(n, t)| held.get(*n) != Some(t)).collect();
            assert!(lost.is_empty(), "granted and never released, but not held: {lost:?}");
            let unknown: Vec<_> =
                held.iter().filter(|(n, t)| book.holding.get(*n) != Some(t)).collect();
            assert!(unknown.is_empty(), "held, but released or never granted: {unknown:?}");
        }
        book.acquired_at.len()
    }
}

/// After a failed test, its clients must not continue with the servers of the next one.
impl Drop for Load {
    fn drop(&mut self) {
        self.shared_load.closing.store(true, Ordering::Relaxed);
    }
}

/// All locks held by clients, with the holder's token.
fn held(http: &Http, port: u16) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = http.get_ok(port, &format!("/v1/locks?prefix=load.&limit=1000{after}"));
        for lock in page["locks"].as_array().into_iter().flatten() {
            let name = lock["name"].as_str().unwrap_or_default();
            for token in super::tokens(&lock["holders"]) {
                let two = held.insert(name.to_owned(), token);
                assert_eq!(two, None, "{name} has two holders: {lock}");
            }
        }
        match page["next_after"].as_str() {
            Some(name) => after = format!("&after={name}"),
            None => return held,
        }
    }
}

struct Client {
    number: u64,
    shared_load: Arc<SharedLoad>,
    http: Http,
    turn: usize,
}

impl Client {
    fn new(number: u64, shared_load: Arc<SharedLoad>) -> Self {
        // Short: a node that hangs is abandoned for another one, under the same request id.
        Self { number, shared_load, http: Http::new(Duration::from_secs(3)), turn: number as usize }
    }

    fn run(mut self) {
        let number = self.number;
        for count in 1.. {
            if self.shared_load.closing.load(Ordering::Relaxed) {
                return;
            }
            let keeps = count % KEPT_EVERY == 0;
            let name = match count % 4 {
                _ if keeps => format!("load.kept.{number}.{count}"),
                0 => format!("load.shared.{}", (count / 4 + number) % SHARED),
                _ => format!("load.own.{number}"),
            };
            let Some(held) = self.acquire(&name) else { continue };
            if keeps {
                continue;
            }
            thread::sleep(Duration::from_millis(1));
            self.shared_load.book().holding.remove(&name);
            self.release(&held);
        }
    }

    /// A different node's port each time.
    fn next_port(&mut self) -> u16 {
        let ports = self.shared_load.ports();
        self.turn += 1;
        ports[self.turn % ports.len()]
    }

    /// Retries until there is a reply that settles it.
    fn certainly(&mut self, path: &str, body: &Value) -> Option<super::Reply> {
        let until = Instant::now() + TIMEOUT;
        let mut last = String::new();
        while Instant::now() < until {
            let port = self.next_port();
            match self.http.post(port, path, body) {
                Ok(reply) if reply.status != 503 => return Some(reply),
                Ok(reply) => last = reply.body.to_string(),
                Err(error) => last = error,
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.shared_load.wrong(format!("no answer to {path} {body} within {TIMEOUT:?}: {last}"));
        None
    }

    /// `None` if the wait was over before its turn, or if something went wrong.
    fn acquire(&mut self, name: &str) -> Option<Held> {
        let request = format!("{}-{}", self.number, unique());
        let body = json!({
            "name": name, "ttl_ms": TTL_MS, "wait_ms": 30_000, "request_id": request,
        });
        let reply = self.certainly("/v1/grab_lock", &body)?;
        let grant = reply.body["fencing_token"].as_u64().zip(reply.body["secret"].as_str());
        let Some((token, secret)) = grant.filter(|_| reply.status == 200) else {
            if reply.code() != "not_acquired" || !name.contains("shared") {
                self.shared_load.wrong(format!("{name} was not granted: {}", reply.body));
            }
            return None;
        };
        self.shared_load.book().grant(&request, name, token);
        Some(Held { name: name.to_owned(), token, secret: secret.to_owned() })
    }

    fn release(&mut self, held: &Held) {
        let body = held.to_release();
        // Whether an attempt that got no reply may have been the one that released it.
        let tries = self.turn;
        let Some(reply) = self.certainly("/v1/release_lock", &body) else { return };
        let tried_before = self.turn > tries + 1;
        if reply.status != 200 && !(tried_before && reply.code() == "not_held") {
            self.shared_load.wrong(format!("the grant {body} was lost: {}", reply.body));
        }
    }
}
