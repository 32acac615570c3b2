//! Clients that take more than their share.

use super::client::{create, get, set};
use super::{client, port};
use crate::support::{Node, eventually};
use holdfast_core::NodeKind;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::Request;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Its replies are not gathered without a bound: its requests are not read until it reads.
#[test]
fn slow_reader_does_not_block_the_others() {
    let node = Node::start();
    let (mut greedy, mut other) = (client(&node), client(&node));
    other.make("/large");
    other.set("/large", &vec![b'x'; 100_000]).unwrap();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let request = get("/large", false);
    let mut sent = Vec::new();
    // 2 GB of replies, if they were all made.
    for _ in 0..20_000 {
        match greedy.send(&request) {
            Ok(number) => sent.push(number),
            Err(_) => break,
        }
    }
    for at in 0..100 {
        other.set("/large", format!("{at}").as_bytes()).unwrap();
    }
    // All that was sent whole is answered once it reads.
    sent.pop();
    for number in sent {
        greedy.reply(number, &request).unwrap().unwrap();
    }
}

#[test]
fn large_requests_in_a_row_are_all_done() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/large");
    let request = set("/large", &vec![b'x'; 200_000]);
    let mut writer = zk.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| {
            for number in 1_000..1_040 {
                writer.write_all(&request.encode(number)).unwrap();
            }
        });
        for number in 1_000..1_040 {
            zk.reply(number, &request).unwrap().unwrap();
        }
        sends.join().unwrap();
    });
}

#[test]
fn data_beyond_the_bound_is_refused() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/a");
    let mut frame = 900_000_i32.to_be_bytes().to_vec();
    frame.resize(900_004, 0);
    frame[4..12].copy_from_slice(&[0, 0, 0, 5, 0, 0, 0, 5]);
    // The path, and data as long as the rest.
    frame[12..18].copy_from_slice(&[0, 0, 0, 2, b'/', b'a']);
    frame[18..22].copy_from_slice(&(900_004_i32 - 26).to_be_bytes());
    zk.stream.write_all(&frame).unwrap();
    let refused = zk.reply(5, &set("/a", b"")).unwrap();
    assert!(refused.is_err(), "{refused:?}");
    zk.set("/a", b"fits").unwrap();
}

/// Watches of paths that are longer than any znode's would be kept for nothing.
#[test]
fn a_watch_of_an_endless_path_is_refused() {
    let node = Node::start();
    let mut zk = client(&node);
    let path = format!("/{}", "x".repeat(500_000));
    let watch = Request::Exists { path, watch: true };
    assert_eq!(zk.ask(&watch), Err(Code::BadArguments));
}

#[test]
fn a_client_that_goes_leaves_no_watches() {
    let node = Node::start();
    let mut zk = client(&node);
    for at in 0..1_000 {
        zk.exists(&format!("/none-{at}"), true);
    }
    let count = || {
        let said = super::client::word(port(&node), "mntr");
        let line = said.lines().find_map(|line| line.strip_prefix("zk_watch_count\t"));
        line.unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(count(), 1_000);
    drop(zk);
    eventually("they are gone", || (count() == 0).then_some(()));
}

/// A client that does not read its events is disconnected; others go on.
#[test]
fn events_that_nobody_reads_do_not_gather_for_ever() {
    let node = Node::start();
    let (mut deaf, mut writes) = (client(&node), client(&node));
    let mode = holdfast_zookeeper::codec::AddWatchMode::PersistentRecursive;
    deaf.ask(&Request::AddWatch { path: "/".into(), mode }).unwrap();
    let path = format!("/{}", "x".repeat(1_000));
    writes.create(&path, NodeKind::Persistent, false).unwrap();
    let Request::Write { op, stat } = set(&path, b"1") else { unreachable!() };
    let many = Request::Multi(vec![(op, stat); 250]);
    // Far more than the mailbox and the socket's buffers take.
    for _ in 0..160 {
        writes.ask(&many).unwrap();
    }
    let mut zk = client(&node);
    zk.ask(&create("/still-here", NodeKind::Persistent, false)).unwrap();
    assert!(deaf.is_closed());
}

#[test]
fn connections_that_send_nothing_do_not_keep_clients_out() {
    let node = Node::start();
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(("127.0.0.1", port(&node))).unwrap()).collect();
    client(&node).make("/here");
    drop(silent);
}
