//! A node that was restarted, or was behind, sends nobody events from before they subscribed.

use crate::resp::Redis;
use crate::support::{Cluster, eventually};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A subscriber of a node that had just been started received every message since the last snapshot
/// again, and a watcher every grant: they were attached while the log was replayed.
#[test]
fn restarted_node_sends_no_stale_events() {
    let mut cluster = Cluster::start(3);
    let at = cluster.follower();
    let port = cluster.nodes[at].port;
    let mut redis = Redis::connect(port + 1).expect("the Redis door is open");
    for number in 0..200 {
        redis.ask(&format!("PUBLISH news old-{number}"));
        redis.ask("SET seat x NX PX 60000");
        redis.ask("DEL seat");
    }
    drop(redis);
    for _ in 0..2 {
        cluster.nodes[at].kill();
        cluster.nodes[at].start();
        // As soon as the door is open.
        let mut redis = eventually("the Redis door is open", || Redis::connect(port + 1).ok());
        redis.send(&["SUBSCRIBE news"]);
        let mut watch = eventually("HTTP is open", || TcpStream::connect(("127.0.0.1", port)).ok());
        watch.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        let request = "GET /v1/watch?name=seat HTTP/1.1\r\nHost: localhost\r\n\r\n";
        watch.write_all(request.as_bytes()).expect("it is sent");
        assert_eq!(redis.receive(), "[subscribe news 1]");
        let mut lines = BufReader::new(watch).lines();
        let mut next = |what: &str| {
            lines
                .by_ref()
                .map(|line| line.expect("the stream goes on"))
                .find(|line| line.starts_with("event:") && (what.is_empty() || line.contains(what)))
        };
        assert!(next("watching").is_some());

        cluster.nodes[at].ready(&cluster.http);
        let other = cluster.nodes.iter().map(|node| node.port).find(|other| *other != port);
        let mut other = Redis::connect(other.expect("another node") + 1).expect("it is open");
        other.ask("PUBLISH news new");
        assert_eq!(redis.receive(), "[message news new]");
        assert_eq!(other.ask("SET seat new NX PX 60000"), "OK");
        assert_eq!(next("").as_deref(), Some("event: granted"));
        assert_eq!(other.ask("DEL seat"), "1");
        assert_eq!(next("").as_deref(), Some("event: ended"));
    }
}
