//! Waits: which one is served, and abandoned waits.

use crate::bench::{Bench, WAIT, acquire, granted};
use holdfast_core::{EndReason, Lease, TicketStatus, Wait};
use holdfast_gateway::{
    AcquireStep, ApiError, CallOutcome, Code, PendingAcquire, SubmitError, lasts_of,
};
use std::time::Duration;

#[test]
fn wait_completes_when_granted() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let call = bench.submit(acquire("a", WAIT));
    bench.pass(50);
    assert!(!bench.is_completed(call));
    bench.release("a", held.token);
    bench.pass(10);
    let completion = bench.completion(call);
    assert!(completion.ticket.is_some(), "only its caller can know of it");
    let grant = granted(completion.outcome);
    assert!(grant.token > held.token);
    // Confirmed in the log: from now on it has its own deadline.
    assert_eq!(grant.lease, Lease::Deadline { ttl_ms: 60_000 });
}

/// A grant must not reach its caller before its deadline counts in the log: if this process ended
/// now, the lock would end with its session, although the caller was told that it holds it.
#[test]
fn grant_is_reported_only_once_confirmed() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let call = bench.submit(acquire("a", WAIT));
    bench.pass(5);
    // The release is applied, the confirmation after it is not.
    bench.stall_after_next_write();
    let target = holdfast_core::Target { name: crate::bench::lock("a"), token: Some(held.token) };
    let proof = holdfast_core::Proof::Secret(crate::bench::SECRET);
    bench.submit(holdfast_core::Command::Release { target, proof });
    bench.pass(300);
    assert_eq!(bench.in_line("a"), (1, 0));
    assert!(!bench.is_completed(call));
    bench.unstall();
    bench.pass(50);
    granted(bench.outcome(call));
}

#[test]
fn abandoned_wait_leaves_the_line() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let (first, second) = (bench.submit(acquire("a", WAIT)), bench.submit(acquire("a", WAIT)));
    bench.pass(5);
    assert_eq!(bench.in_line("a"), (1, 2));
    bench.abandon(first);
    bench.pass(5);
    assert_eq!(bench.in_line("a"), (1, 1));
    bench.release("a", held.token);
    bench.pass(5);
    granted(bench.outcome(second));
    assert!(!bench.is_completed(first));
}

/// It was served before the notice that nobody waits any more.
#[test]
fn wait_abandoned_as_it_is_granted_is_released() {
    let mut bench = Bench::new();
    let held = bench.take("a");
    let call = bench.submit(acquire("a", WAIT));
    bench.pass(5);
    bench.stalled = Some(Vec::new());
    let target = holdfast_core::Target { name: crate::bench::lock("a"), token: Some(held.token) };
    let proof = holdfast_core::Proof::Secret(crate::bench::SECRET);
    bench.submit(holdfast_core::Command::Release { target, proof });
    bench.pass(5);
    // The cancel comes after the release that serves it.
    bench.abandon(call);
    bench.pass(5);
    bench.unstall();
    bench.pass(1_000);
    assert_eq!(bench.in_line("a"), (0, 0));
    assert!(!bench.is_completed(call));
}

#[test]
fn ended_wait_reports_why() {
    let mut bench = Bench::new();
    bench.take("a");
    let call = bench.submit(acquire("a", Wait::For { ms: 300 }));
    bench.pass(2_000);
    let completion = bench.completion(call);
    assert!(completion.ticket.is_none(), "there is nothing to give up");
    let Ok(CallOutcome::Ended(ended)) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!((ended.how, ended.held), (EndReason::TimedOut, false));
}

#[test]
fn losing_track_ends_waits_and_gives_up_their_tickets() {
    let mut bench = Bench::new();
    bench.take("a");
    let call = bench.submit(acquire("a", WAIT));
    bench.pass(5);
    bench.gateway.lost_track(bench.now, &bench.node);
    bench.pass(50);
    assert_eq!(bench.outcome(call), Err(SubmitError::Unknown));
    assert_eq!(bench.in_line("a"), (1, 0));
}

fn result(step: AcquireStep) -> Result<TicketStatus, ApiError> {
    match step {
        AcquireStep::Done(result) => *result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn possibly_expired_grant_is_checked_again() {
    let mut bench = Bench::new();
    let grant = bench.take("a");
    let second = Duration::from_secs(1);
    let served = || CallOutcome::Served(Box::new(grant.clone()));
    let fresh = PendingAcquire::new(second, false).completed(served(), second * 5);
    assert!(matches!(result(fresh), Ok(TicketStatus::Held(_))));
    // It may have been ended by somebody else.
    let mut pending_acquire = PendingAcquire::new(second, false);
    let AcquireStep::Read(token) = pending_acquire.completed(served(), second * 7) else {
        panic!()
    };
    let seen = lasts_of(bench.node.state(), token);
    assert!(seen.1 > second * 50, "{seen:?}");
    assert!(matches!(
        result(pending_acquire.read(Some(seen), second * 8)),
        Ok(TicketStatus::Held(_))
    ));
    // A node that stalls again and again can't tell.
    let mut pending_acquire = PendingAcquire::new(Duration::ZERO, false);
    let mut step = pending_acquire.completed(served(), second * 100);
    for look in 2_u32.. {
        let AcquireStep::Read(token) = step else { break };
        assert!(look < 10, "forever");
        step = pending_acquire.read(Some(lasts_of(bench.node.state(), token)), second * 100 * look);
    }
    assert_eq!(result(step).unwrap_err().code, Code::Unknown);
}
