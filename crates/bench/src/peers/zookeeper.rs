//! ZooKeeper's servers, from the jars that its project publishes or from a given one.

use super::ports;
use super::process::Process;
use super::{Place, Role, install};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// As in peers/zookeeper/pom.xml.
const FOLDER: &str = "zookeeper-3.9.5";

const POM: (&str, &str) = ("pom.xml", include_str!("../../peers/zookeeper/pom.xml"));

/// Timeout for one request to a node.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The class path: the given jar, which names those that it needs; or the jars that the project
/// publishes, downloaded if they are not there yet.
pub(super) async fn class_path(jar: Option<PathBuf>) -> Result<PathBuf, String> {
    match jar {
        Some(jar) if jar.is_file() => Ok(jar),
        Some(jar) => Err(format!(
            "there is no {}: on Debian, `sudo apt-get install -y libzookeeper-java`",
            jar.display()
        )),
        None => Ok(install::jars("ZooKeeper", FOLDER, POM).await?.join("*")),
    }
}

/// Nodes that are not started yet, and their client ports.
pub(super) fn nodes(
    place: &Place<'_>,
    class_path: &Path,
) -> Result<(Vec<u16>, Vec<Process>), String> {
    let ports = ports::free(place.nodes)?;
    let members: Vec<String> = (1..)
        .zip(&ports)
        .map(|(id, ports)| format!("server.{id}=127.0.0.1:{}:{}\n", ports.peers, ports.election))
        .collect();
    let members = members.concat();
    let node = |(id, ports): (u16, &ports::Ports)| {
        let folder = place.node(id)?;
        place.write(&folder.join("myid"), &id.to_string())?;
        // Default times, no limit on connections per address, no admin port.
        let settings = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\n{members}",
            folder.display(),
            ports.clients
        );
        let file = place.folder.join(format!("node-{id}.cfg"));
        place.write(&file, &settings)?;
        let args = [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error".to_owned(),
            "-cp".to_owned(),
            class_path.display().to_string(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned(),
            file.display().to_string(),
        ];
        Ok(Process::new(Path::new("java"), args, place.folder.join(format!("node-{id}.log"))))
    };
    let nodes = (1..).zip(&ports).map(node).collect::<Result<_, String>>()?;
    Ok((ports.iter().map(|ports| ports.clients).collect(), nodes))
}

pub(super) async fn role(port: u16) -> Result<Role, String> {
    let asked = timeout(REPLY_TIMEOUT, ask(port)).await;
    let answer = asked.map_err(|_| "no answer to srvr".to_owned())?;
    let answer = answer.map_err(|error| format!("srvr: {error}"))?;
    // Until it is ready, it replies with a sentence that has no mode.
    match answer.lines().find_map(|line| line.strip_prefix("Mode: ")) {
        Some("leader") => Ok(Role::Leads),
        Some(_) => Ok(Role::Follows),
        None => Err(answer.trim().to_owned()),
    }
}

async fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
