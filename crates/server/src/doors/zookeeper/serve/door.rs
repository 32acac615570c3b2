//! The state that all connections of the door share, and what it tells about itself.

use super::switchboard::Switchboard;
use super::work::Work;
use crate::doors::memory::{self, Memory, Share};
use crate::engine::{Engine, Listening, Pending};
use crate::password::Password;
use crate::random;
use crate::uptime::Uptime;
use holdfast_core::{Secret, SessionRef};
use holdfast_gateway::{SubmitError, Topic};
use holdfast_zookeeper::ClientId;
use holdfast_zookeeper::connection::{Connection, Settings, password_id};
use holdfast_zookeeper::four_letter::{self, ServerInfo, Word};
use holdfast_zookeeper::task::ClientTask;
use prometheus_client::metrics::counter::Counter;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) struct Door {
    pub(super) switchboard: Arc<Switchboard>,
    /// Requests received.
    pub(super) commands: Counter,
    /// Frames sent.
    pub(super) sent: AtomicU64,
    /// Frames received, the connect requests among them.
    pub(super) received: AtomicU64,
    engine: Engine,
    listening: Listening,
    settings: Settings,
    memory: Arc<Memory>,
    memory_before_password: Arc<Memory>,
    next: AtomicU64,
}

impl Door {
    pub(super) fn new(engine: Engine, commands: Counter, password: Option<Password>) -> Self {
        let switchboard = Arc::new(Switchboard::default());
        let listening = engine.listen(switchboard.clone(), vec![Topic::Znodes]);
        let required = password.map(|password| password_id(password.as_bytes()));
        Self {
            switchboard,
            commands,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            engine,
            listening,
            settings: Settings { required, ..Settings::default() },
            memory: Memory::new(memory::BYTES_MAX),
            memory_before_password: Memory::new(memory::BYTES_MAX_BEFORE_PASSWORD),
            next: AtomicU64::new(1),
        }
    }

    /// The time for connections: it goes on while the machine sleeps.
    pub(super) fn now() -> Duration {
        Uptime::now().since_boot()
    }

    /// The state of a new connection.
    pub(super) fn welcome(&self, peer: IpAddr) -> Connection {
        let client = ClientId(self.next.fetch_add(1, Ordering::Relaxed));
        Connection::new(client, peer, self.settings.clone(), Secret(random::bytes()))
    }

    /// A connection's share of memory: clients that have yet to authenticate have their own budget.
    pub(super) fn share(&self, is_let_in: bool) -> Share {
        let before = self.settings.required.is_some() && !is_let_in;
        Share::new(if before { &self.memory_before_password } else { &self.memory }.clone())
    }

    /// Runs a client's requests on the loop's thread; they come back through its mailbox.
    pub(super) fn start(&self, task: Box<ClientTask>) -> Result<Pending, SubmitError> {
        let switchboard = self.switchboard.clone();
        self.engine.start(Box::new(Work { switchboard, task }), None)
    }

    /// Tells the cluster that a client's session lives; the reply comes through its mailbox.
    pub(super) fn heartbeat(
        &self,
        client: ClientId,
        session: SessionRef,
    ) -> Result<(), SubmitError> {
        self.engine.heartbeat_to(&self.listening, client.0, session)
    }

    /// The answer to a four-letter word. If there is a password, only the words that health checks
    /// need are answered: nobody can say it along with a word.
    pub(super) async fn answer(&self, word: Word) -> String {
        if self.settings.required.is_some() && !matches!(word, Word::Ruok | Word::Isro) {
            return four_letter::refused(word);
        }
        four_letter::answer(word, &self.info().await)
    }

    async fn info(&self) -> ServerInfo {
        let (connections, watches) = self.switchboard.list();
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
        // Without the loop nothing is served.
        let Ok((mode, serving, zxid, nodes, sessions)) = look.await else { return info };
        ServerInfo { mode, serving, zxid, nodes, sessions, ..info }
    }
}
