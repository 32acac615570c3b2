//! Real Redis servers from Debian's package: one, and three independent ones for Redlock.

use super::Server;
use super::process::{Process, ask, free_port, program};
use crate::engine::{Engine, Exception, needs_own_server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) struct Redis {
    port: u16,
    pub(crate) process: Process,
}

impl Redis {
    fn start() -> Self {
        Self::start_with(|_| Vec::new())
    }

    /// Without persistence, like a Redis that serves as a cache: after a restart it is empty, like
    /// a replica that was promoted before it had the lock.
    fn start_forgetful() -> Self {
        let options = ["--appendonly", "no", "--save", ""];
        Self::start_with(|_| options.map(str::to_owned).to_vec())
    }

    /// With more options, which may depend on the folder.
    fn start_with(more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let (port, program) = (free_port(), program("redis-server", "redis-server"));
        let command = |folder: &Path| {
            let more = more(folder);
            let (port, folder) = (port.to_string(), folder.to_str().unwrap().to_owned());
            // With `always`, an acknowledged lock is there after a restart.
            let options = [
                ("--bind", "127.0.0.1"),
                ("--port", &port),
                ("--dir", &folder),
                ("--appendonly", "yes"),
                ("--appendfsync", "always"),
            ];
            let options = options.into_iter().flat_map(|(name, value)| [name, value]);
            [program.as_str()].into_iter().chain(options).map(str::to_owned).chain(more).collect()
        };
        let process =
            Process::start(command, move || ask(port, "PING\r\nQUIT\r\n").contains("PONG"));
        Self { port, process }
    }

    /// With TLS on another port. Also returns that port and the file of the authority for
    /// `localhost`.
    pub(crate) fn start_tls() -> (Self, u16, PathBuf) {
        let (port, mut authorities) = (free_port(), PathBuf::new());
        let server = Self::start_with(|folder| {
            let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            let made = Command::new(program("openssl", "openssl"))
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
                .args(["-nodes", "-days", "30", "-subj", "/CN=localhost"])
                .args(["-addext", "subjectAltName=DNS:localhost"])
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                .args(["-out", &path("server.crt"), "-keyout", &path("server.key")])
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            authorities = folder.join("server.crt");
            let options = [
                ("--tls-port", port.to_string()),
                ("--tls-auth-clients", "no".to_owned()),
                ("--tls-cert-file", path("server.crt")),
                ("--tls-key-file", path("server.key")),
                ("--tls-ca-cert-file", path("server.crt")),
            ];
            options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
        });
        (server, port, authorities)
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn start_several<const N: usize>() -> [Self; N] {
        std::array::from_fn(|_| Self::start())
    }
}

/// All servers fail at once.
struct All(Vec<Redis>);

impl Server for All {
    fn kill(&self) {
        self.0.iter().for_each(|redis| redis.process.kill());
    }

    fn restart(&self) {
        self.0.iter().for_each(|redis| redis.process.restart());
    }
}

pub(crate) fn single() -> Engine {
    static SHARED: OnceLock<[Redis; 1]> = OnceLock::new();
    engine(&SHARED)
}

/// One that syncs every write to disk, and a separate one if it is to be killed: what it
/// acknowledged is there after a restart.
pub(crate) fn single_on_disk() -> Engine {
    if !needs_own_server() {
        return single();
    }
    let servers = [Redis::start()];
    let hosts = servers.iter().map(Redis::address).collect();
    let exceptions = &[Exception::SurvivesFailover];
    engine_at(hosts, Some(Arc::new(All(servers.into()))), exceptions)
}

pub(crate) fn redlock() -> Engine {
    static SHARED: OnceLock<[Redis; 3]> = OnceLock::new();
    engine(&SHARED)
}

fn engine<const N: usize>(shared: &'static OnceLock<[Redis; N]>) -> Engine {
    let hosts = |servers: &[Redis]| servers.iter().map(Redis::address).collect();
    let (hosts, server) = if needs_own_server() {
        let servers: [Redis; N] = std::array::from_fn(|_| Redis::start_forgetful());
        (hosts(&servers), Some(Arc::new(All(servers.into())) as Arc<dyn Server>))
    } else {
        (hosts(shared.get_or_init(Redis::start_several::<N>)), None)
    };
    engine_at(hosts, server, &[])
}

fn engine_at(
    hosts: Vec<String>,
    server: Option<Arc<dyn Server>>,
    exceptions: &'static [Exception],
) -> Engine {
    Engine {
        url: "redis://{hosts}".to_owned(),
        hosts,
        tasks: 32,
        ttl: Duration::from_secs(3),
        late: Duration::from_secs(2),
        exceptions,
        server,
        end_connection: None,
    }
}
