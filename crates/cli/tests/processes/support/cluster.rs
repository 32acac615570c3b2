//! Several nodes on loopback, in a temporary folder.

use super::{HOLDFAST, Http, Node, Ports, eventually};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Cluster {
    // Dropped in this order: the nodes end before their folder is removed.
    pub(crate) nodes: Vec<Node>,
    pub(crate) http: Http,
    pub(crate) key: PathBuf,
    ports: Ports,
    taken: u16,
    folder: TempDir,
}

impl Cluster {
    /// Just a folder and a key.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let key = folder.path().join("cluster.key");
        new_key(&key);
        let http = Http::new(Duration::from_secs(20));
        Self { nodes: Vec::new(), http, key, ports: Ports::reserve(), taken: 0, folder }
    }

    /// Starts this many nodes as a new cluster, and waits until they are ready.
    pub(crate) fn start(count: u16) -> Self {
        let mut cluster = Self::first_members(count);
        cluster.nodes.iter_mut().for_each(Node::start);
        cluster.all_ready();
        cluster
    }

    /// The same, not started yet.
    pub(crate) fn first_members(count: u16) -> Self {
        let mut cluster = Self::empty();
        let peer = |k| format!("{k}={}", super::ports::peer_address(cluster.ports.of(k)));
        let members: Vec<String> = (1..=count).map(peer).collect();
        let members = members.join(",");
        for k in 1..=count {
            cluster.add(["--node", &k.to_string(), "--members", &members]);
        }
        cluster
    }

    /// An HTTP port that no node has had.
    pub(crate) fn new_port(&mut self) -> u16 {
        self.next_place().0
    }

    /// Adds a node that is not started yet, with these arguments for `serve`; returns its index in
    /// `nodes`.
    pub(crate) fn add<'a>(&mut self, args: impl IntoIterator<Item = &'a str>) -> usize {
        let (port, folder) = self.next_place();
        let key = ["--cluster-key".to_owned(), self.key.display().to_string()];
        let args = key.into_iter().chain(args.into_iter().map(str::to_owned));
        self.nodes.push(Node::new(port, &folder, args));
        self.nodes.len() - 1
    }

    /// The same without the cluster's key: its folder has one, or creates one.
    pub(crate) fn add_alone(&mut self) -> usize {
        let (port, folder) = self.next_place();
        self.nodes.push(Node::new::<&str>(port, &folder, []));
        self.nodes.len() - 1
    }

    /// The same in this folder.
    pub(crate) fn add_alone_in(&mut self, folder: &Path) -> usize {
        let (port, _) = self.next_place();
        self.nodes.push(Node::new::<&str>(port, folder, []));
        self.nodes.len() - 1
    }

    /// The peer ports of the first `count` nodes.
    pub(crate) fn peer_ports(&self, count: u16) -> Vec<u16> {
        (1..=count).map(|k| self.ports.of(k) + 10).collect()
    }

    fn next_place(&mut self) -> (u16, PathBuf) {
        self.taken += 1;
        (self.ports.of(self.taken), self.path().join(format!("node-{}", self.taken)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until every running node is ready.
    pub(crate) fn all_ready(&mut self) {
        let Self { nodes, http, .. } = self;
        for node in nodes.iter_mut().filter_map(|node| node.is_running().then_some(node)) {
            node.ready(http);
        }
    }

    /// The leader's index in `nodes`, once a running node leads and is ready.
    pub(crate) fn leader(&mut self) -> usize {
        let Self { nodes, http, .. } = self;
        eventually("there is a leader", || {
            let leads = |node: &Node| {
                node.status(http).is_some_and(|status| status["leader"] == status["node"])
            };
            let at = nodes.iter_mut().position(|node| node.is_running() && leads(node))?;
            let ready = http.get(nodes[at].port, "/readyz").is_ok_and(|reply| reply.status == 200);
            ready.then_some(at)
        })
    }

    /// A running node that does not lead.
    pub(crate) fn follower(&mut self) -> usize {
        let leader = self.leader();
        let running =
            |(at, node): (usize, &mut Node)| (at != leader && node.is_running()).then_some(at);
        self.nodes.iter_mut().enumerate().find_map(running).expect("another node runs")
    }

    pub(crate) fn ports(&mut self) -> Vec<u16> {
        let running =
            self.nodes.iter_mut().filter_map(|node| node.is_running().then_some(node.port));
        running.collect()
    }

    /// The ids of the voters, according to a node.
    pub(crate) fn voters(&self, port: u16) -> Vec<u64> {
        let members = self.http.get_ok(port, "/v1/members");
        let members = members["members"].as_array().into_iter().flatten();
        let voters = members.filter(|member| member["votes"] == true);
        voters.filter_map(|member| member["id"].as_u64()).collect()
    }
}

/// Writes a new key to that file.
pub(crate) fn new_key(file: &Path) {
    let made = Command::new(HOLDFAST).arg("new-key").output().expect("holdfast runs");
    assert!(made.status.success());
    std::fs::write(file, made.stdout).expect("the key can be written");
}
