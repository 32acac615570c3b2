//! Nodes move to other ports, one after the other.

use crate::support::{Cluster, Load};

/// Each node learned the new address of another only while it was running: after its own restart it
/// tried the address with which the other had joined. When the last of three had moved, none found
/// any other.
#[test]
fn nodes_can_move_to_other_ports_one_by_one() {
    let mut cluster = Cluster::start(3);
    for at in 0..3 {
        assert!(cluster.nodes[at].stop().success());
        let port = cluster.new_port();
        cluster.nodes[at].move_to(port);
        cluster.nodes[at].start();
        cluster.all_ready();
    }
    let load = Load::start(2, cluster.ports());
    load.goes_on(20);
    // Every two of them know each other.
    for _ in 0..2 {
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        load.goes_on(20);
        cluster.nodes[leader].start();
        cluster.all_ready();
    }
    let status = cluster.http.get_ok(cluster.nodes[0].port, "/v1/status");
    for (at, node) in cluster.nodes.iter().enumerate() {
        assert_eq!(status["nodes"][at]["peer"], node.peer(), "{status}");
    }
    load.finish(&cluster.http);
}
