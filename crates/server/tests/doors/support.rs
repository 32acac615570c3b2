//! A server in this process, and an HTTP client for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_server::{
    Config, DOORS, DoorAddresses, First, PEER_PORT_ABOVE, Password, Server, TlsFiles,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ureq::Agent;

/// Nothing here takes this long unless it is broken.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A single-node server.
pub(crate) struct Node {
    pub(crate) port: u16,
    agent: Agent,
    password: Option<String>,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    runs: Option<JoinHandle<Result<(), String>>>,
    _folder: TempDir,
}

/// A response, whatever its status.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) text: String,
    /// Null if it is not JSON.
    pub(crate) body: Value,
}

impl Reply {
    /// The code of an error.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The body of a response that must be a success.
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.body
    }

    /// Checks that this is an error with this status and code.
    pub(crate) fn fails(&self, status: u16, code: &str) {
        let said = format!("{} {}", self.status, self.text);
        assert_eq!((self.status, self.code()), (status, code), "{said}");
        for field in ["message", "hint"] {
            assert!(self.body[field].as_str().is_some_and(|text| !text.is_empty()), "{said}");
        }
    }
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    pub(crate) fn start_with(password: Option<&str>) -> Self {
        let node = Self::start_any(password, None);
        node.get("/readyz").ok();
        node
    }

    /// Its calls below can't be used: they don't speak TLS.
    pub(crate) fn start_with_tls(tls: TlsFiles) -> Self {
        Self::start_any(None, Some(tls))
    }

    fn start_any(password: Option<&str>, tls: Option<TlsFiles>) -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let read = password.map(|password| {
            let file = folder.path().join("password");
            std::fs::write(&file, password).unwrap();
            Password::read(&file).unwrap()
        });
        for _ in 0..20 {
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port: free_port(),
                doors: DoorAddresses::default(),
                key: None,
                first: First::Alone,
                password: read.clone(),
                tls: tls.clone(),
            };
            // Another process may have taken the port meanwhile.
            let Ok(server) = runtime.block_on(Server::start(&config)) else { continue };
            let (stop, stopped) = oneshot::channel();
            let runs = runtime.spawn(server.run(async move {
                let _ = stopped.await;
            }));
            let agent = Agent::config_builder()
                .timeout_global(Some(TIMEOUT))
                .http_status_as_error(false)
                .proxy(None)
                .build();
            let node = Self {
                port: config.port,
                agent: agent.into(),
                password: password.map(str::to_owned),
                runtime: Some(runtime),
                stop: Some(stop),
                runs: Some(runs),
                _folder: folder,
            };
            return node;
        }
        panic!("no free port was found");
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, Some(&body.to_string()))
    }

    /// Sends a request with the node's own password.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        let password = self.password.clone();
        self.send_as(password.as_deref(), method, path, body)
    }

    pub(crate) fn send_as(
        &self,
        password: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Reply {
        let authorization = password.map(|password| format!("Bearer {password}"));
        self.send_with(authorization, method, path, body)
    }

    /// Sends a request with the name and password of a user.
    pub(crate) fn send_as_user(
        &self,
        user: &str,
        password: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Reply {
        let both = STANDARD.encode(format!("{user}:{password}"));
        self.send_with(Some(format!("Basic {both}")), method, path, body)
    }

    fn send_with(
        &self,
        authorization: Option<String>,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Reply {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{}{path}", self.port));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let answered = match body {
            Some(body) => self.agent.run(request.body(body.to_owned()).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let mut answered = answered.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let text = answered.body_mut().read_to_vec().unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        Reply {
            status: answered.status().as_u16(),
            headers: answered.headers().clone(),
            body: serde_json::from_str(&text).unwrap_or_default(),
            text,
        }
    }

    /// A long binary response.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let mut answered = self.agent.get(uri).call().unwrap();
        assert_eq!(answered.status(), 200, "{path}");
        answered.body_mut().with_config().limit(256 << 20).read_to_vec().unwrap()
    }

    /// Takes a lock for an hour.
    pub(crate) fn grab(&self, name: &str) -> Value {
        self.post("/v1/grab_lock", &json!({ "name": name, "ttl_ms": 3_600_000 })).ok()
    }

    /// The fields that release a grant, among other uses.
    pub(crate) fn own(grant: &Value) -> Value {
        let name = &grant["names"][0];
        json!({ "name": name, "fencing_token": grant["fencing_token"], "secret": grant["secret"] })
    }

    pub(crate) fn waiting(&self, name: &str) -> u64 {
        self.get(&format!("/v1/lock?name={name}")).ok()["waiting"].as_u64().unwrap()
    }

    /// A metric without labels, or with exactly the ones given.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// A raw connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Opens an event stream.
    pub(crate) fn events(&self, path: &str) -> Events {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Events { lines: BufReader::new(stream) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let (Some(stop), Some(runs), Some(runtime)) =
            (self.stop.take(), self.runs.take(), self.runtime.take())
        else {
            return;
        };
        let _ = stop.send(());
        let ended = runtime.block_on(async { tokio::time::timeout(TIMEOUT, runs).await });
        if !std::thread::panicking() {
            ended.expect("the server ends").unwrap().unwrap();
        }
    }
}

/// A stream of server-sent events.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
}

impl Events {
    /// Whether the stream has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut rest = String::new();
        // The rest of the last chunk, and the empty one that ends the response.
        while !rest.ends_with("0\r\n") {
            if self.lines.read_line(&mut rest).unwrap() == 0 {
                return true;
            }
        }
        !rest.contains("event: ")
    }

    /// The next event: its name and its data.
    pub(crate) fn next(&mut self) -> (String, Value) {
        let mut kind = None;
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(named) = line.strip_prefix("event: ") {
                kind = Some(named.trim().to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                let kind = kind.expect("an event has a name");
                return (kind, serde_json::from_str(data).unwrap());
            }
        }
    }
}

/// Calls `ask` repeatedly until it returns something.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port whose offsets for peers and the other doors are free as well.
pub(crate) fn free_port() -> u16 {
    loop {
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = http.local_addr().unwrap().port();
        let free = |above: u16| {
            let port = port.checked_add(above);
            port.is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        };
        let mut others = DOORS.iter().map(|door| door.port_above).filter(|above| *above > 0);
        if others.all(free) && free(PEER_PORT_ABOVE) {
            return port;
        }
    }
}
