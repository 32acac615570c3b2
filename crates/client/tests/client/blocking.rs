//! The client for programs that are not asynchronous.

use crate::LONG;
use crate::server::Node;
use holdfast_client::blocking::Client;
use holdfast_client::{EndReason, Error, ErrorCode, Event, Health};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A server, and clients that are independent of its runtime.
fn with_server(test: impl FnOnce(&str)) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(Node::start());
    test(&node.url);
    runtime.block_on(node.end());
}

/// Returns once a lock has a waiter.
fn someone_waits(url: &str, name: &str) {
    let until = Instant::now() + LONG;
    let server = url.strip_prefix("http://").unwrap();
    loop {
        let mut stream = TcpStream::connect(server).unwrap();
        write!(
            stream,
            "GET /v1/lock?name={name} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut lock = String::new();
        stream.read_to_string(&mut lock).unwrap();
        if lock.contains("\"waiting\":1") {
            return;
        }
        assert!(Instant::now() < until, "nobody waits for {name}: {lock}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn locks_are_acquired_renewed_and_released() {
    with_server(|url| {
        let (ana, bo) = (Client::connect([url]).unwrap(), Client::connect([url]).unwrap());
        let ttl = Duration::from_millis(600);
        let guard = ana.lock("seat").ttl(ttl).label("ana").note("begun").acquire().unwrap();
        // Kept alive by a thread of its own while this one sleeps.
        std::thread::sleep(ttl * 2);
        assert_eq!((guard.is_lost(), guard.health()), (None, Health::Good));
        guard.note(Some(b"half paid")).unwrap();
        let brief = bo.lock("seat").wait(Duration::from_millis(50)).acquire();
        assert!(matches!(brief, Err(Error::NotAcquired(_))), "{brief:?}");
        let waits = std::thread::spawn({
            let bo = bo.clone();
            move || bo.lock("seat").wait(LONG).acquire().unwrap()
        });
        someone_waits(url, "seat");
        guard.release().unwrap();
        let next = waits.join().unwrap();
        assert_eq!(next.ending().unwrap().note.as_deref(), Some(&b"half paid"[..]));

        let inner = bo.lock("seat").reentrant().try_acquire().unwrap();
        assert!(inner.is_none(), "the outer one was not taken so");
        assert_eq!(next.wait_lost(Duration::from_millis(10)), None);
        assert_eq!(next.wait_asked_to_let_go(Duration::ZERO), None);
        // Dropped with its client: everything is released before the thread ends.
        drop((next, bo));
        let mut guard = ana.lock("seat").shared().try_acquire().unwrap().unwrap();
        assert!(!guard.needs_recovery(), "{:?}", guard.ending());
        guard.upgrade(Some(LONG)).unwrap();
        guard.downgrade().unwrap();
        ana.close();
        assert_eq!(guard.wait_lost(LONG), Some(EndReason::Closed));
    });
}

#[test]
fn cycles_are_refused_and_several_names_and_permits_work() {
    with_server(|url| {
        let (ana, bo) = (Client::connect([url]).unwrap(), Client::connect([url]).unwrap());
        let left = ana.lock("left").acquire().unwrap();
        let right = bo.lock("right").acquire().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ana.lock("right").holding(&left).wait(LONG).acquire());
            someone_waits(url, "right");
            match bo.lock("left").holding(&right).acquire() {
                Err(Error::Refused { code, .. }) => assert_eq!(code, ErrorCode::WouldDeadlock),
                other => panic!("{other:?}"),
            }
            right.release().unwrap();
            waits.join().unwrap().unwrap();
        });
        let both = bo.locks(["a", "b"]).acquire().unwrap();
        assert_eq!(both.names().len(), 2);
        let permit = ana.semaphore("pool", 1).acquire().unwrap();
        assert!(bo.semaphore("pool", 1).try_acquire().unwrap().is_none());
        drop(permit);
        bo.semaphore("pool", 1).wait(LONG).acquire().unwrap();
    });
}

#[test]
fn elections_registers_and_watches_work() {
    with_server(|url| {
        let client = Client::connect([url]).unwrap();
        let mut watch = client.watch_prefix("bo").unwrap();
        let election = client.election("boss");
        let mut observer = election.observe().unwrap();
        assert_eq!(observer.next().unwrap(), None);
        let leadership = election.campaign("ana").unwrap();
        let leader = observer.next().unwrap().unwrap();
        assert_eq!(leader.token, leadership.token());
        assert!(matches!(watch.next().unwrap(), Event::Granted { .. }));
        assert_eq!(watch.next_within(Duration::from_millis(10)).unwrap(), None);
        leadership.resign().unwrap();
        assert_eq!(election.leader().unwrap(), None);

        let register = client.register("ledger");
        let guard = client.lock("ledger").acquire().unwrap();
        register.raise(&guard).unwrap();
        register.put("x", &guard).unwrap();
        assert_eq!(register.get().unwrap().value.as_deref(), Some(&b"x"[..]));
        guard.recovered().unwrap();
    });
}
