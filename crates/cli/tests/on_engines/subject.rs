//! An engine under test, and a folder to run `holdfast lock --on` in.

use crate::cli::{CommandResult, Running, Shell};
use crate::engine::Engine;
use crate::servers::{self, Server};
use crate::support::Cluster;
use holdfast_locks::Promises;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A shorter lease would expire whenever this machine is busy for a moment.
const TTL_MIN: Duration = Duration::from_secs(3);

pub(crate) struct Subject {
    pub(crate) url: String,
    /// `host:port` of the server, for a proxy.
    pub(crate) host: String,
    /// The `--ttl`: the shortest that works well on a busy machine.
    pub(crate) ttl: Duration,
    /// `None` unless its own server was requested.
    pub(crate) server: Option<Arc<dyn Server>>,
    pub(crate) shell: Shell,
}

impl Subject {
    fn new(engine: &Engine) -> Self {
        Self::at(engine.url(), engine.hosts[0].clone(), engine.ttl, engine.server.clone())
    }

    fn at(url: String, host: String, ttl: Duration, server: Option<Arc<dyn Server>>) -> Self {
        // Just a folder: no Holdfast server is used unless `--on` names one.
        let shell = Shell::with_nodes(0).on(&url);
        Self { url, host, ttl: ttl.max(TTL_MIN), server, shell }
    }

    /// The URL of the same engine at another address.
    pub(crate) fn url_at(&self, address: &str) -> String {
        self.url.replace(&self.host, address)
    }

    /// The engine's promises, by the name in the URL.
    pub(crate) fn promises(&self) -> &'static Promises {
        let engine = self.url.split(':').next().expect("a scheme");
        // The default recipe of each engine comes first.
        Promises::all().into_iter().find(|it| it.engine == engine).expect("a known engine")
    }

    /// `lock --on URL ARGS -- CMD`, with a TTL unless they have one.
    fn words(&self, args: &str, command: &[&str]) -> Vec<String> {
        let ttl = format!("--ttl={}ms", self.ttl.as_millis());
        let ttl = Some(ttl.as_str()).filter(|_| !args.contains("--ttl"));
        let words = ["lock", "--on", &self.url].into_iter().chain(ttl);
        let words = words.chain(args.split_whitespace()).chain(["--"]);
        words.chain(command.iter().copied()).map(str::to_owned).collect()
    }

    /// Starts `holdfast lock --on URL ARGS -- sh -c SCRIPT`.
    pub(crate) fn lock(&self, args: &str, script: &str) -> Running {
        self.start(args, &["sh", "-c", script])
    }

    /// Starts `holdfast lock --on URL ARGS -- CMD`.
    pub(crate) fn start(&self, args: &str, command: &[&str]) -> Running {
        self.shell.start(self.words(args, command))
    }

    /// Runs `holdfast lock --on URL ARGS -- CMD` to completion.
    pub(crate) fn run(&self, args: &str, command: &[&str]) -> CommandResult {
        self.shell.run(self.words(args, command))
    }
}

/// The engine as the behaviour suite starts it: shared by all cases, or its own.
fn started(engine: fn() -> Engine, own_server: bool) -> Subject {
    let mut subject = None;
    // That suite tells from the name of a case whether it needs its own server.
    let case = if own_server { "restart" } else { "on_engines" };
    crate::engine::run(engine, case, async |engine| subject = Some(Subject::new(engine)));
    subject.expect("it was started")
}

pub(crate) fn redis(own_server: bool) -> Subject {
    started(servers::redis::single_on_disk, own_server)
}

/// Three of them, for Redlock.
pub(crate) fn redlock(own_server: bool) -> Subject {
    started(servers::redis::redlock, own_server)
}

pub(crate) fn cassandra(own_server: bool) -> Subject {
    started(servers::cassandra::lwt, own_server)
}

pub(crate) fn etcd(own_server: bool) -> Subject {
    started(servers::etcd::etcd, own_server)
}

pub(crate) fn postgres(own_server: bool) -> Subject {
    started(servers::postgres::lease, own_server)
}

pub(crate) fn zookeeper(own_server: bool) -> Subject {
    started(servers::zookeeper::zookeeper, own_server)
}

/// One node of Holdfast, as an engine.
struct Node(Mutex<Cluster>);

impl Server for Node {
    fn kill(&self) {
        self.0.lock().expect("no test has panicked").nodes[0].kill();
    }

    fn restart(&self) {
        let mut cluster = self.0.lock().expect("no test has panicked");
        cluster.nodes[0].start();
        cluster.all_ready();
    }
}

/// Through its own protocol.
pub(crate) fn holdfast(_own_server: bool) -> Subject {
    node("holdfast", 0)
}

/// Through its Redis door.
pub(crate) fn redis_door(_own_server: bool) -> Subject {
    node("redis", 1)
}

fn node(scheme: &str, port_above: u16) -> Subject {
    let cluster = Cluster::start(1);
    let host = format!("127.0.0.1:{}", cluster.nodes[0].port + port_above);
    let server = Arc::new(Node(Mutex::new(cluster)));
    Subject::at(format!("{scheme}://{host}"), host, TTL_MIN, Some(server))
}
