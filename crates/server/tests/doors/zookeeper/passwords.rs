//! Authentication with the server's password, by the scheme `digest`.

use super::client::word;
use super::{client, port};
use crate::support::Node;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::Request;

#[test]
fn commands_before_the_password_are_refused() {
    let node = Node::start_with(Some("sesame"));
    let mut zk = client(&node);
    assert_eq!(zk.get("/", false), Err(Code::NoAuth));
    assert_eq!(zk.create("/a", holdfast_core::NodeKind::Persistent, false), Err(Code::NoAuth));
    // Other users may be shown as well, before or after: access control lists need them.
    zk.auth("ana:secret").unwrap();
    assert_eq!(zk.get("/", false), Err(Code::NoAuth));
    zk.auth("holdfast:sesame").unwrap();
    zk.make("/a");
    zk.ping().unwrap();
}

#[test]
fn a_wrong_password_ends_the_connection() {
    let node = Node::start_with(Some("sesame"));
    for wrong in ["holdfast:wrong", "holdfast:", "holdfast"] {
        let mut zk = client(&node);
        assert_eq!(zk.auth(wrong), Err(Code::AuthFailed), "{wrong}");
        assert!(zk.is_closed());
    }
}

/// A session's own password is not enough: it says nothing about what its client may do.
#[test]
fn every_connection_of_a_session_needs_the_password() {
    let node = Node::start_with(Some("sesame"));
    let mut zk = client(&node);
    zk.auth("holdfast:sesame").unwrap();
    zk.make("/a");
    zk.hang_up();
    assert!(zk.attach(port(&node)).unwrap());
    assert_eq!(zk.get("/a", false), Err(Code::NoAuth));
    zk.auth("holdfast:sesame").unwrap();
    zk.get("/a", false).unwrap();
}

/// The pings of a client that had not authenticated yet were not answered: whoever typed `addauth` by
/// hand lost the session after every timeout.
#[test]
fn pings_are_answered_before_the_password() {
    let node = Node::start_with(Some("sesame"));
    let mut zk = client(&node);
    zk.ping().unwrap();
    assert_eq!(zk.get("/", false), Err(Code::NoAuth));
    zk.ping().unwrap();
    zk.auth("holdfast:sesame").unwrap();
    zk.get("/", false).unwrap();
}

#[test]
fn a_client_without_the_password_may_close_its_session() {
    let node = Node::start_with(Some("sesame"));
    let mut zk = client(&node);
    zk.ask(&Request::CloseSession).unwrap();
    assert!(zk.is_closed());
}

#[test]
fn only_words_for_health_checks_are_answered_without_the_password() {
    let node = Node::start_with(Some("sesame"));
    assert_eq!(word(port(&node), "ruok"), "imok");
    assert_eq!(word(port(&node), "isro"), "rw");
    for other in ["stat", "srvr", "mntr", "cons", "envi"] {
        let said = word(port(&node), other);
        assert_eq!(said, format!("{other} is not executed because it is not in the whitelist.\n"));
    }
}
