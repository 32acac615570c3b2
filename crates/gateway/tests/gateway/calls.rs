//! Calls, their deadlines, and abandoned calls.

use crate::bench::{Bench, WAIT, acquire, granted};
use holdfast_core::{Answer, RequestKey, RequestRef, TicketStatus, Wait};
use holdfast_gateway::{CallOutcome, Caller, Input, SubmitError};
use std::time::Duration;

#[test]
fn acquire_completes_with_its_grant() {
    let mut bench = Bench::new();
    let call = bench.submit(acquire("a", Wait::Try));
    bench.pass(5);
    let completion = bench.completion(call);
    assert!(completion.ticket.is_some(), "only its caller can know of it");
    granted(completion.outcome);
    assert_eq!((bench.gateway.submitted, bench.gateway.answered_after.len()), (1, 1));
}

#[test]
fn unsent_request_is_withdrawn_at_its_deadline() {
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
fn unsent_request_is_withdrawn_when_its_caller_leaves() {
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

/// The caller got "unknown". If it turns out later that the ticket was drawn, nobody knows of it:
/// it is given up.
#[test]
fn ticket_drawn_after_an_unknown_reply_is_given_up() {
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
fn abandoned_grant_is_released() {
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
fn undeliverable_grant_is_released() {
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
fn ending_an_abandoned_ticket_is_retried_while_the_disk_is_full() {
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

/// Each ticket that could not be given up delayed all retries by 200ms: while some kept failing,
/// none was ever retried.
#[test]
fn one_failing_give_up_does_not_delay_the_others() {
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
fn wait_with_a_request_id_outlives_its_caller() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let call = bench.next_call();
    let request = Some(RequestRef::Alone(RequestKey::parse(b"0123456789abcdef").unwrap()));
    let (command, follow) = (acquire("a", WAIT), None);
    bench.handle(Input::Submit {
        caller: Caller::NODE,
        call,
        reply_to: call,
        request,
        command,
        wait: true,
        follow,
    });
    bench.pass(5);
    bench.abandon(call);
    bench.pass(50);
    assert_eq!(bench.in_line("a"), (1, 1));
    bench.release("a", held.token);
    assert_eq!(bench.in_line("a"), (1, 0));
}

#[test]
fn caller_that_does_not_wait_gets_its_place_in_line() {
    let mut bench = Bench::new();
    bench.take("a");
    let call = bench.next_call();
    let (request, command, follow) = (None, acquire("a", WAIT), None);
    bench.handle(Input::Submit {
        caller: Caller::NODE,
        call,
        reply_to: call,
        request,
        command,
        wait: false,
        follow,
    });
    bench.pass(5);
    let outcome = bench.outcome(call);
    let Ok(CallOutcome::Answer(Ok(Answer::TicketStatus(TicketStatus::Waiting { place, .. })))) =
        outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(place, Some(1));
}

/// A node was paused, and its callers gave up in the meantime: their requests came before the
/// notice of that, and were carried out for nobody.
#[test]
fn requests_are_held_back_after_a_pause() {
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
fn read_completes_when_current_or_withdrawn() {
    let mut bench = Bench::new();
    let call = bench.next_call();
    bench.handle(Input::Read { call, reply_to: call });
    bench.pass(50);
    assert_eq!(bench.outcome(call), Ok(CallOutcome::Current));
    let mut bench = Bench::without_leader();
    let call = bench.next_call();
    bench.handle(Input::Read { call, reply_to: call });
    bench.pass(10_200);
    assert_eq!(bench.outcome(call), Err(SubmitError::Withdrawn));
}
