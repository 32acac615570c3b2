//! ZooKeeper from Debian's package.

use super::certificates::{Certificate, PASSWORD};
use super::process::{Process, ask, free_port, program, until};
use crate::engine::{Engine, needs_own_server};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const JARS: &str = "/usr/share/java";

/// Long enough to outlive a restart, short enough for a test to exceed.
pub(crate) const SESSION_TIMEOUT_MAX: Duration = Duration::from_secs(12);

/// One server.
pub(crate) struct ZooKeeper {
    pub(crate) port: u16,
    pub(crate) process: Process,
}

impl ZooKeeper {
    /// A standalone server.
    pub(crate) fn start() -> Self {
        // The port accepts connections before the server is ready.
        Self::server(free_port(), 0, "", |port| mode(port).is_some())
    }

    pub(crate) fn ensemble(servers: u16) -> Vec<Self> {
        let member = |id| format!("server.{id}=127.0.0.1:{}:{}\n", free_port(), free_port());
        let members = (1..=servers).map(member).collect::<String>();
        let members = format!("initLimit=20\nsyncLimit=10\n{members}");
        let start = |id| Self::server(free_port(), id, &members, |_| true);
        let ensemble: Vec<_> = (1..=servers).map(start).collect();
        for server in &ensemble {
            until("ZooKeeper serves", || mode(server.port).is_some());
        }
        ensemble
    }

    /// A standalone server with TLS on another port, which is returned with it.
    pub(crate) fn secure(certificate: &Certificate) -> (Self, u16) {
        let secure = free_port();
        let settings = format!(
            "secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.password={PASSWORD}\nssl.keyStore.type=PKCS12\n\
             ssl.clientAuth=none\n",
            certificate.keystore.display()
        );
        (Self::server(free_port(), 0, &settings, |port| mode(port).is_some()), secure)
    }

    fn server(
        port: u16,
        id: u16,
        members: &str,
        serves: impl Fn(u16) -> bool + Send + Sync + 'static,
    ) -> Self {
        let java = program("java", "default-jre-headless");
        let jar = format!("{JARS}/zookeeper.jar");
        assert!(Path::new(&jar).exists(), "{jar} is missing: apt-get install libzookeeper-java");
        let more = ["slf4j-simple", "netty-buffer", "netty-codec", "netty-common", "netty-handler"]
            .into_iter()
            .chain(["netty-resolver", "netty-transport", "netty-transport-native-epoll"])
            .chain(["netty-transport-native-unix-common"]);
        let more = more.map(|name| format!(":{JARS}/{name}.jar")).collect::<String>();
        let class_path = format!("{jar}{more}");
        let command = |folder: &Path| {
            let data = folder.join("data");
            std::fs::create_dir(&data).unwrap();
            std::fs::write(data.join("myid"), id.to_string()).unwrap();
            let settings = format!(
                "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n\
                 maxSessionTimeout={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
                 4lw.commands.whitelist=srvr\n{members}",
                data.display(),
                SESSION_TIMEOUT_MAX.as_millis()
            );
            let file = folder.join("zoo.cfg");
            std::fs::write(&file, settings).unwrap();
            let arguments = [
                java.as_str(),
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                "-cp",
                &class_path,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                file.to_str().unwrap(),
            ];
            arguments.map(str::to_owned).to_vec()
        };
        let process = Process::start(command, move || serves(port));
        Self { port, process }
    }

    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }
}

/// `standalone`, `leader` or `follower`; `None` if it is not ready.
pub(crate) fn mode(port: u16) -> Option<String> {
    let answer = ask(port, "srvr");
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

pub(crate) fn zookeeper() -> Engine {
    let (port, server) = if needs_own_server() {
        let ZooKeeper { port, process } = ZooKeeper::start();
        (port, Some(Arc::new(process) as Arc<dyn super::Server>))
    } else {
        (ZooKeeper::shared().port, None)
    };
    Engine {
        url: "zookeeper://{hosts}/locks".to_owned(),
        hosts: vec![format!("127.0.0.1:{port}")],
        tasks: 32,
        ttl: Duration::from_secs(3),
        late: Duration::from_secs(3),
        exceptions: &[],
        server,
        end_connection: None,
    }
}
