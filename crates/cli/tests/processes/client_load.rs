//! Clients that take locks through the native API and record what they were told: it must be true.

use crate::support::{Book, Http, eventually, tokens};
use holdfast_client::{Client, Error, Guard, Health, Register};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

/// After this many of its own locks, a client keeps one until the end.
const KEPT_EVERY: u64 = 25;

/// Locks that all clients want, each with a register in which its holders count.
const SHARED: u64 = 2;

pub(crate) struct NativeLoad {
    shared_load: Arc<SharedLoad>,
    clients: JoinSet<Vec<Guard>>,
}

#[derive(Default)]
struct SharedLoad {
    closing: AtomicBool,
    book: Mutex<Book>,
    /// How often each register was incremented.
    counted: Mutex<BTreeMap<String, u64>>,
}

impl SharedLoad {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NativeLoad {
    /// Starts this many clients, each with its own session, on different servers.
    pub(crate) fn start(clients: u64, servers: &[String]) -> Self {
        let shared_load = Arc::new(SharedLoad::default());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let mut servers = servers.to_vec();
            let first = number as usize % servers.len();
            servers.rotate_left(first);
            tasks.spawn(work(number, servers, shared_load.clone()));
        }
        Self { shared_load, clients: tasks }
    }

    /// Waits until this many more locks have been taken.
    pub(crate) fn goes_on(&self, more: usize) {
        let before = self.shared_load.book().granted.len();
        eventually("clients take locks", || {
            let book = self.shared_load.book();
            assert!(book.wrong.is_empty(), "{:#?}", book.wrong);
            (book.granted.len() >= before + more).then_some(())
        });
    }

    /// Stops the clients and compares their records with a node's state. Returns how many locks
    /// were taken.
    pub(crate) async fn finish(mut self, http: &Http, port: u16, servers: &[String]) -> usize {
        self.shared_load.closing.store(true, Ordering::Relaxed);
        let mut kept = Vec::new();
        while let Some(ended) = self.clients.join_next().await {
            kept.extend(ended.expect("a client ends"));
        }
        for guard in kept {
            let name = String::from_utf8_lossy(guard.name()).into_owned();
            assert_eq!(guard.health(), Health::Good, "{name} was kept and is not held any more");
            assert_eq!(http.holders(port, &name), [guard.token().get()], "{name}");
            self.shared_load.book().holding.remove(&name);
            assert_eq!(guard.release().await, Ok(()), "{name}");
        }
        let client = Client::connect(servers).await.expect("a client");
        let book = std::mem::take(&mut *self.shared_load.book());
        assert!(book.wrong.is_empty(), "{:#?}", book.wrong);
        assert!(book.holding.is_empty(), "never let go: {:?}", book.holding);
        let counted = std::mem::take(&mut *self.shared_load.counted());
        for (name, counted) in &counted {
            // A second concurrent holder would have counted from the same number.
            assert_eq!(count_in(&client.register(name)).await, Ok(*counted), "{name}");
        }
        let held = http.get_ok(port, "/v1/locks?prefix=native/&limit=1000");
        let held = held["locks"].as_array().into_iter().flatten();
        let held: Vec<u64> = held.flat_map(|lock| tokens(&lock["holders"])).collect();
        assert!(held.is_empty(), "released, but held: {held:?}");
        book.granted.len()
    }
}

async fn work(number: u64, servers: Vec<String>, shared_load: Arc<SharedLoad>) -> Vec<Guard> {
    let client = match Client::connect(servers).await {
        Ok(client) => client,
        Err(error) => {
            shared_load.book().wrong.push(format!("client {number} does not connect: {error}"));
            return Vec::new();
        }
    };
    let mut kept = Vec::new();
    for count in 1.. {
        if shared_load.closing.load(Ordering::Relaxed) {
            break;
        }
        let (keeps, shared) = (count % KEPT_EVERY == 0, count % 3 == 0);
        let name = match (keeps, shared) {
            (true, _) => format!("native/kept/{number}/{count}"),
            (false, true) => format!("native/shared/{}", (count / 3 + number) % SHARED),
            (false, false) => format!("native/own/{number}"),
        };
        match turn(&client, &shared_load, &name, keeps, shared && !keeps).await {
            Ok(guard) => kept.extend(guard),
            Err(error) => shared_load.book().wrong.push(format!("{name}: {error}")),
        }
    }
    kept
}

/// Takes a lock and releases it, unless it is to be kept.
async fn turn(
    client: &Client,
    shared_load: &SharedLoad,
    name: &str,
    keeps: bool,
    counts: bool,
) -> Result<Option<Guard>, Error> {
    let guard = client.lock(name).acquire().await?;
    shared_load.book().grant(name, name, guard.token().get());
    if counts {
        let register = client.register(name);
        let fence = register.raise(&guard).await?;
        let before = count_of(fence.value.as_deref());
        register.put((before + 1).to_string(), &guard).await?;
        *shared_load.counted().entry(name.to_owned()).or_default() += 1;
    }
    if let Health::Lost(how) = guard.health() {
        shared_load.book().wrong.push(format!("{name} was lost: {how}"));
    }
    if keeps {
        return Ok(Some(guard));
    }
    shared_load.book().holding.remove(name);
    guard.release().await?;
    Ok(None)
}

async fn count_in(register: &Register) -> Result<u64, Error> {
    Ok(count_of(register.get().await?.value.as_deref()))
}

fn count_of(value: Option<&[u8]>) -> u64 {
    let text = value.map(|value| String::from_utf8_lossy(value).into_owned());
    text.map_or(0, |text| text.parse().expect("the register holds a count"))
}

/// The URLs that clients connect to.
pub(crate) fn urls(ports: &[u16]) -> Vec<String> {
    ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
}
