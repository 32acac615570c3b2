//! What can't be read, and what isn't known.

use super::client::{Zk, create, get};
use super::{client, port};
use crate::support::{Node, TIMEOUT};
use holdfast_core::NodeKind;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{FRAME_BYTES_MAX, Request};
use std::io::{Read, Write};
use std::net::TcpStream;

fn says(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port(node))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    let ended = stream.read_to_end(&mut said);
    assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    said
}

#[test]
fn a_first_frame_that_is_no_connect_request_ends_the_connection() {
    let node = Node::start();
    let too_long = i32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
    for bytes in [&too_long[..], &[0xff; 4], &[0, 0, 0, 2, 1, 2], b"GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(says(&node, bytes), b"", "{bytes:?}");
    }
    client(&node).make("/still-here");
}

#[test]
fn a_malformed_request_ends_only_its_own_connection() {
    let node = Node::start();
    let (mut bad, mut good) = (client(&node), client(&node));
    bad.stream.write_all(&[0, 0, 0, 3, 1, 2, 3]).unwrap();
    assert!(bad.is_closed());
    good.make("/still-here");
    // Its session is still there, for a connection that makes sense.
    assert!(bad.attach(port(&node)).unwrap());
    // The length of a path that is longer than its frame.
    bad.stream.write_all(&[0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]).unwrap();
    assert_eq!(bad.reply(9, &get("/", false)).unwrap(), Err(Code::MarshallingError));
    bad.make("/mine");
}

#[test]
fn a_request_that_is_not_known_is_said_to_be_so() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.stream.write_all(&[0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 16]).unwrap();
    assert_eq!(zk.reply(7, &Request::Unknown).unwrap(), Err(Code::Unimplemented));
    assert!(zk.is_closed());
}

#[test]
fn frames_come_in_any_pieces() {
    let node = Node::start();
    let mut zk = client(&node);
    let request = create("/pieces", NodeKind::Persistent, false);
    let frames: Vec<u8> = [&request, &get("/pieces", false)]
        .iter()
        .zip(1..)
        .flat_map(|(request, number)| request.encode(number))
        .collect();
    for byte in frames {
        zk.stream.write_all(&[byte]).unwrap();
    }
    zk.reply(1, &request).unwrap().unwrap();
    zk.reply(2, &get("/pieces", false)).unwrap().unwrap();
}

#[test]
fn errors_are_zookeepers() {
    let node = Node::start();
    let mut zk: Zk = client(&node);
    zk.make("/a/b");
    zk.create("/e", NodeKind::Ephemeral, false).unwrap();
    let persistent = NodeKind::Persistent;
    assert_eq!(zk.create("/a", persistent, false), Err(Code::NodeExists));
    assert_eq!(zk.create("/x/y", persistent, false), Err(Code::NoNode));
    assert_eq!(zk.create("/e/y", persistent, false), Err(Code::NoChildrenForEphemerals));
    assert_eq!(zk.create("relative", persistent, false), Err(Code::BadArguments));
    assert_eq!(zk.delete("/a"), Err(Code::NotEmpty));
    assert_eq!(zk.delete("/none"), Err(Code::NoNode));
    assert_eq!(zk.get("/none", false), Err(Code::NoNode));
}
