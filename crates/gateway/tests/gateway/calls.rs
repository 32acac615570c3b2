//! Calls, their deadlines, and what becomes of those that are abandoned.

use crate::bench::{Bench, WAIT, acquire, granted};
use holdfast_core::{Answer, Request, RequestKey, Standing, Wait};
use holdfast_gateway::{Input, Outcome, SubmitError};
use std::time::Duration;

#[test]
fn an_acquire_is_completed_with_its_grant() {
    let mut bench = Bench::new();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(5);
    let completion = bench.completion(call);
    assert!(completion.ticket.is_some(), "only its caller can know of it");
    granted(completion.outcome);
    assert_eq!((bench.gateway.submitted, bench.gateway.answered_after.len()), (1, 1));
}

#[test]
fn what_was_not_sent_in_time_is_withdrawn_and_never_takes_effect() {
    let mut bench = Bench::without_leader();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(9_000);
    assert!(!bench.is_completed(call));
    bench.pass(1_200);
    assert_eq!(bench.outcome(call), Err(SubmitError::Withdrawn));
    bench.lead();
    bench.pass(100);
    assert_eq!(bench.in_line("a"), (0, 0));
}

#[test]
fn what_was_not_sent_when_its_caller_went_away_never_takes_effect() {
    let mut bench = Bench::without_leader();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(10);
    bench.abandon(call);
    bench.pass(10);
    bench.lead();
    bench.pass(100);
    assert_eq!(bench.in_line("a"), (0, 0));
    assert!(!bench.is_completed(call));
}

/// A caller is told that nobody knows. When it is known after all, the lock has no holder who knows of
/// it: it is given back.
#[test]
fn a_ticket_that_is_drawn_after_its_caller_was_told_unknown_is_given_up() {
    let mut bench = Bench::new();
    bench.stalled = Some(Vec::new());
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(10_200);
    assert_eq!(bench.outcome(call), Err(SubmitError::Unknown));
    bench.unstall();
    bench.pass(3_000);
    assert_eq!(bench.in_line("a"), (0, 0));
}

#[test]
fn a_grant_that_was_sent_and_abandoned_is_released() {
    let mut bench = Bench::new();
    bench.stalled = Some(Vec::new());
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(10);
    bench.abandon(call);
    bench.pass(10);
    bench.unstall();
    bench.pass(500);
    assert_eq!(bench.in_line("a"), (0, 0));
    assert!(!bench.is_completed(call));
}

#[test]
fn a_grant_that_can_not_be_delivered_is_released() {
    let mut bench = Bench::new();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(5);
    let ticket = bench.completion(call).ticket;
    assert_eq!(bench.in_line("a"), (1, 0));
    bench.handle(Input::Abandon { call, ticket });
    bench.pass(50);
    assert_eq!(bench.in_line("a"), (0, 0));
}

#[test]
fn the_end_of_an_abandoned_ticket_is_tried_again_while_the_disk_is_full() {
    let mut bench = Bench::new();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(5);
    let ticket = bench.completion(call).ticket;
    bench.disk_full(true);
    bench.handle(Input::Abandon { call, ticket });
    bench.pass(1_000);
    assert_eq!(bench.in_line("a"), (1, 0));
    bench.disk_full(false);
    bench.pass(1_000);
    assert_eq!(bench.in_line("a"), (0, 0));
}

/// Each ticket that could not be given up put off all retries by 200 ms: while some failed every moment, none
/// was ever tried again.
#[test]
fn a_ticket_that_can_not_be_given_up_does_not_put_off_the_others() {
    let mut bench = Bench::new();
    let calls = ["a", "b"].map(|name| bench.submit(acquire(name, Wait::Try)));
    bench.pass(5);
    let [first, second] = calls.map(|call| (call, bench.completion(call).ticket));
    bench.disk_full(true);
    bench.handle(Input::Abandon { call: first.0, ticket: first.1 });
    bench.pass(150);
    bench.handle(Input::Abandon { call: second.0, ticket: second.1 });
    bench.pass(5);
    bench.disk_full(false);
    bench.pass(75);
    assert_eq!(bench.in_line("a"), (0, 0));
}

#[test]
fn with_a_request_id_a_wait_outlives_its_caller() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let call = bench.next_call();
    let request = Some(Request::Alone(RequestKey::parse(b"0123456789abcdef").unwrap()));
    let (command, follow) = (acquire("a", WAIT), None);
    bench.handle(Input::Submit { call, reply_to: call, request, command, wait: true, follow });
    bench.pass(5);
    bench.abandon(call);
    bench.pass(50);
    assert_eq!(bench.in_line("a"), (1, 1));
    bench.release("a", held.token);
    assert_eq!(bench.in_line("a"), (1, 0));
}

#[test]
fn without_waiting_for_its_turn_a_caller_is_told_its_place() {
    let mut bench = Bench::new();
    bench.take("a");
    let call = bench.next_call();
    let (request, command, follow) = (None, acquire("a", WAIT), None);
    bench.handle(Input::Submit { call, reply_to: call, request, command, wait: false, follow });
    bench.pass(5);
    let outcome = bench.outcome(call);
    let Ok(Outcome::Answer(Ok(Answer::Standing(Standing::Waiting { place, .. })))) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(place, Some(1));
}

/// A node stood still, and meanwhile its callers gave up: the requests came in front of the word of
/// that, and were done for nobody.
#[test]
fn after_standing_still_requests_wait_until_it_is_known_who_still_wants_them() {
    let mut bench = Bench::new();
    let pause = bench.gateway.pause(bench.now, &bench.node);
    bench.now += pause + Duration::from_secs(2);
    bench.turn();
    let (gone, there) =
        (bench.submit(acquire("gone", Wait::Try)), bench.submit(acquire("there", Wait::Try)));
    bench.pass(100);
    bench.abandon(gone);
    assert!(!bench.is_completed(there));
    bench.pass(200);
    granted(bench.outcome(there));
    assert_eq!((bench.in_line("gone"), bench.in_line("there")), ((0, 0), (1, 0)));
}

#[test]
fn a_read_is_completed_when_the_state_is_current_or_withdrawn() {
    let mut bench = Bench::new();
    let call = bench.next_call();
    bench.handle(Input::Read { call, reply_to: call });
    bench.pass(50);
    assert_eq!(bench.outcome(call), Ok(Outcome::Current));
    let mut bench = Bench::without_leader();
    let call = bench.next_call();
    bench.handle(Input::Read { call, reply_to: call });
    bench.pass(10_200);
    assert_eq!(bench.outcome(call), Err(SubmitError::Withdrawn));
}
