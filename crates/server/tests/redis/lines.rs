//! HOLDFAST.ACQUIRE: a place in the line, given up with its connection.

use crate::client;
use crate::support::{Node, eventually};

fn waits(node: &Node, count: u64) {
    eventually("so many wait", || (node.waiting("job") == count).then_some(()));
}

#[test]
fn a_wait_is_served_in_its_turn_and_hears_how_the_one_before_ended() {
    let node = Node::start();
    let (mut ana, mut bo, mut cy) = (client(&node), client(&node), client(&node));
    let held = ana.ask("HOLDFAST.ACQUIRE job ana TTL 60000");
    assert_eq!(held, "[1 nil nil nil nil]");
    // Asked again, it is the same ticket.
    assert_eq!(client(&node).ask("HOLDFAST.ACQUIRE job ana TTL 60000"), held);
    assert_eq!(cy.ask("HOLDFAST.ACQUIRE job cy TTL 60000"), "nil");
    bo.send(&["HOLDFAST.ACQUIRE job bo TTL 60000 WAIT 60000"]);
    waits(&node, 1);
    cy.send(&["HOLDFAST.ACQUIRE job cy TTL 60000 WAIT 60000"]);
    waits(&node, 2);
    // While somebody waits, another value is refused, and a release serves the first.
    assert!(ana.ask("SET job other").starts_with("-HELD "));
    assert_eq!(ana.ask("HOLDFAST.RELEASE job ana 2"), "0");
    assert_eq!(ana.ask("HOLDFAST.RELEASE job ana 1"), "1");
    assert_eq!(bo.hear(), "[2 released 1 ana nil]");
    assert_eq!(ana.ask("HOLDFAST.TOKEN job"), "2");
    assert_eq!(ana.ask("GET job"), "bo");
    assert_eq!(bo.ask("DEL job"), "1");
    assert_eq!(cy.hear(), "[3 released 2 bo nil]");
}

#[test]
fn a_wait_goes_with_its_connection_or_its_time() {
    let node = Node::start();
    let (mut ana, mut cy) = (client(&node), client(&node));
    assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
    let mut bo = client(&node);
    bo.send(&["HOLDFAST.ACQUIRE job bo TTL 60000 WAIT 60000"]);
    waits(&node, 1);
    drop(bo);
    waits(&node, 0);
    assert_eq!(cy.ask("HOLDFAST.ACQUIRE job cy TTL 60000 WAIT 50"), "nil");
    waits(&node, 0);
    assert_eq!(ana.ask("DEL job"), "1");
    assert!(cy.ask("HOLDFAST.ACQUIRE job cy TTL 60000").starts_with("[4 "));
}

/// A second connection with the same name and label finds the ticket that waits.
#[test]
fn who_asks_again_keeps_its_place() {
    let node = Node::start();
    let (mut ana, mut bo, mut again) = (client(&node), client(&node), client(&node));
    assert_eq!(ana.ask("SET job ana NX PX 60000"), "OK");
    bo.send(&["HOLDFAST.ACQUIRE job bo TTL 60000 WAIT 60000"]);
    waits(&node, 1);
    again.send(&["HOLDFAST.ACQUIRE job bo TTL 60000 WAIT 60000"]);
    // Nothing else tells that it has arrived; if it has not, it finds the lock held, with the same
    // reply but for the ending.
    assert_eq!(ana.ask("DEL job"), "1");
    assert!(bo.hear().starts_with("[2 "));
    assert!(again.hear().starts_with("[2 "));
    waits(&node, 0);
}
