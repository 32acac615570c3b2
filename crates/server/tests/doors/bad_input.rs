//! Input that no client sends, at every door in the list: the connection ends, and the node keeps
//! running.

use crate::support::{Node, TIMEOUT, eventually};
use holdfast_server::DOORS;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Bytes that belong to no protocol, to another one, or are only the start of something.
fn nonsense() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        // xorshift: the same bytes in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all = vec![
        Vec::new(),
        vec![0; 4_096],
        vec![0xff; 4_096],
        b"\r\n\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_vec(),
        b"*1\r\n$4\r\nPI".to_vec(),
        b"*-5\r\n$999999999999\r\n".to_vec(),
        b"*1048577\r\n".to_vec(),
    ];
    for length in [1, 7, 64, 1_000, 70_000] {
        all.push((0..length).map(|_| random() as u8).collect());
    }
    all
}

#[test]
fn garbage_does_not_disturb_any_door() {
    let node = Node::start();
    for door in DOORS {
        for bytes in nonsense() {
            let mut stream =
                TcpStream::connect(("127.0.0.1", node.port + door.port_above)).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            // It may close the connection before everything is written.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut said = Vec::new();
            // A reset ends a connection as well as an orderly close does.
            let ended = stream.read_to_end(&mut said);
            let waited = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!waited, "{} keeps {:?}", door.name, bytes.get(..20));
        }
        let open = format!("holdfast_connections{{door=\"{}\"}}", door.name);
        // The connection that asks for the metrics is one of HTTP's.
        let others = if door.name == "http" { 1.0 } else { 0.0 };
        eventually("all connections are gone", || (node.metric(&open) <= others).then_some(()));
    }
    node.grab("still here");
}
