//! Four-letter words: status commands on the same port, without a session.

use std::fmt::Write as _;

/// A four-letter word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FourLetterWord {
    /// Whether the server is up.
    Ruok,
    /// Statistics of the server.
    Srvr,
    /// Statistics of the server and its connections.
    Stat,
    /// Metrics for monitoring.
    Mntr,
    /// The environment.
    Envi,
    /// Statistics of each connection.
    Cons,
    /// Whether the server is read-only.
    Isro,
}

impl FourLetterWord {
    /// The word with these bytes. `None` if it is not known.
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

/// A server's statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version of Holdfast.
    pub version: String,
    /// `leader`, `follower` or `standalone`.
    pub mode: &'static str,
    /// Whether the node knows a leader.
    pub serving: bool,
    /// Frames received from all clients.
    pub received: u64,
    /// Frames sent to all clients.
    pub sent: u64,
    /// Requests that have not been answered.
    pub outstanding: u64,
    /// The zxid of the last change.
    pub zxid: u64,
    /// How many znodes there are.
    pub nodes: usize,
    /// How many sessions there are.
    pub sessions: usize,
    /// How many watches this node's clients have.
    pub watches: usize,
    /// The clients' connections.
    pub connections: Vec<ConnectionInfo>,
}

/// The statistics of one client's connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its address.
    pub address: String,
    /// Its session; 0 if it has none yet.
    pub session: u64,
    /// The session's timeout.
    pub timeout_ms: u64,
    /// Frames received from it.
    pub received: u64,
    /// Frames sent to it.
    pub sent: u64,
    /// Requests that have not been answered.
    pub outstanding: u64,
}

/// The reply to a word that is not allowed. Tools look for this exact text.
pub fn refused(word: FourLetterWord) -> String {
    let name = format!("{word:?}").to_lowercase();
    format!("{name} is not executed because it is not in the whitelist.\n")
}

/// The reply of a server without a leader. Tools look for this exact text.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The reply to a word.
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

/// Tools expect a ZooKeeper version first: that of the protocol implemented here.
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
