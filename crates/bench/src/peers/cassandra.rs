//! Cassandra's servers, from the jars that its project publishes. They share a port, and have
//! different loopback addresses.

use super::process::Process;
use super::{Place, Role, install, ports};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// As in peers/cassandra/pom.xml.
const FOLDER: &str = "cassandra-5.0.9";

const POM: (&str, &str) = ("pom.xml", include_str!("../../peers/cassandra/pom.xml"));

/// Where each node's part of the ring begins: three equal parts.
const TOKENS: [i64; 3] =
    [-9_223_372_036_854_775_808, -3_074_457_345_618_258_603, 3_074_457_345_618_258_602];

/// Timeout for one request to a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

const LOGBACK: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %level %logger{1} %message%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>"#;

/// The folder of the jars, downloaded if it does not exist yet.
pub(super) async fn download() -> Result<PathBuf, String> {
    install::jars("Cassandra", FOLDER, POM).await
}

/// The address of the node with this index.
pub(super) fn address(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(at + 1).unwrap_or(u8::MAX))
}

/// Nodes that are not started yet, and their client port, repeated for each of them.
pub(super) fn nodes(place: &Place<'_>, jars: &Path) -> Result<(Vec<u16>, Vec<Process>), String> {
    let free = ports::free(1)?;
    let ports = free.first().ok_or("no port is free")?;
    let seeds: Vec<String> =
        (0..TOKENS.len()).map(|at| format!("{}:{}", address(at), ports.peers)).collect();
    let seeds = seeds.join(",");
    let node = |(at, token): (usize, &i64)| {
        let id = u16::try_from(at + 1).map_err(|error| error.to_string())?;
        let folder = place.node(id)?;
        let address = address(at);
        // `batch`: a write is on disk before it is acknowledged.
        let settings = format!(
            "partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             seed_provider:\n  \
             - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters: [{{seeds: '{seeds}'}}]\n\
             endpoint_snitch: SimpleSnitch\ncommitlog_sync: batch\n\
             listen_address: {address}\nrpc_address: {address}\n\
             storage_port: {}\nnative_transport_port: {}\n\
             num_tokens: 1\ninitial_token: '{token}'\nauto_bootstrap: false\n",
            ports.peers, ports.clients
        );
        let file = |name: &str| folder.join(name);
        place.write(&file("cassandra.yaml"), &settings)?;
        place.write(&file("logback.xml"), LOGBACK)?;
        let mut args: Vec<String> = ["sun.nio.ch", "jdk.internal.ref", "java.io"]
            .map(|module| format!("--add-opens=java.base/{module}=ALL-UNNAMED"))
            .to_vec();
        args.extend(["-Xms512m", "-Xmx512m", "-Xss256k"].map(str::to_owned));
        args.extend([
            format!("-Dcassandra.config=file://{}", file("cassandra.yaml").display()),
            format!("-Dlogback.configurationFile={}", file("logback.xml").display()),
            format!("-Dcassandra.storagedir={}", file("data").display()),
            "-Dcassandra-foreground=yes".to_owned(),
            "-Dcassandra.skip_wait_for_gossip_to_settle=0".to_owned(),
            "-Dcassandra.ring_delay_ms=0".to_owned(),
            "-Dcassandra.consistent.rangemovement=false".to_owned(),
            "-cp".to_owned(),
            format!("{}/*", jars.display()),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        Ok(Process::new(Path::new("java"), args, place.folder.join(format!("node-{id}.log"))))
    };
    let nodes = TOKENS.iter().enumerate().map(node).collect::<Result<_, String>>()?;
    Ok((vec![ports.clients; TOKENS.len()], nodes))
}

/// No node leads. A node is ready when it knows the others.
pub(super) async fn role(at: usize, port: u16) -> Result<Role, String> {
    let asked = timeout(ANSWER_TIMEOUT, peers(SocketAddrV4::new(address(at), port))).await;
    match asked.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())? {
        2 => Ok(Role::Follows),
        count => Err(format!("it knows {count} other nodes")),
    }
}

/// How many other nodes a node knows, by version 4 of the native protocol.
async fn peers(node: SocketAddrV4) -> std::io::Result<u32> {
    const STARTUP: u8 = 1;
    const QUERY: u8 = 7;
    const SKIP_METADATA: u8 = 2;
    let mut stream = TcpStream::connect(node).await?;
    let options = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0";
    call(&mut stream, STARTUP, options).await?;
    let cql = b"SELECT peer FROM system.peers_v2";
    let mut query = u32::try_from(cql.len()).unwrap_or_default().to_be_bytes().to_vec();
    query.extend_from_slice(cql);
    query.extend_from_slice(&[0, 1, SKIP_METADATA]);
    let answer = call(&mut stream, QUERY, &query).await?;
    // The kind of result, flags, the number of columns, the number of rows.
    let rows = answer.get(12..16).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    rows.ok_or_else(|| std::io::Error::other("unexpected reply"))
}

async fn call(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> std::io::Result<Vec<u8>> {
    const VERSION: u8 = 4;
    const ANSWER_BYTES_MAX: usize = 1 << 20;
    let mut frame = vec![VERSION, 0, 0, 0, opcode];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or_default().to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).await?;
    let mut header = [0; 9];
    stream.read_exact(&mut header).await?;
    let [.., a, b, c, d] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other("unexpected reply"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
