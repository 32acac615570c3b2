//! Requests whose client has hung up.

use super::client;
use super::resp::Redis;
use crate::support::{Node, eventually, free_port};
use holdfast_node::NodeId;
use holdfast_server::{ClusterKey, Config, DoorAddresses, First, PEER_PORT_ABOVE, Server};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// A client sent 60 slow scripts and a `SET NX`, and hung up. The scripts ran anyway, and a minute
/// later the lock was taken for nobody.
#[test]
fn pipeline_stops_when_its_client_disconnects() {
    let node = Node::start();
    let mut other = client(&node);
    let mut gone = client(&node);
    let slow = "local s = string.rep('x', 2000000) while true do string.find(s, 'y', 1, true) end";
    for _ in 0..20 {
        gone.send_words(&["EVAL", slow, "0"]);
    }
    gone.send(&["SET late x NX PX 60000"]);
    drop(gone);
    let clients = |redis: &mut Redis| redis.ask("CLIENT LIST").lines().count();
    eventually("the connection is gone", || (clients(&mut other) == 1).then_some(()));
    assert_eq!(other.ask("EXISTS late"), "0");
}

/// One of the two nodes of a cluster.
struct Member {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    runs: tokio::task::JoinHandle<Result<(), String>>,
}

impl Member {
    fn start(folder: &Path, ports: [u16; 2], at: usize) -> Result<Self, String> {
        let address = |port: u16| format!("127.0.0.1:{}", port + PEER_PORT_ABOVE);
        let members = vec![(NodeId(1), address(ports[0])), (NodeId(2), address(ports[1]))];
        let config = Config {
            data_dir: folder.join(at.to_string()),
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            advertise: None,
            allow_hosts: Vec::new(),
            port: ports[at],
            doors: DoorAddresses::default(),
            key: Some(folder.join("cluster.key")),
            first: First::Member { node: members[at].0, members },
            password: None,
            tls: None,
        };
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start(&config))?;
        let (stop, stopped) = oneshot::channel();
        let runs = runtime.spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Ok(Self { runtime, stop, runs })
    }

    fn stop(self) {
        let _ = self.stop.send(());
        self.runtime.block_on(self.runs).unwrap().unwrap();
    }
}

/// A client gave up while there was no leader and hung up. Its node kept the request, and once
/// there was a leader again the lock was taken for nobody: the connection only waited for the
/// result, never for the socket.
#[test]
fn requests_awaiting_a_leader_are_withdrawn_on_disconnect() {
    // Another test may have taken a port meanwhile.
    let started = (0..20).find_map(|_| {
        let folder = tempfile::tempdir().unwrap();
        ClusterKey::draw().write_new(&folder.path().join("cluster.key")).unwrap();
        let ports = [free_port(), free_port()];
        let start = |at| Member::start(folder.path(), ports, at).ok();
        let (one, two) = (start(0)?, start(1)?);
        Some((folder, ports, one, two))
    });
    let (folder, ports, one, two) = started.expect("there are free ports");
    let start = |at| Member::start(folder.path(), ports, at).unwrap();
    let connect = || Redis::connect(ports[0] + 1).unwrap();
    eventually("there is a leader", || (connect().ask("SET before x") == "OK").then_some(()));
    two.stop();
    eventually("there is no leader", || {
        let status = format!("http://127.0.0.1:{}/v1/status", ports[0]);
        let text = ureq::get(status).call().ok()?.body_mut().read_to_string().ok()?;
        serde_json::from_str::<Value>(&text).ok()?["leader"].is_null().then_some(())
    });
    let mut gone: Vec<Redis> = (0..4).map(|_| connect()).collect();
    gone[0].send(&["SET late-set x NX PX 60000"]);
    let script = "return redis.call('set', KEYS[1], 'x', 'NX', 'PX', 60000)";
    gone[1].send_words(&["EVAL", script, "1", "late-eval"]);
    gone[2].send(&["RPUSH late-list x"]);
    gone[3].send(&["MULTI", "SET late-multi x", "EXEC"]);
    drop(gone);
    let mut other = connect();
    eventually("the connections are gone", || {
        (other.ask("CLIENT LIST").lines().count() == 1).then_some(())
    });
    // The loop looks for abandoned requests ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let two = start(1);
    eventually("there is a leader again", || (connect().ask("SET after x") == "OK").then_some(()));
    assert_eq!(other.ask("EXISTS before late-set late-eval late-list late-multi"), "1");
    one.stop();
    two.stop();
}
