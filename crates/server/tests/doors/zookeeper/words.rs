//! Four-letter words.

use super::client::word;
use super::{client, port};
use crate::support::Node;

#[test]
fn a_server_tells_about_itself() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/a/b");
    zk.exists("/none", true);
    let port = port(&node);
    assert_eq!(word(port, "ruok"), "imok");
    assert_eq!(word(port, "isro"), "rw");
    let stat = word(port, "stat");
    assert!(stat.starts_with("Zookeeper version: 3.8"), "{stat}");
    assert!(stat.contains("Mode: standalone"), "{stat}");
    assert!(stat.contains(&format!("sid=0x{:x}", zk.session)), "{stat}");
    let figures = word(port, "mntr");
    let figure = |name: &str| {
        let line = figures.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        line.unwrap_or_else(|| panic!("no {name} in {figures}")).to_owned()
    };
    assert_eq!(figure("server_state"), "standalone");
    assert_eq!(figure("watch_count"), "1");
    assert_eq!(figure("outstanding_requests"), "0");
    assert_eq!(figure("znode_count"), "2");
    assert!(figure("packets_received").parse::<u64>().unwrap() >= 4);
    assert!(word(port, "cons").contains("/127.0.0.1:"));
    assert!(word(port, "envi").contains("holdfast.version="));
    assert!(word(port, "srvr").contains("Node count: 2"));
}

#[test]
fn clients_and_their_requests_are_counted() {
    let node = Node::start();
    let mut zk = client(&node);
    assert_eq!(node.metric("holdfast_connections{door=\"zookeeper\"}"), 1.0);
    zk.make("/a");
    zk.get("/a", false).unwrap();
    let sent = node.metric("holdfast_commands_total{door=\"zookeeper\"}");
    assert!(sent >= 3.0, "{sent}");
}
