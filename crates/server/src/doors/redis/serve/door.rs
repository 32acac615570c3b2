//! What all connections of the door share.

use super::memory::{self, Memory, Share};
use crate::engine::Engine;
use crate::metrics::DoorMetrics;
use crate::password::Password;
use crate::random;
use bytes::Bytes;
use holdfast_core::LockName;
use holdfast_gateway::Channels;
use holdfast_redis::client::Client;
use holdfast_redis::lua::Scripts;
use holdfast_redis::run::{Facts, Local};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{MutexGuard as Turn, Semaphore};

/// Scripts that run at the same time: each takes a thread, and up to 16 MiB and a second.
const SCRIPTS_AT_ONCE: usize = 4;

/// Scripts on the same key run one after the other; keys are told apart by so many numbers.
const STRIPES: usize = 64;

pub(super) struct Door {
    pub(super) engine: Engine,
    pub(super) metrics: DoorMetrics,
    /// How many connections wait in a blocking command.
    pub(super) blocked: AtomicUsize,
    /// How many keys there were when somebody last looked.
    pub(super) keys: AtomicUsize,
    pub(super) room_for_scripts: Arc<Semaphore>,
    memory: Arc<Memory>,
    memory_before_password: Arc<Memory>,
    password: Option<Password>,
    scripts: Scripts,
    stripes: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    /// The line of each connection in `CLIENT LIST`.
    clients: Mutex<BTreeMap<u64, String>>,
    next: AtomicU64,
    port: u16,
    run_id: String,
    begun: Instant,
}

impl Door {
    pub(super) fn new(
        engine: Engine,
        metrics: DoorMetrics,
        password: Option<Password>,
        port: u16,
    ) -> Self {
        let run_id = (0..5).map(|_| format!("{:08x}", random::number() as u32)).collect();
        Self {
            engine,
            metrics,
            blocked: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            room_for_scripts: Arc::new(Semaphore::new(SCRIPTS_AT_ONCE)),
            memory: Memory::new(memory::BYTES_MAX),
            memory_before_password: Memory::new(memory::BYTES_MAX_BEFORE_PASSWORD),
            password,
            scripts: Scripts::default(),
            stripes: (0..STRIPES).map(|_| tokio::sync::Mutex::new(())).collect(),
            hasher: RandomState::new(),
            clients: Mutex::default(),
            next: AtomicU64::new(1),
            port,
            run_id,
            begun: Instant::now(),
        }
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        // Nobody panics while holding it; if somebody did, what is in it is still whole.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection.
    pub(super) fn welcome(&self) -> Client {
        let client =
            Client::new(self.next.fetch_add(1, Ordering::Relaxed), self.password.is_some());
        self.show(&client);
        client
    }

    /// What a connection keeps counts among those like it.
    pub(super) fn share(&self, client: &Client) -> Share {
        let memory = if client.may_ask() { &self.memory } else { &self.memory_before_password };
        Share::new(memory.clone())
    }

    /// How a connection stands now, for `CLIENT LIST`.
    pub(super) fn show(&self, client: &Client) {
        self.clients().insert(client.id, client.line());
    }

    /// A connection has ended.
    pub(super) fn farewell(&self, number: u64) {
        self.clients().remove(&number);
    }

    /// All connections.
    pub(super) fn list(&self) -> String {
        self.clients().values().map(String::as_str).collect()
    }

    /// Whether that is the password.
    pub(super) fn lets_in(&self, user: Option<&Bytes>, password: &[u8]) -> bool {
        let known = user.is_none_or(|user| user.as_ref() == b"default");
        known && self.password.as_ref().is_none_or(|right| right.is(password))
    }

    /// Waits until no other script with that key runs on this node.
    pub(super) async fn turn_for(&self, name: Option<&LockName>) -> Option<Turn<'_, ()>> {
        let hash = self.hasher.hash_one(name?.as_bytes());
        let stripe = usize::try_from(hash % STRIPES as u64).unwrap_or(0);
        Some(self.stripes.get(stripe)?.lock().await)
    }
}

/// The door, as a job sees it.
pub(super) struct AtNode<'a> {
    pub(super) door: &'a Door,
    /// Who listens on this node.
    pub(super) channels: &'a Channels,
}

impl Local for AtNode<'_> {
    fn wall_ms(&self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        random::number()
    }

    fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.subscribers(channel)
    }

    fn channels(&self) -> Vec<(Bytes, usize)> {
        self.channels.names()
    }

    fn patterns(&self) -> usize {
        self.channels.patterns()
    }

    fn facts(&self) -> Facts {
        let door = self.door;
        Facts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            port: door.port,
            run_id: door.run_id.clone(),
            uptime_s: door.begun.elapsed().as_secs(),
            clients: door.clients().len(),
            blocked: door.blocked.load(Ordering::Relaxed),
            keys: door.keys.load(Ordering::Relaxed),
        }
    }

    fn scripts(&self) -> &Scripts {
        &self.door.scripts
    }
}
