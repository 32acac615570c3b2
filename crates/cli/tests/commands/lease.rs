//! What happens to a command when its lease can't be kept.

use crate::cli::{Shell, dies, kill, lives};
use crate::support::eventually;
use rustix::process::Signal;

/// Writes its process and its parent's, and goes on until it is told to stop, or the test is over.
const WORK: &str =
    "echo $PPID > guard; echo $$ > work; while [ -e work -a ! -e stop ]; do sleep 0.05; done";

/// Says whether the worker still lives, and what is known of it.
const NEXT: &str = "if kill -0 $(cat work) 2> /dev/null; then echo alive; else echo dead; fi; \
     echo $HOLDFAST_ENDED, token $HOLDFAST_ENDED_TOKEN, $HOLDFAST_ENDED_NOTE";

/// Would fail if a command outlived the lease of a wrapper that is stopped: the next holder's
/// command looks for it, and it must be dead.
#[test]
fn a_stopped_wrapper_loses_its_command_before_the_next_holder_starts() {
    let shell = Shell::with_nodes(1);
    let stopped = shell.lock("job --ttl 3s --note paid", WORK);
    shell.read("work");
    let next = shell.lock("job --ttl 3s", NEXT);
    shell.waiting("job", 1);
    stopped.signal(Signal::STOP);
    let next = next.ended();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "dead\nexpired, token 1, paid\n"));
    assert!(next.err.contains("expired") && next.err.contains("paid"), "{next:?}");
    stopped.signal(Signal::CONT);
    let stopped = stopped.ended();
    assert_eq!(stopped.code, Some(76), "{stopped:?}");
    assert!(stopped.err.contains("lost job"), "{stopped:?}");
}

/// Would fail if a command outlived its killed wrapper, or if the next holder were not told.
#[test]
fn a_killed_wrapper_takes_its_command_with_it() {
    let shell = Shell::with_nodes(1);
    let killed = shell.lock("job --ttl 3s --note paid", WORK);
    let work = shell.read_pid("work");
    let next = shell.lock("job --ttl 3s", NEXT);
    shell.waiting("job", 1);
    killed.signal(Signal::KILL);
    dies(work);
    let held = shell.json(["show", "job", "--json"]);
    assert_eq!(held["holding"], 1, "the lease of a killed wrapper was not kept: {held}");
    let next = next.ended();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "dead\nexpired, token 1, paid\n"));
}

/// Would fail if a command went on when nobody guards it.
#[test]
fn a_killed_guard_takes_the_command_with_it() {
    let shell = Shell::with_nodes(1);
    let wrapper = shell.lock("job --ttl 3s", WORK);
    let work = shell.read_pid("work");
    kill(shell.read_pid("guard"), Signal::KILL);
    let said = wrapper.ended();
    assert!(!lives(work));
    assert_eq!(said.code, Some(76), "{said:?}");
    assert!(said.err.contains("guard"), "{said:?}");
}

/// Would fail if a command went on whose guard dies before it could say which process it started
/// (on one core many of these commands run before their guards do), or if the wrapper waited for
/// ever for one whose guard dies just after (on two cores that is about every second one).
#[test]
fn a_guard_killed_at_once_takes_the_command_with_it() {
    let shell = Shell::with_nodes(1);
    let script = "kill -KILL $PPID; sleep 0.5; echo late >> late";
    let wrappers = (0..20).map(|at| shell.pinned_lock(&format!("job-{at} --ttl 3s"), script));
    for wrapper in wrappers.collect::<Vec<_>>() {
        assert_eq!(wrapper.ended().code, Some(76));
    }
    for at in 20..40 {
        assert_eq!(shell.lock(&format!("job-{at} --ttl 3s"), script).ended().code, Some(76));
    }
    assert!(!shell.file("late").exists(), "a command outlived its guard");
}

/// Would fail if a command that does not listen to SIGTERM outlived the lease, or if one that does
/// had no time for its last words.
#[test]
fn a_command_is_asked_before_it_is_killed() {
    let shell = Shell::with_nodes(1);
    let deaf = "trap '' TERM; echo $$ > deaf; while :; do sleep 0.05; done";
    let polite =
        "trap 'echo bye > bye; exit 0' TERM; echo $$ > polite; while :; do sleep 0.05; done";
    let wrappers = [shell.lock("a --ttl 3s", deaf), shell.lock("b --ttl 5s", polite)];
    let commands = ["deaf", "polite"].map(|name| shell.read_pid(name));
    wrappers.iter().for_each(|wrapper| wrapper.signal(Signal::STOP));
    commands.into_iter().for_each(dies);
    assert_eq!(shell.read("bye"), "bye\n");
    for wrapper in wrappers {
        wrapper.signal(Signal::CONT);
        assert_eq!(wrapper.ended().code, Some(76));
    }
}

/// Would fail if the wrapper gave up its command when the leader goes: it must be renewed by the
/// next one, for longer than the lease it had.
#[test]
fn a_command_lives_through_the_death_of_the_leader() {
    let mut shell = Shell::with_nodes(3);
    let wrapper = shell
        .lock("job --ttl 10s", "echo $$ > work; until [ -e stop ]; do sleep 0.05; done; exit 7");
    let work = shell.read_pid("work");
    let leader = shell.cluster.leader();
    shell.cluster.nodes[leader].kill();
    let after = shell.cluster.leader();
    assert_ne!(leader, after);
    let port = shell.cluster.nodes[after].port;
    eventually("the lease is renewed by the new leader, again and again", || {
        assert!(lives(work), "the command was ended");
        let lock = shell.cluster.http.get_ok(port, "/v1/lock?name=job");
        assert_eq!(lock["holders"][0]["token"], 1, "{lock}");
        (lock["holders"][0]["for_ms"].as_u64() > Some(15_000)).then_some(())
    });
    shell.touch("stop");
    assert_eq!(wrapper.ended().code, Some(7));
}

/// Would fail if a lost election ended the candidate.
#[test]
fn who_stands_for_election_stands_again() {
    let shell = Shell::with_nodes(1);
    let script = "echo $HOLDFAST_TOKEN >> terms; echo $$ > work-$HOLDFAST_TOKEN; \
                  until [ -e stop ]; do sleep 0.05; done";
    let candidate = shell.lock("leader --ttl 3s --elect", script);
    let first = shell.read_pid("work-1");
    candidate.signal(Signal::STOP);
    dies(first);
    candidate.signal(Signal::CONT);
    shell.read("work-2");
    shell.touch("stop");
    assert_eq!(candidate.ended().code, Some(0));
    assert_eq!(shell.read("terms"), "1\n2\n");
}

/// Would fail if an operator's word did not reach the command.
#[test]
fn a_holder_is_asked_to_let_go_and_a_broken_one_is_ended() {
    let shell = Shell::with_nodes(1);
    let asked =
        shell.lock("asked", "trap 'exit 9' TERM; echo $$ > asked; while :; do sleep 0.05; done");
    shell.read("asked");
    let revoke = shell.run(["revoke", "asked", "--reason", "going down", "--by", "op"]);
    assert_eq!(revoke.code, Some(0), "{revoke:?}");
    let asked = asked.ended();
    assert_eq!(asked.code, Some(9));
    assert!(asked.err.contains("op asks to let go of asked") && asked.err.contains("going down"));

    let broken = shell.lock("broken", WORK);
    let work = shell.read_pid("work");
    let broke = shell.run(["break", "broken", "--reason", "burnt down"]);
    assert_eq!(broke.code, Some(0), "{broke:?}");
    dies(work);
    assert_eq!(broken.ended().code, Some(76));
    let next = shell.lock("broken", "echo $HOLDFAST_ENDED $HOLDFAST_NEEDS_RECOVERY").ended();
    assert_eq!(next.out, "forced 1\n");
}
