//! One ZooKeeper from Debian's package.

use super::process::{Process, ask, free_port, program};
use crate::engine::{Engine, needs_own_server};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const JARS: &str = "/usr/share/java";

/// Long enough to outlive a restart, short enough for a test to exceed.
pub(crate) const SESSION_TIMEOUT_MAX: Duration = Duration::from_secs(12);

pub(crate) struct ZooKeeper {
    pub(crate) port: u16,
    pub(crate) process: Process,
}

impl ZooKeeper {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let java = program("java", "default-jre-headless");
        let jar = format!("{JARS}/zookeeper.jar");
        assert!(Path::new(&jar).exists(), "{jar} is missing: apt-get install libzookeeper-java");
        let command = |folder: &Path| {
            let data = folder.join("data");
            std::fs::create_dir(&data).unwrap();
            let settings = format!(
                "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n\
                 maxSessionTimeout={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
                 4lw.commands.whitelist=srvr\n",
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
                &format!("{jar}:{JARS}/slf4j-simple.jar"),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                file.to_str().unwrap(),
            ];
            arguments.map(str::to_owned).to_vec()
        };
        // The port accepts before it serves.
        let process = Process::start(command, move || ask(port, "srvr").contains("Mode:"));
        Self { port, process }
    }

    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }
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
        shared: true,
        server,
    }
}
