//! The state that all connections of the door share.

use crate::authentication::{Authenticator, LoginError};
use crate::doors::memory::{self, Memory, Share};
use crate::engine::Engine;
use crate::random;
use bytes::Bytes;
use holdfast_core::{LockName, Right};
use holdfast_gateway::{Caller, Channels};
use holdfast_redis::client::Client;
use holdfast_redis::lua::Scripts;
use holdfast_redis::run::{Local, NodeFacts};
use prometheus_client::metrics::counter::Counter;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{MutexGuard as Turn, Semaphore};

/// Scripts that may run concurrently: each takes a thread, and up to 16 MiB and a second.
const SCRIPTS_AT_ONCE: usize = 4;

/// Scripts on the same key run one after the other; keys are hashed to this many mutexes.
const STRIPES: usize = 64;

pub(super) struct Door {
    pub(super) engine: Engine,
    /// Commands received.
    pub(super) commands: Counter,
    /// How many connections are waiting in a blocking command.
    pub(super) blocked: AtomicUsize,
    /// How many keys there were at the last look.
    pub(super) keys: AtomicUsize,
    pub(super) room_for_scripts: Arc<Semaphore>,
    memory: Arc<Memory>,
    memory_before_password: Arc<Memory>,
    pub(super) authenticator: Arc<Authenticator>,
    scripts: Scripts,
    stripes: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    /// Each connection's entry in `CLIENT LIST`.
    clients: Mutex<BTreeMap<u64, String>>,
    next: AtomicU64,
    port: u16,
    run_id: String,
    begun: Instant,
}

impl Door {
    pub(super) fn new(
        engine: Engine,
        commands: Counter,
        authenticator: Arc<Authenticator>,
        port: u16,
    ) -> Self {
        let run_id = (0..5).map(|_| format!("{:08x}", random::number() as u32)).collect();
        Self {
            engine,
            commands,
            blocked: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            room_for_scripts: Arc::new(Semaphore::new(SCRIPTS_AT_ONCE)),
            memory: Memory::new(memory::BYTES_MAX),
            memory_before_password: Memory::new(memory::BYTES_MAX_BEFORE_PASSWORD),
            authenticator,
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
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection.
    pub(super) fn add_client(&self) -> Client {
        let client = Client::new(
            self.next.fetch_add(1, Ordering::Relaxed),
            self.authenticator.is_required(),
        );
        self.show(&client);
        client
    }

    /// A connection's share of memory: clients that have yet to authenticate have their own
    /// budget.
    pub(super) fn share(&self, client: &Client) -> Share {
        let memory = if client.may_ask() { &self.memory } else { &self.memory_before_password };
        Share::new(memory.clone())
    }

    /// Updates a connection's entry in `CLIENT LIST`.
    pub(super) fn show(&self, client: &Client) {
        self.clients().insert(client.id, client.line());
    }

    /// Removes a connection that has ended.
    pub(super) fn remove_client(&self, number: u64) {
        self.clients().remove(&number);
    }

    /// The reply to `CLIENT LIST`.
    pub(super) fn list(&self) -> String {
        self.clients().values().map(String::as_str).collect()
    }

    /// The client with these credentials. As in Redis, `default` is the user of those who send only a
    /// password, which may also be a bearer token.
    pub(super) async fn log_in(
        &self,
        caller: Caller,
        user: Option<&Bytes>,
        password: &[u8],
    ) -> Result<Caller, LoginError> {
        match user.filter(|user| user.as_ref() != b"default") {
            Some(user) => self.authenticator.by_password(caller, Some(user), password).await,
            None if self.authenticator.is_required() => {
                self.authenticator.by_token(caller, password).await
            }
            None => Ok(caller),
        }
    }

    /// Waits until no other script with this key runs on this node.
    pub(super) async fn turn_for(&self, name: Option<&LockName>) -> Option<Turn<'_, ()>> {
        let hash = self.hasher.hash_one(name?.as_bytes());
        let stripe = usize::try_from(hash % STRIPES as u64).unwrap_or(0);
        Some(self.stripes.get(stripe)?.lock().await)
    }
}

/// The door as jobs see it.
pub(super) struct NodeView<'a> {
    pub(super) door: &'a Door,
    /// The client.
    pub(super) caller: &'a Caller,
    /// This node's subscriptions.
    pub(super) channels: &'a Channels,
}

impl Local for NodeView<'_> {
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
        let accounts = self.door.engine.accounts();
        let may_look = |name: &[u8]| self.caller.may_in(&accounts, Right::Read, name);
        self.channels.names().into_iter().filter(|(name, _)| may_look(name)).collect()
    }

    fn patterns(&self) -> usize {
        self.channels.patterns()
    }

    fn facts(&self) -> NodeFacts {
        let door = self.door;
        NodeFacts {
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
