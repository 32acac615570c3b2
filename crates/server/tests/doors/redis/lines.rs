//! HOLDFAST.ACQUIRE: a place in the line, which ends with its connection.

use super::client;
use super::resp::Redis;
use crate::support::{Node, eventually};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

fn waits(node: &Node, count: u64) {
    eventually("so many wait", || (node.waiting("job") == count).then_some(()));
}

fn owner(redis: &mut Redis) -> String {
    redis.ask("HOLDFAST.OWNERID")
}

/// The token in a grant.
fn token(granted: &str) -> u64 {
    let first = granted.strip_prefix('[').and_then(|rest| rest.split(' ').next());
    first.and_then(|token| token.parse().ok()).unwrap_or_else(|| panic!("no grant: {granted}"))
}

/// The token of the lock's holder, as seen through another door.
fn holder(node: &Node) -> Option<u64> {
    node.get("/v1/lock?name=job").ok()["holders"][0]["token"].as_u64()
}

#[test]
fn wait_is_served_in_order_with_the_previous_ending() {
    let node = Node::start();
    let (mut ana, mut bo, mut cy) = (client(&node), client(&node), client(&node));
    let (of_ana, of_bo, of_cy) = (owner(&mut ana), owner(&mut bo), owner(&mut cy));
    let held = ana.ask(&format!("HOLDFAST.ACQUIRE job {of_ana} TTL 60000"));
    assert_eq!(held, "[1 nil nil nil nil]");
    assert_eq!(cy.ask(&format!("HOLDFAST.ACQUIRE job {of_cy} TTL 60000")), "nil");
    bo.send(&[&format!("HOLDFAST.ACQUIRE job {of_bo} TTL 60000 WAIT 60000")]);
    waits(&node, 1);
    cy.send(&[&format!("HOLDFAST.ACQUIRE job {of_cy} TTL 60000 WAIT 60000")]);
    waits(&node, 2);
    // While someone is waiting, another value is refused, and a release serves the first waiter.
    assert!(ana.ask("SET job other").starts_with("-HELD "));
    assert_eq!(ana.ask(&format!("HOLDFAST.RELEASE job {of_ana} 2")), "0");
    assert_eq!(ana.ask(&format!("HOLDFAST.RELEASE job {of_ana} 1")), "1");
    assert_eq!(bo.receive(), format!("[2 released 1 {of_ana} nil]"));
    assert_eq!(ana.ask("HOLDFAST.TOKEN job"), "2");
    assert_eq!(ana.ask("GET job"), of_bo);
    assert_eq!(bo.ask("DEL job"), "1");
    assert_eq!(cy.receive(), format!("[3 released 2 {of_bo} nil]"));
}

#[test]
fn wait_ends_with_its_connection_or_timeout() {
    let node = Node::start();
    let (mut ana, mut cy) = (client(&node), client(&node));
    assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
    let mut bo = client(&node);
    let (of_bo, of_cy) = (owner(&mut bo), owner(&mut cy));
    bo.send(&[&format!("HOLDFAST.ACQUIRE job {of_bo} TTL 60000 WAIT 60000")]);
    waits(&node, 1);
    drop(bo);
    waits(&node, 0);
    assert_eq!(cy.ask(&format!("HOLDFAST.ACQUIRE job {of_cy} TTL 60000 WAIT 50")), "nil");
    waits(&node, 0);
    assert_eq!(ana.ask("DEL job"), "1");
    assert_eq!(token(&cy.ask(&format!("HOLDFAST.ACQUIRE job {of_cy} TTL 60000"))), 4);
}

/// Clients used to choose their own owner ids, and two with the same constant were both told that
/// they held the lock.
#[test]
fn owner_ids_are_drawn_by_the_server() {
    let node = Node::start();
    let mut redis = client(&node);
    for made_up in ["worker-1", "owner-1", "c0ffee00c0ffee00c0ffee00c0ffee00"] {
        let reply = redis.ask(&format!("HOLDFAST.ACQUIRE job {made_up} TTL 60000"));
        assert!(
            reply.starts_with(&format!("-ERR '{made_up}' is not an owner id: draw")),
            "{reply}"
        );
    }
    assert_ne!(owner(&mut redis), owner(&mut redis));
    assert_eq!(holder(&node), None);
}

/// A connection that asked with an owner id under which another one held the lock was told that it
/// held it too.
#[test]
fn owner_id_never_holds_a_lock_twice() {
    let node = Node::start();
    let (mut ana, mut bo) = (client(&node), client(&node));
    let shared = owner(&mut ana);
    let first = token(&ana.ask(&format!("HOLDFAST.ACQUIRE job {shared} TTL 60000")));
    for wait in ["", " WAIT 60000"] {
        let reply = bo.ask(&format!("HOLDFAST.ACQUIRE job {shared} TTL 60000{wait}"));
        assert!(reply.starts_with("-HELD job is held already by this owner id, with token 1: "));
    }
    assert_eq!(holder(&node), Some(first));
    // A client that lost the answer gets its own ticket by sending RETRY. Only then is the older
    // connection closed, and its lock recorded as taken from it.
    let retry = format!("HOLDFAST.ACQUIRE job {shared} TTL 60000 RETRY");
    assert_eq!(bo.ask(&retry), format!("[2 forced 1 {shared} nil]"));
    assert!(ana.is_closed());
    assert_eq!(holder(&node), Some(2));
    assert_eq!(client(&node).ask(&format!("HOLDFAST.RELEASE job {shared} {first}")), "0");
    assert_eq!(bo.ask(&format!("HOLDFAST.RELEASE job {shared} 2")), "1");
    // A retry that has nothing to end is an acquire like any other, and one that ends the same
    // connection's ticket does not close it.
    assert_eq!(token(&bo.ask(&retry)), 3);
    assert_eq!(token(&bo.ask(&retry)), 4);
    assert_eq!(bo.ask(&format!("HOLDFAST.RELEASE job {shared} 4")), "1");
}

/// Both connections waited for one ticket, and both were told that it was served.
#[test]
fn older_wait_with_the_same_owner_id_is_taken_over() {
    let node = Node::start();
    let (mut ana, mut bo, mut again) = (client(&node), client(&node), client(&node));
    assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
    let of_bo = owner(&mut bo);
    let acquire = format!("HOLDFAST.ACQUIRE job {of_bo} TTL 60000 WAIT 60000");
    bo.send(&[&acquire]);
    waits(&node, 1);
    again.send(&[&acquire]);
    assert!(bo.receive().starts_with("-TAKENOVER this wait for job is over: "));
    waits(&node, 1);
    assert_eq!(ana.ask("DEL job"), "1");
    assert_eq!(Some(token(&again.receive())), holder(&node));
    // The older one stays open, and closing it does not affect the lock.
    assert_eq!(bo.ask("PING"), "PONG");
    drop(bo);
    assert_eq!(again.ask("GET job"), of_bo);
}

/// A client that lost its connection asked again and was given the same ticket. The node then
/// cleaned up after the dead connection: it cancelled that ticket, or released it if it had been
/// served by then, and so took the lock from the client that had just been told that it held it.
#[test]
fn closing_the_older_connection_keeps_the_newer_ones_lock() {
    let node = Node::start();
    for round in 0..100 {
        let mut holder_before = client(&node);
        let of_bo = owner(&mut holder_before);
        assert_eq!(holder_before.ask("SET job ana NX PX 60000"), "OK");
        let acquire = format!("HOLDFAST.ACQUIRE job {of_bo} TTL 60000 WAIT 60000 RETRY");
        let (mut older, mut newer) = (client(&node), client(&node));
        older.send(&[&acquire]);
        waits(&node, 1);
        // The older connection ends, the lock becomes free and the newer one asks, in any order.
        let released = thread::spawn(move || holder_before.ask("DEL job"));
        let pause = Duration::from_micros(round * 20);
        let ended = thread::spawn(move || {
            thread::sleep(pause);
            drop(older);
        });
        let granted = token(&newer.ask(&acquire));
        assert_eq!(released.join().unwrap(), "1");
        ended.join().unwrap();
        // Any remaining cleanup is proposed before these.
        for _ in 0..3 {
            assert_eq!(newer.ask("GET job"), of_bo, "round {round}");
            assert_eq!(holder(&node), Some(granted), "round {round}");
        }
        assert_eq!(newer.ask(&format!("HOLDFAST.RELEASE job {of_bo} {granted}")), "1");
        eventually("the lock is free", || holder(&node).is_none().then_some(()));
    }
}

/// A client far back in a line lost its connection and asked again. Its earlier ticket was only
/// looked for among the first 1,024: it stayed, and both were in line.
#[test]
fn retry_finds_its_ticket_far_back_in_the_line() {
    const IN_FRONT: u64 = 1_100;
    let node = Node::start();
    let mut ana = client(&node);
    assert_eq!(ana.ask("SET job ana NX PX 600000"), "OK");
    let mut line = Vec::new();
    for _ in 0..IN_FRONT {
        let mut waiter = client(&node);
        let mine = owner(&mut waiter);
        waiter.send(&[&format!("HOLDFAST.ACQUIRE job {mine} TTL 60000 WAIT 600000")]);
        line.push(waiter);
    }
    waits(&node, IN_FRONT);
    let (mut older, mut newer) = (client(&node), client(&node));
    let acquire = format!("HOLDFAST.ACQUIRE job {} TTL 60000 WAIT 600000", owner(&mut older));
    older.send(&[&acquire]);
    waits(&node, IN_FRONT + 1);
    newer.send(&[&format!("{acquire} RETRY")]);
    assert!(older.receive().starts_with("-TAKENOVER this wait for job is over: "));
    waits(&node, IN_FRONT + 1);
}

/// A retry whose ticket was served, but ended by a late request of the same owner before the client
/// was told, got nil as if it had waited in vain.
#[test]
fn a_retry_that_is_taken_over_is_never_told_that_its_time_is_over() {
    let node = Node::start();
    for round in 0..200 {
        let (mut ana, mut bo, mut again) = (client(&node), client(&node), client(&node));
        let of_bo = owner(&mut bo);
        assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
        let acquire = format!("HOLDFAST.ACQUIRE job {of_bo} TTL 60000 WAIT 60000 RETRY");
        bo.send(&[&acquire]);
        waits(&node, 1);
        ana.send(&["DEL job"]);
        thread::sleep(Duration::from_micros(round * 5));
        again.send(&[&acquire]);
        // Its connection may also be closed before the grant is sent.
        if let Ok(reply) = bo.try_receive().map(|reply| reply.to_string()) {
            assert!(reply.starts_with('[') || reply.starts_with("-TAKENOVER "), "{round}: {reply}");
        }
        assert_eq!(Some(token(&again.receive())), holder(&node), "{round}");
        assert_eq!(ana.receive(), "1");
        assert_eq!(again.ask("DEL job"), "1");
    }
}

/// Clients lose their connections at any moment and ask again, at the same time as others. A client
/// that has been told that it holds the lock holds it until it releases it.
#[test]
fn lost_connections_take_no_locks() {
    let node = Node::start();
    let believes = Mutex::new(None::<usize>);
    thread::scope(|scope| {
        for me in 0..4 {
            let (node, believes) = (&node, &believes);
            scope.spawn(move || {
                for round in 0..12_u64 {
                    let mut redis = client(node);
                    let mine = owner(&mut redis);
                    let acquire = format!("HOLDFAST.ACQUIRE job {mine} TTL 60000 WAIT 60000");
                    redis.send(&[&acquire]);
                    let mut older = Vec::new();
                    for lost in 0..(round + me as u64) % 4 {
                        thread::sleep(Duration::from_micros((round * 37 + lost * 501) % 3_000));
                        if lost > 0 {
                            // A retry that arrived after the next one would take the lock from it:
                            // this one has arrived, and its reply is lost.
                            redis.receive();
                        }
                        let mut again = client(node);
                        again.send(&[&format!("{acquire} RETRY")]);
                        let before = std::mem::replace(&mut redis, again);
                        // Some are closed; the server does not know that the others are dead.
                        if round % 2 == 0 {
                            older.push(before);
                        }
                    }
                    let mut reply = redis.receive();
                    // A request that was sent earlier may arrive later.
                    while reply.starts_with("-TAKENOVER") {
                        older.push(std::mem::replace(&mut redis, client(node)));
                        reply = redis.ask(&format!("{acquire} RETRY"));
                    }
                    let granted = token(&reply);
                    assert_eq!(believes.lock().unwrap().replace(me), None);
                    if round % 3 == 0 {
                        redis = client(node);
                    }
                    drop(older);
                    let renew = format!("HOLDFAST.RENEW job {mine} {granted} TTL 60000");
                    assert_eq!(redis.ask(&renew), "1");
                    assert_eq!(holder(node), Some(granted));
                    assert_eq!(believes.lock().unwrap().take(), Some(me));
                    let release = format!("HOLDFAST.RELEASE job {mine} {granted}");
                    assert_eq!(redis.ask(&release), "1");
                }
            });
        }
    });
    waits(&node, 0);
    assert_eq!(holder(&node), None);
}

/// `HOLDFAST.TOKEN` behind a `SET` in the same pipeline, transaction or script replied nil for a
/// lock that was held: the ticket had not been drawn when the reply was made. It also did so after
/// a renewal, and a holder believed that it had lost its lock.
#[test]
fn token_after_a_pipelined_set_is_never_nil() {
    let node = Node::start();
    let mut redis = client(&node);
    redis.send(&[
        "SET a x NX PX 60000",
        "HOLDFAST.TOKEN a",
        "SET a x XX PX 60000",
        "HOLDFAST.TOKEN a",
    ]);
    let reply: Vec<String> = (0..4).map(|_| redis.receive()).collect();
    assert_eq!(reply, ["OK", "1", "OK", "1"]);
    // A renewal keeps the ticket within a transaction, too.
    redis.send(&["MULTI", "SET a x XX PX 60000", "HOLDFAST.TOKEN a", "EXEC"]);
    let reply: Vec<String> = (0..4).map(|_| redis.receive()).collect();
    assert_eq!(reply[3], "[OK 1]", "{reply:?}");
    // A ticket that is drawn when the transaction is applied has no number before that.
    redis.send(&["MULTI", "SET b x NX PX 60000", "HOLDFAST.TOKEN b", "EXEC"]);
    let reply: Vec<String> = (0..4).map(|_| redis.receive()).collect();
    assert!(reply[3].starts_with("[OK -ERR the token of a key that is set"), "{reply:?}");
    assert_eq!(redis.ask("HOLDFAST.TOKEN b"), "2");
    let script = "redis.call('set', KEYS[1], 'x', 'NX', 'PX', 60000) \
                  return redis.pcall('HOLDFAST.TOKEN', KEYS[1])";
    let reply = redis.ask_words(&["EVAL", script, "1", "c"]);
    assert!(reply.starts_with("-ERR the token of a key that is set"), "{reply}");
    assert_eq!(redis.ask("HOLDFAST.TOKEN c"), "3");
    redis.send(&["DEL a", "HOLDFAST.TOKEN a"]);
    assert_eq!([redis.receive(), redis.receive()], ["1", "nil"]);
}
