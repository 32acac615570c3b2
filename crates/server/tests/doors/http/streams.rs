//! gRPC over the same port: messages that do not arrive, and events that are not read.

use crate::support::{Node, TIMEOUT, eventually};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, to_client, to_server};
use serde_json::json;
use std::io::{Read, Write};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

async fn connect(node: &Node) -> HoldfastClient<Channel> {
    let server = Channel::from_shared(format!("http://127.0.0.1:{}", node.port)).unwrap();
    HoldfastClient::new(server.connect().await.unwrap())
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A literal header, encoded with HPACK.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The head of a gRPC call, and an unfinished part of its body.
fn half_a_call(stream: u32) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/holdfast.v1.Holdfast/Acquire"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        head.extend(header(name, value));
    }
    // The message claims 16 bytes, of which 3 arrive.
    [frame(1, 4, stream, &head), frame(0, 0, stream, b"\0\0\0\0\x10abc")].concat()
}

/// Calls whose message did not arrive were waited for indefinitely. As many of them as a node
/// handles at once kept everyone else out, and a few connections were enough for that.
#[test]
fn incomplete_calls_do_not_block_others() {
    let node = Node::start();
    let mut kept = Vec::new();
    for _ in 0..40 {
        let mut stream = node.connect();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(4, 0, 0, b"")).unwrap();
        let calls: Vec<u8> = (0..1_000).flat_map(|call| half_a_call(2 * call + 1)).collect();
        let mut reads = stream.try_clone().unwrap();
        kept.push(stream.try_clone().unwrap());
        std::thread::spawn(move || {
            // Whatever arrives is discarded.
            let mut response = [0; 4_096];
            while reads.read(&mut response).is_ok_and(|read| read > 0) {}
        });
        // The server closes it when it has taken too long.
        let _ = stream.write_all(&calls);
    }
    // The node may take a while to read all of them.
    for _ in 0..50 {
        node.get("/healthz").ok();
        let held = node.grab("seat");
        node.post("/v1/release_lock", &Node::own(&held)).ok();
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(kept);
}

/// A call, and the first message of a session's stream, had no timeout.
#[test]
fn missing_message_times_out() {
    let node = Node::start();
    let mut call = node.connect();
    call.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    call.write_all(&frame(4, 0, 0, b"")).unwrap();
    call.write_all(&half_a_call(1)).unwrap();
    let session: Result<_, Status> = Runtime::new().unwrap().block_on(async {
        let (_says, nothing) = mpsc::channel(1);
        let mut client = connect(&node).await;
        timeout(TIMEOUT, client.session(ReceiverStream::new(nothing))).await.expect("an answer")
    });
    let status = session.expect_err("it said nothing");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert!(status.message().contains("too_slow"), "{status:?}");

    // Frames up to the response to the call: head and trailers in one, which ends the stream.
    loop {
        let mut head = [0; 9];
        call.read_exact(&mut head).unwrap();
        let [_, high, low, kind, flags, .., stream] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        call.read_exact(&mut payload).unwrap();
        if (kind, stream) == (1, 1) {
            assert_eq!(flags & 1, 1, "the stream is over");
            break;
        }
    }
    assert_eq!(node.metric("holdfast_requests_total"), 0.0);
}

/// A client with a wrong secret was told that its session had ended.
#[test]
fn attach_with_a_wrong_secret_is_refused() {
    let node = Node::start();
    let opened = node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000 })).ok();
    let session = opened["session"]["id"].as_u64().unwrap();
    Runtime::new().unwrap().block_on(async {
        let mut client = connect(&node).await;
        for (session, code) in
            [(session, Code::PermissionDenied), (session + 1, Code::FailedPrecondition)]
        {
            let attach =
                proto::Attach { session, secret: vec![7; 16].into(), ..Default::default() };
            let what = Some(to_server::What::Attach(attach));
            let first = tokio_stream::once(proto::ToServer { number: 1, what });
            let refused = timeout(TIMEOUT, client.session(first)).await.expect("an answer");
            assert_eq!(refused.expect_err("a wrong secret").code(), code);
        }
    });
}

/// An idle connection is closed; a session that is silent for a while is not idle.
#[test]
fn quiet_session_keeps_its_connection() {
    let node = Node::start();
    Runtime::new().unwrap().block_on(async {
        let (says, messages) = mpsc::channel(2);
        let open = proto::Open { ttl_ms: 120_000, ..Default::default() };
        let what = Some(to_server::What::Open(open));
        says.send(proto::ToServer { number: 1, what }).await.unwrap();
        let mut client = connect(&node).await;
        let mut read_response =
            client.session(ReceiverStream::new(messages)).await.unwrap().into_inner();
        read_response.message().await.unwrap().unwrap();
        let silence = timeout(Duration::from_secs(33), read_response.message()).await;
        assert!(silence.is_err(), "nothing happens: {silence:?}");
        let what = Some(to_server::What::Beat(proto::Beat {}));
        says.send(proto::ToServer { number: 2, what }).await.unwrap();
        let response = timeout(TIMEOUT, read_response.message()).await.expect("an answer").unwrap();
        let response = response.expect("the stream goes on");
        assert!(matches!(response.what, Some(to_client::What::Alive(_))), "{response:?}");
    });
}

/// Changes that a watcher is notified of: enough to fill the buffers of the kernel and of the node.
fn make_noise(node: &Node, name: &str) {
    let grant = node.grab(name);
    let mut note = Node::own(&grant);
    note["note"] = "n".repeat(4_096).into();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..400 {
                    node.post("/v1/note", &note).ok();
                }
            });
        }
    });
}

/// A watcher that did not read was never polled again, and its stream ended without a notice.
#[test]
fn slow_watcher_is_notified_or_disconnected() {
    let node = Node::start();
    let mut reads_later = node.events("/v1/watch?name=seat");
    let mut never_reads = node.events("/v1/watch?name=seat");
    for watcher in [&mut reads_later, &mut never_reads] {
        assert_eq!(watcher.next().0, "watching");
    }
    make_noise(&node, "seat");
    let (kind, why) = loop {
        let (kind, data) = reads_later.next();
        if kind != "granted" && kind != "noted" {
            break (kind, data);
        }
    };
    assert_eq!((kind.as_str(), &why["code"]), ("missed", &json!("lagged")), "{why}");
    assert!(reads_later.is_over());
    // Only the connection that asks is left.
    eventually("it is cut off", || {
        let mut asks = node.connect();
        let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        asks.write_all(head).unwrap();
        let mut response = String::new();
        asks.read_to_string(&mut response).unwrap();
        response.contains("\nholdfast_connections{door=\"http\"} 1\n").then_some(())
    });
    drop(never_reads);
}
