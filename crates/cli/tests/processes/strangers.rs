//! Connections without the cluster's secret are refused, and the cluster keeps serving.

use crate::support::{Cluster, Load, Node, eventually, new_key};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn unauthenticated_peers_are_refused_without_disturbing_the_cluster() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(2, cluster.ports());
    let peer = cluster.nodes[0].peer();

    // What each sends, and what the node must log about it.
    let mut garbage = vec![40, 0, 0, 0];
    garbage.extend([0xA5; 40]);
    let mut later_version = vec![10, 0, 0, 0];
    later_version.extend(b"HOLDFPEE\x09\x00");
    let oversized = [0xFF, 0xFF, 0xFF, 0x7F, 1, 2, 3];
    let cases: [(&[u8], &str); 4] = [
        (&garbage, "this is the port for a Holdfast node's peers"),
        (b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n", "at most 2048 are taken"),
        (&oversized, "a frame of 2147483647 bytes, and at most 2048 are taken"),
        (&later_version, "peers here speak version 1, not 9"),
    ];
    for (bytes, why) in cases {
        hang_up(&peer, bytes);
        must_print(&cluster.nodes[0], why);
    }
    // More than may be connected without authenticating.
    let silent: Vec<TcpStream> = (0..80).filter_map(|_| TcpStream::connect(&peer).ok()).collect();
    // They once took all places, and a node that came back was turned away.
    let answer = hang_up(&peer, &garbage);
    assert!(answer.contains("this is the port for a Holdfast node's peers"), "{answer:?}");
    must_print(&cluster.nodes[0], "too many unidentified connections");
    load.goes_on(20);
    drop(silent);

    let (mut words, key) = (fs::read_to_string(&cluster.key).expect("a key"), cluster.key.clone());
    words.truncate(words.trim_end().len());
    let words: Vec<&str> = words.split(' ').collect();
    let [word, id, secret] = words[..] else { panic!("a key has three words") };
    let (other_id, other_secret) = (turned(id), turned(secret));
    let strangers = [
        (format!("{word} {id} {other_secret}\n"), "it has another cluster secret"),
        (format!("{word} {other_id} {secret}\n"), "this is a node of another cluster"),
    ];
    let mut started = Vec::new();
    for (number, (line, why)) in strangers.into_iter().enumerate() {
        cluster.key = cluster.path().join(format!("stranger-{number}.key"));
        fs::write(&cluster.key, line).expect("a key can be written");
        let at = cluster.add(["--join", &peer]);
        cluster.nodes[at].start();
        started.push((at, why));
    }
    for (at, why) in started {
        let status = cluster.nodes[at].ended();
        let printed = cluster.nodes[at].printed();
        assert!(!status.success() && printed.contains(why), "{status}: {printed}");
    }
    must_print(&cluster.nodes[0], "refused a peer's connection from 127.0.0.1");
    must_print(&cluster.nodes[0], "this is a node of another cluster");

    // A whole cluster that takes this one's first node for its own.
    cluster.key = cluster.path().join("other.key");
    new_key(&cluster.key);
    let members = format!("2=127.0.0.1:1,1={peer}");
    let at = cluster.add(["--node", "2", "--members", &members]);
    cluster.nodes[at].start();
    eventually("it notices", || {
        cluster.nodes[at].printed().contains("it has another cluster secret").then_some(())
    });
    cluster.key = key;

    load.goes_on(20);
    assert_eq!(cluster.voters(cluster.nodes[0].port), [1, 2, 3]);
    load.finish(&cluster.http);
}

/// Every connection to the peer port left a line or two in the log: anyone who could reach the port
/// could fill the disk.
#[test]
fn refused_peers_do_not_flood_the_log() {
    let mut cluster = Cluster::start(1);
    let peer = cluster.nodes[0].peer();
    for length in 0..2_000_u32 {
        // Each claims another length.
        hang_up(&peer, &(1_000_000 + length).to_le_bytes());
    }
    let lines = |printed: String| printed.lines().filter(|line| line.contains("WARN")).count();
    let logged = lines(cluster.nodes[0].printed());
    assert!(logged > 0, "nothing was said about it");
    // A few for every ten seconds, however slow this machine is.
    assert!(logged < 500, "{logged} lines");
    must_print(&cluster.nodes[0], "more messages like these");
    cluster.http.grab(cluster.nodes[0].port, "seat");
    assert!(cluster.nodes[0].stop().success());
}

/// Sends these bytes, and waits until the node has closed the connection; returns what it sent.
fn hang_up(peer: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(peer).expect("the port is open");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a patience can be set");
    stream.write_all(bytes).expect("the node reads");
    let mut answer = Vec::new();
    // It may say why first; a reset counts as closing.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it did not hang up");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn must_print(node: &Node, what: &str) {
    eventually(&format!("the node says: {what}"), || node.printed().contains(what).then_some(()));
}

/// The same number of digits, each of them changed.
fn turned(digits: &str) -> String {
    digits.chars().map(|digit| if digit == '7' { '8' } else { '7' }).collect()
}
