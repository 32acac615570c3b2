//! Requests whose callers have given up.

use crate::support::{Cluster, Http, TIMEOUT, eventually, unique};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, request, to_client, to_server};
use rustix::process::Signal;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// A `force` was sent to a node that had no leader. Its caller was told that it may or may not take
/// effect; when the other nodes came back, it did, and broke the lock of an unrelated holder. Here
/// one caller hangs up, and one waits for the reply.
#[test]
fn requests_without_a_leader_are_withdrawn() {
    let mut cluster = Cluster::start(3);
    let at = cluster.follower();
    let port = cluster.nodes[at].port;
    let held = cluster.http.grab(port, "seat");
    let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
    for other in &others {
        cluster.nodes[*other].kill();
    }
    eventually("it knows no leader", || {
        cluster.http.get_ok(port, "/v1/status")["leader"].is_null().then_some(())
    });

    let force = json!({ "name": "seat", "by": "operator", "reason": "test" });
    let hasty = Http::new(Duration::from_millis(300));
    hasty.post(port, "/v1/force", &force).expect_err("there is no leader");
    let result = cluster.http.post(port, "/v1/force", &force).expect("an answer in time");
    assert_eq!((result.status, result.code()), (503, "no_leader"), "{}", result.body);
    assert!(result.body["message"].as_str().is_some_and(|why| why.contains("nothing was done")));

    for other in &others {
        cluster.nodes[*other].start();
    }
    cluster.all_ready();
    // Anything that this node still had to send came before this.
    cluster.http.grab(port, "another");
    assert_eq!(cluster.http.holders(port, "seat"), [held.token]);
}

/// The command line refused to remove a member whose vote the others needed; the server carried it
/// out, and the cluster stopped serving.
#[test]
fn leader_refuses_a_removal_that_loses_the_majority() {
    let mut cluster = Cluster::start(3);
    let dead = cluster.follower();
    let dead_id = cluster.nodes[dead].id(&cluster.http);
    cluster.nodes[dead].kill();
    let leader = cluster.leader();
    let other = (0..3).find(|at| *at != dead && *at != leader).expect("three nodes");
    let (port, id) = (cluster.nodes[other].port, cluster.nodes[other].id(&cluster.http));
    let refused = cluster.http.post(port, "/v1/members/remove", &json!({ "node": id }));
    let refused = refused.expect("an answer");
    assert_eq!((refused.status, refused.code()), (409, "not_changed"), "{}", refused.body);
    let message = refused.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("no majority") && message.contains(&format!("node {dead_id}")));
    cluster.http.grab(port, "seat");
    let forced = json!({ "node": id, "force": true });
    let forced = cluster.http.post(cluster.nodes[leader].port, "/v1/members/remove", &forced);
    assert!(forced.is_ok_and(|reply| reply.status != 409));
}

/// A node that was admitted, but did not get the reply, asked again and became another member; the
/// first one never came.
#[test]
fn repeated_join_adds_one_member() {
    let mut cluster = Cluster::start(1);
    let port = cluster.ports()[0];
    let address = json!({ "address": "127.0.0.1:1" });
    let first = cluster.http.post_ok(port, "/v1/members/add", &address);
    assert_eq!(cluster.http.post_ok(port, "/v1/members/add", &address), first);
    let other = json!({ "address": "127.0.0.1:2" });
    assert_ne!(cluster.http.post_ok(port, "/v1/members/add", &other), first);
}

/// A node was stopped with a request in its socket. Its caller gave up, and another client got the
/// lock in the meantime. When the node was continued, it processed the request before it noticed
/// that its caller was gone, and broke the lock of an unrelated holder.
#[test]
fn requests_abandoned_while_the_node_was_paused_have_no_effect() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let hasty = Http::new(Duration::from_millis(300));
    let force = json!({ "name": "seat", "by": "operator", "reason": "test" });
    for round in 0..3 {
        let old = cluster.http.grab(elsewhere, "seat");
        cluster.nodes[at].signal(Signal::STOP);
        hasty.post(port, "/v1/force", &force).expect_err("the node stands still");
        cluster.http.let_go(elsewhere, &old);
        let innocent = cluster.http.grab(elsewhere, "seat");
        std::thread::sleep(Duration::from_secs(2));
        cluster.nodes[at].signal(Signal::CONT);
        // By then it has done whatever it was going to do.
        cluster.nodes[at].ready(&cluster.http);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(cluster.http.holders(port, "seat"), [innocent.token], "round {round}");
        cluster.http.let_go(port, &innocent);
    }
}

/// A request on a session's stream was kept indefinitely by a node that had no leader, and took
/// effect whenever one came back, however long ago its client had given up on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_requests_without_a_leader_are_withdrawn() {
    let mut cluster = Cluster::start(3);
    let at = cluster.follower();
    let port = cluster.nodes[at].port;
    let server = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    let mut client = HoldfastClient::new(server.connect().await.expect("a connection"));
    let (send, messages) = mpsc::channel(4);
    let say = async |number, what| {
        let message = proto::ToServer { number, what: Some(what) };
        send.send(message).await.expect("the stream is open");
    };
    let open = proto::Open { ttl_ms: 600_000, label: None };
    say(1, to_server::What::Open(open)).await;
    let stream = client.session(ReceiverStream::new(messages)).await;
    let mut stream = stream.expect("a stream").into_inner();
    stream.message().await.expect("an answer").expect("it is open");
    let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
    for other in &others {
        cluster.nodes[*other].kill();
    }
    eventually("it knows no leader", || {
        cluster.http.get_ok(port, "/v1/status")["leader"].is_null().then_some(())
    });

    let acquire = proto::Acquire { names: vec!["seat".into()], ..Default::default() };
    let what = Some(request::What::Acquire(acquire));
    let request = proto::Request { id: 1, lowest: 1, what };
    say(2, to_server::What::Request(request)).await;
    say(3, to_server::What::Beat(proto::Beat {})).await;
    for _ in 0..2 {
        let result = timeout(TIMEOUT, stream.message()).await.expect("an answer in time");
        let result = result.expect("the stream goes on").expect("the stream goes on");
        match result.what {
            Some(to_client::What::TryAgain(again)) => {
                assert!(again.why.contains("nothing was done"), "{}", again.why);
            }
            other => panic!("{}: {other:?}", result.number),
        }
    }

    for other in &others {
        cluster.nodes[*other].start();
    }
    cluster.all_ready();
    // Anything that this node still had to send came before this.
    cluster.http.grab(port, "another");
    assert!(cluster.http.holders(port, "seat").is_empty());
}

/// A client pipelined tries over one connection while the leader was stopped for a moment. More
/// than 32 KiB were unread behind the first one, so all of them were answered with
/// `connection_closed`, even those that were sent alone later; one with a request id held its lock
/// though.
#[test]
fn pipelined_tries_are_answered_when_the_leader_pauses_briefly() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.nodes[at].port)).expect("it is open");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let mut requests = Vec::new();
    for number in 0..400 {
        let id = (number % 2 == 0).then(unique);
        let body = json!({ "name": format!("seat-{number}"), "ttl_ms": 60_000, "request_id": id });
        let body = body.to_string();
        let length = body.len();
        let head = "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nContent-Length:";
        requests.extend_from_slice(format!("{head} {length}\r\n\r\n{body}").as_bytes());
    }
    assert!(requests.len() > 48 << 10, "too little to stand unread");
    cluster.nodes[leader].signal(Signal::STOP);
    stream.write_all(&requests).expect("it is sent");
    thread::sleep(Duration::from_millis(900));
    cluster.nodes[leader].signal(Signal::CONT);
    let (mut printed, mut answers) = (String::new(), 0);
    let mut piece = [0; 65_536];
    while answers < 400 {
        let read = stream.read(&mut piece).expect("an answer in time");
        assert!(read > 0, "the connection was closed after {answers} answers: {printed}");
        printed.push_str(&String::from_utf8_lossy(&piece[..read]));
        answers = printed.matches("HTTP/1.1 ").count();
    }
    assert!(!printed.contains("connection_closed"), "{printed}");
    assert!(printed.matches("fencing_token").count() >= 390, "{printed}");
}
