//! Holdfast itself, in this process, with its own protocol and its Redis door.

use super::Server as Restartable;
use super::process::free_port;
use crate::engine::{Engine, needs_own_server};
use holdfast_server::{Config, First, RedisDoor, Server};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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

/// What would be a process of its own: it takes its connections with it.
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
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let redis = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port: free_port(),
                redis: RedisDoor::At(redis),
                key: None,
                first: First::Alone,
                password: None,
            };
            // Somebody else may have taken a port meanwhile.
            let Ok(running) = Running::start(&config) else { continue };
            let running = Mutex::new(Some(running));
            return Self { config, redis, running, _folder: folder };
        }
        panic!("no free ports were found");
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

fn engine(url: &str, address: impl Fn(&Node) -> SocketAddr) -> Engine {
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
        shared: true,
        server,
    }
}

/// Through its own protocol.
#[cfg(feature = "holdfast")]
pub(crate) fn holdfast() -> Engine {
    engine("holdfast://{hosts}", |node| SocketAddr::new(node.config.listen, node.config.port))
}

/// Through its Redis door, by the driver for Redis.
#[cfg(feature = "redis")]
pub(crate) fn redis_door() -> Engine {
    engine("redis://{hosts}", |node| node.redis)
}
