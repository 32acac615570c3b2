//! Holdfast itself, in this process, with its own protocol and its Redis door.

use super::Server as Restartable;
use super::process::free_port;
#[cfg(feature = "cassandra")]
use crate::child::Helper;
use crate::engine::{Engine, Exception, needs_own_server};
use holdfast_node::NodeId;
#[cfg(feature = "cassandra")]
use holdfast_server::ClusterKey;
use holdfast_server::{
    Config, DoorAddress, DoorAddresses, First, PEER_PORT_ABOVE, Server, TlsFiles,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub(crate) struct Node {
    config: Config,
    redis: SocketAddr,
    running: Mutex<Option<Running>>,
    _folder: tempfile::TempDir,
}

/// In place of a separate process: it takes its connections with it.
struct Running {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    ended: std::sync::mpsc::Receiver<Result<(), String>>,
}

impl Running {
    fn start(config: &Config) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel();
        let (started, starts) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        let config = config.clone();
        runtime.spawn(async move {
            let server = match Server::start(&config).await {
                Ok(server) => server,
                Err(why) => return drop(started.send(Err(why))),
            };
            let _ = started.send(Ok(()));
            let stopped = async move { drop(stopped.await) };
            let _ = end.send(server.run(stopped).await);
        });
        match starts.recv().unwrap() {
            Ok(()) => Ok(Self { runtime, stop, ended }),
            Err(why) => {
                runtime.shutdown_background();
                Err(why)
            }
        }
    }

    fn end(self) {
        let _ = self.stop.send(());
        self.ended.recv().unwrap().unwrap();
        self.runtime.shutdown_background();
    }
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    pub(crate) fn start_with(tls: Option<TlsFiles>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let redis = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port: free_port(),
                doors: DoorAddresses::all_off().with("redis", DoorAddress::At(redis)),
                key: None,
                first: First::Alone,
                password: None,
                tls: tls.clone(),
            };
            // Another process may have taken a port in the meantime.
            let Ok(running) = Running::start(&config) else { continue };
            let running = Mutex::new(Some(running));
            return Self { config, redis, running, _folder: folder };
        }
        panic!("no free ports were found");
    }

    /// Where it speaks its own protocol.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.config.listen, self.config.port)
    }

    fn shared() -> &'static Self {
        static SHARED: OnceLock<Node> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }
}

impl Restartable for Node {
    fn kill(&self) {
        self.running.lock().unwrap().take().unwrap().end();
    }

    fn restart(&self) {
        for _ in 0..200 {
            if let Ok(running) = Running::start(&self.config) {
                *self.running.lock().unwrap() = Some(running);
                return;
            }
            // Its ports are free again in a moment.
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not start again");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            running.runtime.shutdown_background();
        }
    }
}

fn engine(
    url: &str,
    exceptions: &'static [Exception],
    address: impl Fn(&Node) -> SocketAddr,
) -> Engine {
    let (address, server) = if needs_own_server() {
        let node = Node::start();
        (address(&node), Some(Arc::new(node) as Arc<dyn Restartable>))
    } else {
        (address(Node::shared()), None)
    };
    Engine {
        url: url.to_owned(),
        hosts: vec![address.to_string()],
        tasks: 32,
        ttl: Duration::from_secs(3),
        late: Duration::from_secs(2),
        exceptions,
        server,
        end_connection: None,
    }
}

/// Through its own protocol.
#[cfg(feature = "holdfast")]
pub(crate) fn holdfast() -> Engine {
    engine("holdfast://{hosts}", &[], Node::address)
}

/// Through its Redis door, with the Redis driver.
#[cfg(feature = "redis")]
pub(crate) fn redis_door() -> Engine {
    engine("redis://{hosts}", &[Exception::SurvivesFailover], |node| node.redis)
}

/// A cluster of processes, which can be stopped.
#[cfg(feature = "cassandra")]
pub(crate) struct Members {
    members: Vec<(Helper, u16)>,
    _folder: tempfile::TempDir,
}

#[cfg(feature = "cassandra")]
impl Members {
    pub(crate) fn start(number: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        ClusterKey::draw().write_new(&folder.path().join("cluster.key")).unwrap();
        let ports: Vec<_> = (0..number).map(|_| free_port()).collect();
        let listed = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let start = |(node, port): (u16, &u16)| {
            let folder = folder.path().to_str().unwrap();
            let settings = [("FOLDER", folder), ("PORTS", &listed), ("NODE", &node.to_string())];
            let mut member = Helper::start("serve", &settings);
            assert_eq!(member.receive(), "serving");
            (member, *port)
        };
        let members = (1..).zip(&ports).map(start).collect();
        Self { members, _folder: folder }
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect()
    }

    pub(crate) fn signal(&self, member: usize, signal: rustix::process::Signal) {
        self.members[member].0.signal(signal);
    }
}

/// The body of a child process that is one member of a cluster.
pub(crate) async fn serve(folder: &Path, ports: &[u16], node: u64) -> Server {
    let address = |port: &u16| format!("127.0.0.1:{}", port + PEER_PORT_ABOVE);
    let members: Vec<_> = (1..).map(NodeId).zip(ports.iter().map(address)).collect();
    let at = usize::try_from(node - 1).unwrap();
    let config = Config {
        data_dir: folder.join(node.to_string()),
        listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
        advertise: None,
        allow_hosts: Vec::new(),
        port: ports[at],
        // Nobody has looked whether the ports above this one are free.
        doors: DoorAddresses::all_off(),
        key: Some(folder.join("cluster.key")),
        first: First::Member { node: NodeId(node), members },
        password: None,
        tls: None,
    };
    Server::start(&config).await.unwrap()
}
