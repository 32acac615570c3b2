//! The state that all connections of the door share, and its answers to four-letter words.

use super::registry::ClientRegistry;
use super::work::Work;
use crate::authentication::Authenticator;
use crate::doors::memory::{self, Memory, Share};
use crate::engine::{Engine, Listening, Pending};
use crate::random;
use crate::uptime::Uptime;
use holdfast_core::{Command, Secret, SessionRef};
use holdfast_core::{Door as CoreDoor, UserName};
use holdfast_gateway::Caller;
use holdfast_gateway::{SubmitError, Topic};
use holdfast_zookeeper::ClientId;
use holdfast_zookeeper::connection::{Connection, LoginCheck, Settings, Users};
use holdfast_zookeeper::four_letter::{self, FourLetterWord, ServerInfo};
use holdfast_zookeeper::task::ClientTask;
use prometheus_client::metrics::counter::Counter;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

pub(super) struct Door {
    pub(super) registry: Arc<ClientRegistry>,
    /// Requests received.
    pub(super) commands: Counter,
    /// Frames sent.
    pub(super) sent: AtomicU64,
    /// Frames received, including connect requests.
    pub(super) received: AtomicU64,
    engine: Engine,
    listening: Listening,
    authenticator: Arc<Authenticator>,
    settings: Settings,
    memory: Arc<Memory>,
    memory_before_password: Arc<Memory>,
    next: AtomicU64,
}

impl Door {
    pub(super) fn new(
        engine: Engine,
        commands: Counter,
        authenticator: Arc<Authenticator>,
    ) -> Self {
        let registry = Arc::new(ClientRegistry::default());
        let listening = engine.listen(registry.clone(), vec![Topic::Znodes]);
        let users = Arc::new(KnownUsers(authenticator.clone()));
        Self {
            registry,
            commands,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            engine,
            listening,
            authenticator,
            settings: Settings { users, ..Settings::default() },
            memory: Memory::new(memory::BYTES_MAX),
            memory_before_password: Memory::new(memory::BYTES_MAX_BEFORE_PASSWORD),
            next: AtomicU64::new(1),
        }
    }

    /// The time for connections, from a clock that also runs while the machine sleeps.
    pub(super) fn now() -> Duration {
        Uptime::now().since_boot()
    }

    /// The state of a new connection.
    pub(super) fn new_connection(&self, peer: IpAddr) -> Connection {
        let client = ClientId(self.next.fetch_add(1, Ordering::Relaxed));
        Connection::new(client, peer, self.settings.clone(), Secret(random::bytes()))
    }

    /// A connection's share of memory: clients that have yet to authenticate have their own budget.
    pub(super) fn share(&self, is_authenticated: bool) -> Share {
        let before = self.settings.users.are_required() && !is_authenticated;
        Share::new(if before { &self.memory_before_password } else { &self.memory }.clone())
    }

    /// Runs a client's task on the loop's thread; it is returned through the client's queue.
    pub(super) fn start(&self, task: Box<ClientTask>) -> Result<Pending, SubmitError> {
        let registry = self.registry.clone();
        let engine = self.engine.for_caller(task.caller().clone());
        engine.start(Box::new(Work { registry, task }), None)
    }

    /// Sends the cluster a heartbeat of a client's session; the reply comes through the client's
    /// queue.
    pub(super) fn heartbeat(
        &self,
        client: ClientId,
        session: SessionRef,
    ) -> Result<(), SubmitError> {
        self.engine.heartbeat_to(&self.listening, client.0, session)
    }

    /// Whether there is such a user.
    pub(super) fn knows(&self, user: &UserName) -> bool {
        self.authenticator.knows(user)
    }

    /// Ends a session that nobody can use.
    pub(super) fn close_session(&self, session: SessionRef) {
        let engine = self.engine.clone();
        let closing = async move {
            // If this fails, the session expires.
            let _ = engine.submit(None, Command::CloseSession(session)).await;
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(closing);
        }
    }

    /// The answer to a four-letter word. If there is a password, only the words that health checks
    /// need are answered, because a word can't carry the password.
    pub(super) async fn answer(&self, word: FourLetterWord) -> String {
        if self.settings.users.are_required()
            && !matches!(word, FourLetterWord::Ruok | FourLetterWord::Isro)
        {
            return four_letter::refused(word);
        }
        four_letter::answer(word, &self.info().await)
    }

    async fn info(&self) -> ServerInfo {
        let (connections, watches) = self.registry.list();
        let outstanding = connections.iter().map(|connection| connection.outstanding).sum();
        let info = ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: "standalone",
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            outstanding,
            watches,
            connections,
            ..ServerInfo::default()
        };
        let look = self.engine.peek(|node| {
            let counts = node.state().counts();
            let alone = node.cluster().members().len() == 1;
            let mode = match (alone, node.is_leader()) {
                (true, _) => "standalone",
                (false, true) => "leader",
                (false, false) => "follower",
            };
            (mode, node.leader().is_some(), node.state().zxid(), counts.nodes, counts.sessions)
        });
        // If the loop has ended, nothing is served.
        let Ok((mode, serving, zxid, nodes, sessions)) = look.await else { return info };
        ServerInfo { mode, serving, zxid, nodes, sessions, ..info }
    }
}

/// The users of the cluster, as a connection checks them.
struct KnownUsers(Arc<Authenticator>);

impl fmt::Debug for KnownUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownUsers")
    }
}

impl Users for KnownUsers {
    fn are_required(&self) -> bool {
        self.0.is_required()
    }

    /// Hashing the password takes a while: meanwhile, other connections are served by other threads.
    fn check(&self, user: &str, password: &[u8], address: IpAddr) -> LoginCheck {
        let name = UserName::parse(user).ok().filter(|name| self.0.knows(name));
        let Some(name) = name else { return LoginCheck::Unknown };
        match self.0.check_quickly(&name, password) {
            Some(true) => return LoginCheck::Right(name),
            Some(false) => {
                self.0.note_failure(CoreDoor::ZooKeeper, address, user);
                return LoginCheck::Wrong;
            }
            None => {}
        }
        let caller = Caller::new(CoreDoor::ZooKeeper, Some(address));
        let checking = self.0.by_password(caller, Some(user.as_bytes()), password);
        match block_in_place(|| Handle::current().block_on(checking)) {
            Ok(_) => LoginCheck::Right(name),
            Err(_) => LoginCheck::Wrong,
        }
    }
}
