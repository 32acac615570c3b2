//! Clients that take more than their share.

use super::client;
use super::resp::{Redis, RedisReply};
use crate::support::Node;
use std::io::ErrorKind;

/// Its replies are not buffered without a bound: its requests are not read until it reads.
#[test]
fn slow_reader_does_not_block_the_others() {
    let node = Node::start();
    let mut greedy = client(&node);
    let long = "x".repeat(4_000);
    assert_eq!(greedy.ask_words(&["SET", "long", &long]), "OK");
    let count = 20_000;
    std::thread::scope(|scope| {
        let mut writes = client(&node);
        let (begun, begins) = std::sync::mpsc::channel();
        let sends = scope.spawn(move || {
            for at in 0..count {
                writes.send(&["GET long"]);
                if at == 1_000 {
                    begun.send(()).unwrap();
                }
                if at % 1_000 == 999 {
                    // Now and then it reads after all, so that it can continue writing.
                    for _ in 0..1_000 {
                        assert_eq!(writes.receive().len(), 4_000);
                    }
                }
            }
        });
        begins.recv().unwrap();
        let mut other = client(&node);
        for at in 0..100 {
            assert_eq!(other.ask(&format!("SET mine {at}")), "OK");
        }
        sends.join().unwrap();
    });
}

#[test]
fn subscriptions_per_connection_are_bounded() {
    let node = Node::start();
    let mut redis = client(&node);
    assert!(redis.ask("HELLO 3").contains("proto"));
    let names: Vec<String> = (0..1_024).map(|at| format!("channel-{at}")).collect();
    redis.send(&[&format!("SUBSCRIBE {}", names.join(" "))]);
    for at in 1..=1_024 {
        assert!(redis.receive().ends_with(&format!(" {at}]")));
    }
    assert_eq!(redis.ask("SUBSCRIBE more"), "-ERR too many subscriptions on one connection");
    assert_eq!(redis.ask("PING"), "PONG");
}

#[test]
fn oversized_transaction_is_refused_and_the_connection_stays() {
    let node = Node::start();
    let mut redis = client(&node);
    let keys: Vec<String> = (0..600).map(|at| format!("k{at} v")).collect();
    assert!(redis.ask(&format!("MSET {}", keys.join(" "))).starts_with("-ERR"));
    assert_eq!(redis.ask("EXISTS k0"), "0");
    assert_eq!(redis.ask("PING"), "PONG");
}

/// Unfinished requests were kept without a bound: 2,500 connections with 853 KB each of an `MGET`
/// took 2,950 MB. All connections together now have 256 MiB, and clients that need little do not
/// notice when others have used it up.
#[test]
fn unfinished_requests_are_bounded_in_total() {
    let node = Node::start();
    let word = "k".repeat(500);
    let argument = format!("$500\r\n{word}\r\n");
    let half = format!("*2000\r\n$4\r\nMGET\r\n{}", argument.repeat(1_900));
    let mut small = client(&node);
    let mut refused = 0;
    let mut open: Vec<Redis> = Vec::new();
    for _ in 0..400 {
        let mut greedy = client(&node);
        if greedy.try_raw(half.as_bytes()).is_err() {
            refused += 1;
            break;
        }
        open.push(greedy);
        assert_eq!(small.ask("SET small 1"), "OK");
    }
    for greedy in &mut open {
        match greedy.receive_now() {
            Ok(RedisReply::Error(error)) if error.starts_with("ERR too much is kept") => {
                refused += 1
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => refused += 1,
            Ok(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0, "all {} are kept", open.len());
    assert_eq!(small.ask("SET small 2"), "OK");
    // Once they are gone, there is room again.
    drop(open);
    let rest = argument.repeat(99);
    let mut whole = client(&node);
    crate::support::eventually("there is room", || {
        if whole.try_raw(format!("{half}{rest}").as_bytes()).is_ok()
            && let Ok(RedisReply::List(_)) = whole.try_receive()
        {
            return Some(());
        }
        whole = client(&node);
        None
    });
}

/// What is kept from one request to the next is bounded for each connection.
#[test]
fn channel_and_connection_names_are_bounded() {
    let node = Node::start();
    let mut redis = client(&node);
    let long = "x".repeat(513);
    for command in ["SUBSCRIBE", "PSUBSCRIBE"] {
        let reply = redis.ask(&format!("{command} fine {long}"));
        assert!(reply.starts_with("-ERR this channel can't be used here"), "{reply}");
    }
    assert!(redis.ask(&format!("CLIENT SETNAME {long}")).starts_with("-ERR Client names"));
    assert!(redis.ask(&format!("HELLO 3 SETNAME {long}")).starts_with("-ERR Client names"));
    assert_eq!(redis.ask("CLIENT GETNAME"), "nil");
}

/// A transaction's replies are collected before any is sent: 1,000 times a hash of 200 KB took
/// hundreds of megabytes for each connection that asked.
#[test]
fn transaction_replies_are_bounded() {
    let node = Node::start();
    let mut redis = client(&node);
    let value = "v".repeat(60_000);
    let words = ["HSET", "h", "a", &value, "b", &value, "c", &value, "d", &value];
    assert_eq!(redis.ask_words(&words), "4");
    assert_eq!(redis.ask("MULTI"), "OK");
    for _ in 0..400 {
        assert_eq!(redis.ask("HGETALL h"), "QUEUED");
    }
    assert!(redis.ask("EXEC").starts_with("-ERR too many bytes in the replies"));
    // In a pipeline each one is sent separately.
    redis.send(&["HGETALL h"; 40]);
    for _ in 0..40 {
        assert!(redis.receive().len() > 200_000);
    }
}

/// What a script had written was kept without a bound until its end.
#[test]
fn script_writes_are_bounded_while_running() {
    let node = Node::start();
    let mut redis = client(&node);
    let script = "local value, refused = string.rep('x', 60000), 0 \
                  for at = 1, 200 do \
                    local key = KEYS[at] \
                    local reply = redis.pcall('hset', key, 'a', value, 'b', value, 'c', value) \
                    if type(reply) == 'table' then refused = refused + 1 end \
                  end \
                  for at = 1, 200 do redis.call('del', KEYS[at]) end \
                  return refused";
    let keys: Vec<String> = (0..200).map(|at| format!("k{at}")).collect();
    let mut words = vec!["EVAL", script, "200"];
    words.extend(keys.iter().map(String::as_str));
    let refused: usize = redis.ask_words(&words).parse().unwrap();
    assert!(refused > 100, "{refused}");
}

/// The replies of all scripts in a pipeline were collected before the first one was written: 4 KB
/// of requests took gigabytes. Now the next script waits until the previous reply is written.
#[test]
fn pipelined_script_replies_are_written_one_by_one() {
    let node = Node::start();
    let (mut greedy, mut other) = (client(&node), client(&node));
    let script = "redis.call('incr', KEYS[1]) \
                  local s = string.rep('x', 4000000) return {s, s, s, s}";
    for _ in 0..20 {
        greedy.send_words(&["EVAL", script, "1", "ran"]);
    }
    // It does not read: writing to it stops at the second reply, if not at the first.
    let ran = |redis: &mut Redis| redis.ask("GET ran").parse::<u32>().unwrap_or(0);
    crate::support::eventually("the first runs", || (ran(&mut other) > 0).then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let count = ran(&mut other);
    assert!(count <= 3, "{count} scripts ran");
    // Once it reads, the others run.
    for _ in 0..20 {
        let reply = greedy.receive();
        assert!(reply.len() > 16_000_000, "{reply}");
    }
    assert_eq!(ran(&mut other), 20);
}
