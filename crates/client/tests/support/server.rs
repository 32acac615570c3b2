// A single-node server in this process, on a free port, in a temporary directory.
//
// The tests use this file as a module; the examples in the documentation include it, so that they
// run against a real server.

#[allow(unused_imports, reason = "the examples use them")]
use holdfast_client::{Client, Error};
use holdfast_server::{Config, DoorAddresses, First, PEER_PORT_ABOVE, Password, Server};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
#[allow(unused_imports, reason = "the examples use them")]
use std::time::Duration;

/// A single-node server.
pub(crate) struct Node {
    pub(crate) url: String,
    config: Config,
    process: Option<Process>,
    folder: tempfile::TempDir,
}

/// Represents a process: dropping it closes its connections.
struct Process {
    runtime: tokio::runtime::Runtime,
    stop: tokio::sync::oneshot::Sender<()>,
    runs: tokio::task::JoinHandle<Result<(), String>>,
}

impl Process {
    async fn start(config: Config) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (started, starts) = tokio::sync::oneshot::channel();
        let runs = runtime.spawn(async move {
            let server = Server::start(&config).await;
            let _ = started.send(server.as_ref().map(drop).map_err(Clone::clone));
            let stopped = async move {
                let _ = stopped.await;
            };
            server?.run(stopped).await
        });
        let process = Self { runtime, stop, runs };
        match starts.await.unwrap() {
            Ok(()) => Ok(process),
            Err(why) => {
                process.runtime.shutdown_background();
                Err(why)
            }
        }
    }

    async fn end(self) {
        let _ = self.stop.send(());
        self.runs.await.unwrap().unwrap();
        self.runtime.shutdown_background();
    }
}

#[allow(dead_code, reason = "some tests and examples need less")]
impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(password: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let password = password.map(|password| write_password(folder.path(), password));
        for _ in 0..20 {
            let port = free_port();
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port,
                doors: DoorAddresses::all_off(),
                key: None,
                first: First::Alone,
                password: password.clone(),
                tls: None,
            };
            // Something else may have taken the port in the meantime.
            let Ok(process) = Process::start(config.clone()).await else { continue };
            let url = format!("http://127.0.0.1:{port}");
            return Self { url, config, process: Some(process), folder };
        }
        panic!("no free port was found");
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect([&self.url]).await.unwrap()
    }

    /// Takes effect when it is started again.
    pub(crate) fn set_password(&mut self, password: Option<&str>) {
        let folder = self.folder.path();
        self.config.password = password.map(|password| write_password(folder, password));
    }

    /// Stops the server; it can be started again.
    pub(crate) async fn pause(&mut self) {
        self.process.take().unwrap().end().await;
    }

    /// Starts it again with the same data.
    pub(crate) async fn go_on(&mut self) {
        for _ in 0..100 {
            if let Ok(process) = Process::start(self.config.clone()).await {
                self.process = Some(process);
                return;
            }
            // Its port will be free again shortly.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not start again");
    }

    /// Deletes the data of a stopped server: it will start a new cluster.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(&self.config.data_dir).unwrap();
    }

    pub(crate) async fn end(mut self) {
        self.pause().await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The test failed, or ends with its server stopped.
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
        }
    }
}

fn write_password(folder: &Path, password: &str) -> Password {
    let file = folder.join("password");
    std::fs::write(&file, password).unwrap();
    Password::read(&file).unwrap()
}

/// A port whose neighbour, for peers, is free as well.
pub(crate) fn free_port() -> u16 {
    loop {
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = http.local_addr().unwrap().port();
        let peers = port.checked_add(PEER_PORT_ABOVE);
        if peers.is_some_and(|peers| TcpListener::bind(("127.0.0.1", peers)).is_ok()) {
            return port;
        }
    }
}

/// Runs an example with a server.
#[allow(dead_code, reason = "only the examples need it")]
fn with_server(example: impl AsyncFnOnce(Vec<String>) -> Result<(), Error>) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let node = Node::start().await;
        example(vec![node.url.clone()]).await.unwrap();
        node.end().await;
    });
}

/// The same for a blocking example.
#[allow(dead_code, reason = "only the examples need it")]
fn with_server_blocking(example: impl FnOnce(Vec<String>) -> Result<(), Error>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(Node::start());
    example(vec![node.url.clone()]).unwrap();
    runtime.block_on(node.end());
}
