//! Authentication with AUTH or HELLO.

use super::client;
use crate::support::Node;

const NO_AUTH: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn commands_before_the_password_are_refused() {
    let node = Node::start_with(Some("sesame"));
    let mut redis = client(&node);
    redis.send(&["GET a", "EVAL return(1) 0", "AUTH wrong", "AUTH ana sesame", "PING"]);
    for expected in [NO_AUTH, NO_AUTH, WRONG, WRONG, NO_AUTH] {
        assert_eq!(redis.receive(), expected);
    }
    assert_eq!(redis.ask("AUTH sesame"), "OK");
    assert_eq!(redis.ask("SET a 1"), "OK");
    let mut other = client(&node);
    assert!(other.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(other.ask("HELLO 3 AUTH default wrong"), WRONG);
    assert!(other.ask("HELLO 3 AUTH default sesame SETNAME ana").contains("proto 3"));
    assert_eq!(other.ask("GET nothing"), "nil");
    assert!(other.ask("CLIENT LIST").contains("name=ana db=0"));
    assert_eq!(other.ask("RESET"), "RESET");
    assert_eq!(other.ask("GET a"), NO_AUTH);
}

#[test]
fn only_small_frames_are_accepted_before_the_password() {
    let node = Node::start_with(Some("sesame"));
    let mut redis = client(&node);
    redis.raw(b"*2\r\n$4\r\nECHO\r\n$20000\r\n");
    assert_eq!(redis.receive(), "-ERR Protocol error: unauthenticated bulk length");
    assert!(redis.is_closed());
    let mut redis = client(&node);
    redis.raw(b"*11\r\n");
    assert_eq!(redis.receive(), "-ERR Protocol error: unauthenticated multibulk length");
    assert!(redis.is_closed());
}

#[test]
fn no_password_is_needed_if_none_is_set() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("AUTH default anything"), "OK");
    assert!(redis.ask("AUTH anything").starts_with("-ERR AUTH <password> called without any"));
    assert_eq!(redis.ask("GET a"), "nil");
}
