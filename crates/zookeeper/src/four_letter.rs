//! Four-letter words: what operators and test suites ask on the same port, without a session.

use std::fmt::Write as _;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FourLetterWord {
    /// Are you there?
    Ruok,
    /// About the server.
    Srvr,
    /// The same, with its connections.
    Stat,
    /// Figures for monitoring.
    Mntr,
    /// The environment.
    Envi,
    /// Connections.
    Cons,
    /// Whether it only reads.
    Isro,
}

impl FourLetterWord {
    /// The word that these bytes are.
    pub fn of(bytes: &[u8; 4]) -> Option<Self> {
        Some(match bytes {
            b"ruok" => Self::Ruok,
            b"srvr" => Self::Srvr,
            b"stat" => Self::Stat,
            b"mntr" => Self::Mntr,
            b"envi" => Self::Envi,
            b"cons" => Self::Cons,
            b"isro" => Self::Isro,
            _ => return None,
        })
    }
}

/// What a server knows about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version of Holdfast.
    pub version: String,
    /// `leader`, `follower` or `standalone`.
    pub mode: &'static str,
    /// Whether a majority is known to follow the same leader.
    pub serving: bool,
    /// Frames from all clients.
    pub received: u64,
    /// Frames to all clients.
    pub sent: u64,
    /// Requests that are not answered.
    pub outstanding: u64,
    /// The zxid of the last change.
    pub zxid: u64,
    /// Znodes.
    pub nodes: usize,
    /// Ephemeral znodes and sessions of this node's clients.
    pub sessions: usize,
    /// Watches of this node's clients.
    pub watches: usize,
    /// The clients.
    pub connections: Vec<ConnectionInfo>,
}

/// What a server knows about a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its address.
    pub address: String,
    /// Its session; 0 if it has none yet.
    pub session: u64,
    /// How long that may stay silent.
    pub timeout_ms: u64,
    /// Frames from it.
    pub received: u64,
    /// Frames to it.
    pub sent: u64,
    /// Requests that are not answered.
    pub outstanding: u64,
}

/// The answer to a word that a server does not answer. Tools look for these words.
pub fn refused(word: FourLetterWord) -> String {
    let name = format!("{word:?}").to_lowercase();
    format!("{name} is not executed because it is not in the whitelist.\n")
}

/// What is said of a server that has no leader: tools look for these words.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The answer to a word.
pub fn answer(word: FourLetterWord, info: &ServerInfo) -> String {
    match word {
        FourLetterWord::Ruok => "imok".to_owned(),
        FourLetterWord::Isro => if info.serving { "rw" } else { "null" }.to_owned(),
        FourLetterWord::Envi => format!(
            "Environment:\nzookeeper.version={}\nholdfast.version={}\n",
            version(info),
            info.version
        ),
        _ if !info.serving => NOT_SERVING.to_owned(),
        FourLetterWord::Srvr => format!("Zookeeper version: {}\n{}", version(info), summary(info)),
        FourLetterWord::Stat => format!(
            "Zookeeper version: {}\nClients:\n{}\n{}",
            version(info),
            connections(info),
            summary(info)
        ),
        FourLetterWord::Cons => format!("{}\n", connections(info)),
        FourLetterWord::Mntr => {
            let mut lines = String::new();
            let mut line = |name: &str, value: String| {
                let _ = writeln!(lines, "zk_{name}\t{value}");
            };
            line("version", version(info));
            line("server_state", info.mode.to_owned());
            line("packets_received", info.received.to_string());
            line("packets_sent", info.sent.to_string());
            line("num_alive_connections", info.connections.len().to_string());
            line("outstanding_requests", info.outstanding.to_string());
            line("znode_count", info.nodes.to_string());
            line("watch_count", info.watches.to_string());
            line("global_sessions", info.sessions.to_string());
            lines
        }
    }
}

/// Tools look for ZooKeeper's version in front: what of it is spoken here.
fn version(info: &ServerInfo) -> String {
    format!("3.8.0-holdfast-{}", info.version)
}

fn summary(info: &ServerInfo) -> String {
    format!(
        "Received: {}\nSent: {}\nConnections: {}\nOutstanding: {}\nZxid: 0x{:x}\nMode: {}\n\
         Node count: {}\n",
        info.received,
        info.sent,
        info.connections.len(),
        info.outstanding,
        info.zxid,
        info.mode,
        info.nodes
    )
}

fn connections(info: &ServerInfo) -> String {
    let line = |c: &ConnectionInfo| {
        format!(
            " /{}[1](queued={},recved={},sent={},sid=0x{:x},to={})\n",
            c.address, c.outstanding, c.received, c.sent, c.session, c.timeout_ms
        )
    };
    info.connections.iter().map(line).collect()
}
