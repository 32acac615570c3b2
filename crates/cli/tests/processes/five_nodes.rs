//! Five nodes keep serving when two are dead.

use crate::support::{Cluster, Load};

/// Would fail if a majority of five were not enough, or if nodes that come back did not count: the
/// second time the majority needs them.
#[test]
fn five_nodes_survive_two_deaths_twice() {
    let mut cluster = Cluster::start(5);
    let load = Load::start(4, cluster.ports());
    load.goes_on(20);

    let leader = cluster.leader();
    let dead = [leader, (leader + 1) % 5];
    dead.iter().for_each(|&at| cluster.nodes[at].kill());
    load.goes_on(20);
    dead.iter().for_each(|&at| cluster.nodes[at].start());
    cluster.all_ready();

    let others = [(leader + 2) % 5, (leader + 3) % 5];
    others.iter().for_each(|&at| cluster.nodes[at].kill());
    load.goes_on(20);
    others.iter().for_each(|&at| cluster.nodes[at].start());
    cluster.all_ready();
    load.goes_on(20);
    load.finish(&cluster.http);
}
