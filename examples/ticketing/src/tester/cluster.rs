//! A Holdfast cluster of three processes, whose leader is killed in the middle of a purchase.

use super::shop::{Client, wait_until};
use super::{Bench, Failure};
use crate::settings::LockType;
use clap::Args;
use holdfast_node::NodeId;
use holdfast_server::{
    ClusterKey, Config, DOORS, DoorAddresses, First, PEER_PORT_ABOVE, Server, ports_are_free,
};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A node of a Holdfast cluster, for the tests
#[derive(Args, Debug)]
pub(crate) struct Node {
    #[arg(long)]
    data_dir: PathBuf,
    #[arg(long)]
    cluster_key: PathBuf,
    #[arg(long)]
    node: u64,
    /// The HTTP ports of all nodes, this one's among them
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
}

impl Node {
    pub(crate) async fn run(self) -> Result<(), String> {
        let numbered = (1..).map(NodeId).zip(&self.ports);
        let members =
            numbered.map(|(id, port)| (id, format!("127.0.0.1:{}", port + PEER_PORT_ABOVE)));
        let place = usize::try_from(self.node).unwrap_or(0).checked_sub(1);
        let port = place.and_then(|place| self.ports.get(place)).ok_or("no such node")?;
        let config = Config {
            data_dir: self.data_dir,
            listen: HERE,
            advertise: None,
            allow_hosts: Vec::new(),
            port: *port,
            doors: DoorAddresses::default(),
            key: Some(self.cluster_key),
            first: First::Member { node: NodeId(self.node), members: members.collect() },
            password: None,
            tls: None,
        };
        let server = Server::start(&config).await?;
        server.run(std::future::pending()).await
    }
}

/// Three nodes; they end when this is dropped.
struct Cluster {
    ports: Vec<u16>,
    nodes: Vec<Child>,
}

impl Cluster {
    fn start(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let key = folder.join("cluster.key");
        ClusterKey::draw().write_new(&key)?;
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect::<Result<_, _>>()?;
        let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let mut cluster = Self { ports, nodes: Vec::new() };
        for node in 1..=3 {
            let child = Command::new(program)
                .arg("node")
                .arg("--data-dir")
                .arg(folder.join(format!("node-{node}")))
                .arg("--cluster-key")
                .arg(&key)
                .args(["--node", &node.to_string(), "--ports", &list])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            cluster.nodes.push(child);
        }
        wait_until("the cluster has a leader", || Ok(cluster.leader().is_some()))?;
        Ok(cluster)
    }

    /// The place of the leader in the list.
    fn leader(&self) -> Option<usize> {
        let ask =
            |port: &u16| Client::new(&format!("http://127.0.0.1:{port}")).get("v1/status").ok();
        let leader = |answer: super::shop::Answer| {
            let leader = &answer.body["leader"];
            leader.as_u64().or_else(|| leader.as_str()?.parse().ok())
        };
        let leader = self.ports.iter().filter_map(ask).find_map(leader)?;
        usize::try_from(leader).ok()?.checked_sub(1)
    }

    /// LOCK_URL. A Redis client knows one address: that of a node which stays.
    fn url(&self, lock_type: LockType, not_at: usize) -> Option<String> {
        let scheme = lock_type.schemes().first()?;
        let door = DOORS.iter().find(|door| Some(door.name) == lock_type.door())?;
        let at = |port: &u16| format!("127.0.0.1:{}", port + door.port_above);
        let hosts: Vec<String> = self.ports.iter().map(at).collect();
        if lock_type != LockType::DistributedLock {
            return Some(format!("{scheme}://{}", hosts.join(",")));
        }
        Some(format!("{scheme}://{}", hosts[(not_at + 1) % hosts.len()]))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

pub(super) fn leader_killed(bench: &Bench) -> Result<String, Failure> {
    let folder = tempfile::tempdir()?;
    let mut cluster = Cluster::start(&bench.plan.program, folder.path())?;
    let leader = cluster.leader().ok_or("the cluster has no leader")?;
    let mut plan = bench.plan.clone();
    plan.lock_url = cluster.url(bench.lock_type, leader);
    let mut shop = super::shop::Shop::open(plan)?;
    let service = shop.start(&[("TOTAL_TICKETS", "2")])?;
    let client = &service.client;
    client.reserve("1", "ana")?.served()?;
    let node = cluster.nodes.get_mut(leader).ok_or("no such node")?;
    node.kill()?;
    node.wait()?;
    // Until there is a new leader, the lock service does not answer.
    let patiently = |what: &str, ask: &dyn Fn() -> Result<super::shop::Answer, Failure>| {
        wait_until(what, || {
            let answer = ask()?;
            if answer.status == 503 { Ok(false) } else { answer.served().map(|_| true) }
        })
    };
    patiently("ana can book", &|| client.book("1", "ana"))?;
    patiently("bo can reserve", &|| client.reserve("2", "bo"))?;
    patiently("bo can book", &|| client.book("2", "bo"))?;
    client.sold_exactly(&[("1", "ana"), ("2", "bo")])?;
    Ok("ana's reservation outlived the leader".into())
}

fn free_port() -> Result<u16, Failure> {
    loop {
        let port = TcpListener::bind((HERE, 0))?.local_addr()?.port();
        let above = DOORS.iter().map(|door| door.port_above).chain([PEER_PORT_ABOVE]);
        let ports: Option<Vec<u16>> = above.map(|above| port.checked_add(above)).collect();
        if ports.is_some_and(|ports| ports_are_free(HERE, ports).is_ok()) {
            return Ok(port);
        }
    }
}
