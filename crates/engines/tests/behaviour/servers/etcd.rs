//! etcd from Debian's package.

use super::process::{Process, ask, free_port, program, until};
use crate::engine::{Engine, needs_own_server};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One member.
pub(crate) struct Etcd {
    pub(crate) port: u16,
    pub(crate) process: Process,
}

impl Etcd {
    /// A cluster of one.
    pub(crate) fn start() -> Self {
        Self::member("http", &[(free_port(), free_port())], 0, &[], is_healthy)
    }

    pub(crate) fn cluster(members: usize) -> Vec<Self> {
        let ports: Vec<_> = (0..members).map(|_| (free_port(), free_port())).collect();
        let start = |own| Self::member("http", &ports, own, &[], |_| true);
        let cluster: Vec<_> = (0..members).map(start).collect();
        for member in &cluster {
            until("etcd serves", || is_healthy(member.port));
        }
        cluster
    }

    /// A cluster of one with TLS and these options.
    pub(crate) fn start_secure(options: &[&str]) -> Self {
        let serves = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        Self::member("https", &[(free_port(), free_port())], 0, options, serves)
    }

    fn member(
        scheme: &str,
        ports: &[(u16, u16)],
        own: usize,
        more: &[&str],
        serves: impl Fn(u16) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (port, peers) = ports[own];
        let members = ports.iter().enumerate();
        let members =
            members.map(|(number, (_, peers))| format!("{number}=http://127.0.0.1:{peers}"));
        let members = members.collect::<Vec<_>>().join(",");
        let program = program("etcd", "etcd-server");
        let command = |folder: &std::path::Path| {
            let client = format!("{scheme}://127.0.0.1:{port}");
            let peer = format!("http://127.0.0.1:{peers}");
            let data = folder.join("data").to_str().unwrap().to_owned();
            let options = [
                ("--name", own.to_string()),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", members),
            ];
            let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let more = more.iter().map(|option| option.to_string());
            std::iter::once(program).chain(options).chain(more).collect()
        };
        let process = Process::start(command, move || serves(port));
        Self { port, process }
    }

    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }
}

fn is_healthy(port: u16) -> bool {
    let request = "GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
    ask(port, request).contains("\"true\"")
}

/// etcd's own client, with these arguments.
pub(crate) fn etcdctl(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("etcdctl", "etcd-client"));
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{port}")).args(arguments);
    command
}

pub(crate) fn etcd() -> Engine {
    let (port, server) = if needs_own_server() {
        let Etcd { port, process } = Etcd::start();
        (port, Some(Arc::new(process) as Arc<dyn super::Server>))
    } else {
        (Etcd::shared().port, None)
    };
    Engine {
        url: "etcd://{hosts}".to_owned(),
        hosts: vec![format!("127.0.0.1:{port}")],
        tasks: 32,
        // etcd grants no less: one and a half election timeouts, rounded up.
        ttl: Duration::from_secs(2),
        late: Duration::from_secs(3),
        exceptions: &[],
        server,
        end_connection: None,
    }
}
