//! A real single-node Cassandra, from Maven's jars.

pub(crate) mod cql;
pub(crate) mod cqlsh;

use super::Server;
use super::certificates::{Certificate, PASSWORD};
use super::process::{Process, free_port, program};
use crate::engine::{Engine, needs_own_server};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const POM: &str = include_str!("pom.xml");
const VERSION: &str = "5.0.9";

/// Without this, Cassandra logs everything at DEBUG level, and takes twice as long to start.
const LOGBACK: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %level %logger{1} %message%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>"#;

const SYSTEM_CLOCK: &str = "org.apache.cassandra.utils.MonotonicClock$SystemClock";

/// The tokens of three nodes in the ring.
const TRIO_TOKENS: [i64; 3] =
    [-9_223_372_036_854_775_808, -3_074_457_345_618_258_603, 3_074_457_345_618_258_602];

pub(crate) struct Cassandra {
    process: Process,
    folder: PathBuf,
    pub(crate) address: String,
    pub(crate) port: u16,
}

impl Cassandra {
    /// The one that the cases share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cassandra> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(false, ""))
    }

    /// One without any user keyspace.
    pub(crate) fn fresh() -> Self {
        Self::start(false, "")
    }

    /// One that requires passwords.
    pub(crate) fn with_passwords() -> Self {
        Self::start(false, "authenticator: PasswordAuthenticator\n")
    }

    /// One that also speaks TLS.
    pub(crate) fn with_tls(certificate: &Certificate) -> Self {
        let keystore = certificate.keystore.display();
        Self::start(
            false,
            &format!(
                "client_encryption_options:
  enabled: true
  optional: true
  keystore: {keystore}
  keystore_password: {PASSWORD}
  store_type: PKCS12
"
            ),
        )
    }

    /// Three nodes that form one cluster, on 127.0.0.1, 2 and 3. Each reads from itself first and
    /// then from the others in the order of the ring, and what a node missed is never repaired
    /// later.
    pub(crate) fn trio() -> Vec<Self> {
        const MORE: &str = "endpoint_snitch: RackInferringSnitch
dynamic_snitch: false
hinted_handoff_enabled: false
";
        let (port, storage) = (free_port(), free_port());
        let seeds: Vec<_> = (1..=3).map(|host| format!("127.0.0.{host}:{storage}")).collect();
        let seeds = seeds.join(",");
        let start = |(host, token): (usize, i64)| {
            let address = format!("127.0.0.{host}");
            let settings = Settings { address, port, storage, token, seeds: &seeds, more: MORE };
            Self::run(&settings, false)
        };
        std::thread::scope(|scope| {
            let nodes: Vec<_> =
                (1..).zip(TRIO_TOKENS).map(|node| scope.spawn(move || start(node))).collect();
            nodes.into_iter().map(|node| node.join().unwrap()).collect()
        })
    }

    /// Which of the three has the first replica of a row with this token: the one with the next
    /// higher token.
    pub(crate) fn first_of_trio(token: i64) -> usize {
        TRIO_TOKENS.iter().position(|node| *node >= token).unwrap_or(0)
    }

    fn start(durable: bool, more: &str) -> Self {
        let (address, port, storage) = ("127.0.0.1".to_owned(), free_port(), free_port());
        let seeds = format!("127.0.0.1:{storage}");
        let more = &format!("endpoint_snitch: SimpleSnitch\n{more}");
        Self::run(&Settings { address, port, storage, token: 0, seeds: &seeds, more }, durable)
    }

    /// A server that keeps its schema across a restart takes longer to start.
    fn run(settings: &Settings<'_>, durable: bool) -> Self {
        let mut own = PathBuf::new();
        let command = |folder: &Path| {
            own = folder.to_owned();
            std::fs::write(folder.join("cassandra.yaml"), settings.yaml()).unwrap();
            std::fs::write(folder.join("logback.xml"), LOGBACK).unwrap();
            command(folder, durable)
        };
        let (address, port) = (settings.address.clone(), settings.port);
        let own_address = address.clone();
        let process = Process::start(command, move || serves(&own_address, port));
        Self { process, folder: own, address, port }
    }

    /// Stops or continues the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.folder.join("pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

struct Settings<'a> {
    address: String,
    port: u16,
    storage: u16,
    token: i64,
    seeds: &'a str,
    more: &'a str,
}

impl Server for Cassandra {
    fn kill(&self) {
        self.process.kill();
    }

    fn restart(&self) {
        self.process.restart();
    }
}

impl Settings<'_> {
    fn yaml(&self) -> String {
        let Self { address, port, storage, token, seeds, more } = self;
        // `batch`: a write is on disk before it is acknowledged.
        format!(
            "partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: '{seeds}'}}]
commitlog_sync: batch
commitlog_segment_size: 8MiB
listen_address: {address}
rpc_address: {address}
storage_port: {storage}
native_transport_port: {port}
num_tokens: 1
initial_token: '{token}'
auto_bootstrap: false
memtable_heap_space: 32MiB
key_cache_size: 0MiB
{more}"
        )
    }
}

fn command(folder: &Path, durable: bool) -> Vec<String> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let write_pid = format!("echo $$ > '{}'; exec \"$@\"", path("pid"));
    let mut command = ["sh", "-c", &write_pid, "sh"].map(str::to_owned).to_vec();
    command.push(program("java", "default-jdk-headless"));
    for module in ["sun.nio.ch", "jdk.internal.ref", "java.io"] {
        command.push(format!("--add-opens=java.base/{module}=ALL-UNNAMED"));
    }
    for option in
        ["-Xms256m", "-Xmx256m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    {
        command.push(option.to_owned());
    }
    for (name, value) in [
        ("cassandra.config", format!("file://{}", path("cassandra.yaml"))),
        ("logback.configurationFile", path("logback.xml")),
        ("cassandra.storagedir", path("data")),
        ("cassandra-foreground", "yes".to_owned()),
        ("cassandra.skip_wait_for_gossip_to_settle", "0".to_owned()),
        ("cassandra.ring_delay_ms", "0".to_owned()),
        ("cassandra.shutdown_announce_in_ms", "0".to_owned()),
        ("cassandra.consistent.rangemovement", "false".to_owned()),
        ("cassandra.superuser_setup_delay_ms", "0".to_owned()),
        // The default clock is advanced by a thread: a node that was stopped would take messages
        // that are long expired for fresh ones, until that thread has run.
        ("cassandra.monotonic_clock.approx", SYSTEM_CLOCK.to_owned()),
    ] {
        command.push(format!("-D{name}={value}"));
    }
    if !durable {
        command.push("-Dcassandra.unsafesystem=true".to_owned());
        command.push("-Dcassandra.test.flush_local_schema_changes=false".to_owned());
    }
    command.extend(["-cp".to_owned(), format!("{}/*", jars().to_str().unwrap())]);
    command.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
    command
}

/// Where downloads are kept between runs.
fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
    cache.unwrap_or_else(home).join("holdfast")
}

/// The folder with Cassandra's jars, which Maven fills once: three nodes that start at the same
/// time on a machine without them must not interfere with each other's download.
fn jars() -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _only = ONE_AT_A_TIME.lock().unwrap();
    let cache = cache().join(format!("cassandra-{VERSION}"));
    let jars = cache.join("jars");
    if !jars.is_dir() {
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::write(cache.join("pom.xml"), POM).unwrap();
        let status = Command::new(program("mvn", "maven"))
            .args(["-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars.new"])
            .current_dir(&cache)
            .status()
            .unwrap();
        assert!(status.success(), "Maven could not bring Cassandra's jars to {}", cache.display());
        std::fs::rename(cache.join("jars.new"), &jars).unwrap();
    }
    jars
}

/// Whether it answers in its protocol: OPTIONS (5) of version 4 gets SUPPORTED (6).
fn serves(address: &str, port: u16) -> bool {
    const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
    let Ok(mut stream) = TcpStream::connect((address, port)) else { return false };
    let mut answer = [0; 9];
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    stream.write_all(&OPTIONS).is_ok() && stream.read_exact(&mut answer).is_ok() && answer[4] == 6
}

fn engine(options: &str) -> Engine {
    let (port, server) = if needs_own_server() {
        let own = Cassandra::start(true, "");
        (own.port, Some(Arc::new(own) as Arc<dyn Server>))
    } else {
        (Cassandra::shared().port, None)
    };
    Engine {
        url: format!("cassandra://{{hosts}}/examples?replication_factor=1&{options}"),
        hosts: vec![format!("127.0.0.1:{port}")],
        tasks: 8,
        ttl: Duration::from_secs(10),
        late: Duration::from_secs(5),
        exceptions: &[],
        server,
        end_connection: None,
    }
}

pub(crate) fn lwt() -> Engine {
    engine("recipe=lwt")
}

pub(crate) fn plain() -> Engine {
    engine("plain=1")
}

pub(crate) fn bakery() -> Engine {
    engine("recipe=bakery")
}
