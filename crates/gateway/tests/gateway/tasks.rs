//! Tasks: how they run, and which one is woken by what.

use crate::bench::{Bench, Script, lock, publish, push};
use holdfast_core::KeyKind;
use holdfast_gateway::Step;
use std::time::Duration;

fn block(names: &[&str]) -> Step {
    let names = names.iter().map(|name| lock(name)).collect();
    Step::Block { names, kind: KeyKind::List }
}

fn names(bench: &mut Bench) -> Vec<&'static str> {
    bench.finished.drain(..).map(|task| task.name).collect()
}

#[test]
fn task_reads_and_submits_until_done() {
    let mut bench = Bench::new();
    bench.start(Script::new("one", [Step::Read, Step::Submit(publish("news", "1"))]), None);
    bench.pass(50);
    let task = bench.finished.pop().unwrap();
    let resumed: Vec<&str> =
        task.resumed.iter().map(|why| why.split(['(', ' ']).next().unwrap()).collect();
    assert_eq!(resumed, ["Started", "Replied", "Replied"]);
    assert!(task.resumed[1].contains("Current") && task.resumed[2].contains("Answer"));
}

#[test]
fn longest_blocked_task_is_woken_first() {
    let mut bench = Bench::new();
    // The first one takes nothing when it is woken, and is blocked again in its old place.
    bench.start(Script::new("first", [block(&["x", "jobs"]), block(&["x", "jobs"])]), None);
    bench.start(Script::new("second", [block(&["jobs"])]), None);
    bench.start(Script::new("third", [block(&["jobs"])]), None);
    bench.pass(5);
    bench.submit(push("jobs"));
    bench.pass(20);
    assert!(names(&mut bench).is_empty());
    bench.submit(push("jobs"));
    bench.pass(20);
    // It ends: an object that is there may be for those behind it.
    assert_eq!(names(&mut bench), ["first", "second", "third"]);
}

#[test]
fn task_is_not_woken_by_another_kind_of_object() {
    let mut bench = Bench::new();
    let names_of = vec![lock("jobs")];
    bench.start(Script::new("hash", [Step::Block { names: names_of, kind: KeyKind::Hash }]), None);
    bench.start(Script::new("list", [block(&["jobs"])]), None);
    bench.submit(push("jobs"));
    bench.pass(20);
    assert_eq!(names(&mut bench), ["list"]);
}

#[test]
fn blocked_task_times_out() {
    let mut bench = Bench::new();
    let block_for = Some(Duration::from_millis(300));
    bench.start(Script::new("soon", [block(&["jobs"])]), block_for);
    bench.start(Script::new("never", [block(&["jobs"])]), None);
    assert_eq!(bench.gateway.next_due(), Some(bench.now + Duration::from_millis(300)));
    bench.pass(299);
    assert!(bench.finished.is_empty());
    bench.pass(1);
    let task = bench.finished.pop().unwrap();
    assert_eq!((task.name, task.resumed[1].as_str()), ("soon", "TimedOut"));
    bench.pass(5_000);
    assert!(bench.finished.is_empty());
}

#[test]
fn abandoned_task_takes_nothing() {
    let mut bench = Bench::new();
    let gone = bench.start(Script::new("gone", [block(&["jobs"])]), None);
    bench.start(Script::new("there", [block(&["jobs"])]), None);
    bench.pass(5);
    bench.abandon(gone);
    bench.submit(push("jobs"));
    bench.pass(20);
    assert_eq!(names(&mut bench), ["there"]);
}

/// A task was woken and its connection closed while its step was in flight: what it would have
/// taken was left there, and nobody else was woken.
#[test]
fn wakeup_of_an_abandoned_task_passes_to_the_next() {
    let mut bench = Bench::new();
    let steps = [block(&["jobs"]), Step::Read];
    let gone = bench.start(Script::new("gone", steps), None);
    bench.start(Script::new("there", [block(&["jobs"])]), None);
    bench.submit(push("jobs"));
    while bench.gateway.next_due() != Some(Duration::ZERO) {
        bench.turn();
    }
    bench.abandon(gone);
    bench.pass(50);
    assert_eq!(names(&mut bench), ["there"]);
}

#[test]
fn unsent_task_is_withdrawn_when_abandoned_or_expired() {
    let mut bench = Bench::without_leader();
    let gone = bench.start(Script::new("gone", [Step::Submit(push("gone"))]), None);
    bench.start(Script::new("late", [Step::Submit(push("late"))]), None);
    bench.pass(10);
    bench.abandon(gone);
    bench.pass(10_200);
    let task = bench.finished.pop().unwrap();
    assert_eq!((task.name, task.resumed[1].as_str()), ("late", "Replied(Withdrawn)"));
    bench.lead();
    bench.pass(50);
    assert!(bench.finished.is_empty());
    assert_eq!(bench.node.state().keys_len(), 0);
}

#[test]
fn sent_task_reports_unknown_after_its_deadline() {
    let mut bench = Bench::new();
    bench.stalled = Some(Vec::new());
    bench.start(Script::new("one", [Step::Submit(push("jobs"))]), None);
    bench.pass(10_200);
    let task = bench.finished.pop().unwrap();
    assert_eq!(task.resumed[1].as_str(), "Replied(Unknown)");
    bench.unstall();
    bench.pass(50);
    assert!(bench.finished.is_empty());
}

#[test]
fn losing_track_wakes_all_blocked_tasks() {
    let mut bench = Bench::new();
    bench.start(Script::new("one", [block(&["jobs"])]), None);
    bench.start(Script::new("two", [block(&["other"])]), None);
    bench.gateway.lost_track(bench.now, &bench.node);
    bench.pass(1);
    assert_eq!(names(&mut bench), ["one", "two"]);
}
