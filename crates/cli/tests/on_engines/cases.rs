//! What `holdfast lock --on` must do on every engine.

use crate::cli::{descendants, dies, kill, lives, parent};
use crate::engine::unique;
use crate::subject::Subject;
use crate::support::eventually;
use rustix::process::Signal;
use std::time::Duration;

/// Writes its pid and its parent's, and runs until it is told to stop or the test is over.
const WORK: &str =
    "echo $PPID > guard; echo $$ > work; while [ -e work -a ! -e stop ]; do sleep 0.05; done";

/// Prints whether the worker is still alive.
const NEXT: &str = "if kill -0 $(cat work) 2> /dev/null; then echo alive; else echo dead; fi";

/// Would fail if two commands ran under one lock at the same time.
pub(crate) fn exclusion(on: Subject) {
    const WRAPPERS: usize = 8;
    let name = unique("exclusion");
    let script = "mkdir inside || echo clash >> clash; sleep 0.1; rmdir inside; echo >> done";
    let wrappers: Vec<_> = (0..WRAPPERS).map(|_| on.lock(&name, script)).collect();
    for wrapper in wrappers {
        let printed = wrapper.ended();
        assert_eq!(printed.code, Some(0), "{printed:?}");
    }
    assert!(!on.shell.file("clash").exists(), "two commands ran at the same time");
    assert_eq!(on.shell.read("done").lines().count(), WRAPPERS);
}

/// Would fail if an exit code differed from that of `holdfast lock` without `--on`, or if a message
/// did not name the engine.
pub(crate) fn exit_codes(on: Subject) {
    let (name, busy) = (unique("codes"), unique("busy"));
    let code = |script: &str| on.lock(&name, script).ended().code;
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 3"), Some(3));
    assert_eq!(code("kill -9 $$"), Some(128 + 9));
    assert_eq!(on.run(&name, &["there-is-no-such-program"]).code, Some(127));
    assert_eq!(on.run(&name, &["/"]).code, Some(126));

    let holder = on.lock(&busy, "echo $$ > pid; until [ -e stop ]; do sleep 0.05; done");
    on.shell.read("pid");
    for wait in ["--try", "--wait 200ms"] {
        let printed = on.run(&format!("{busy} {wait}"), &["true"]);
        assert_eq!(printed.code, Some(75), "{printed:?}");
        let shown = format!("did not get {busy} on {}", on.promises().engine);
        assert!(printed.err.contains(&shown) && printed.err.contains("--wait"), "{printed:?}");
    }
    on.shell.touch("stop");
    assert_eq!(holder.ended().code, Some(0));
    assert_eq!(on.run(&format!("{busy} --try"), &["true"]).code, Some(0), "it was not released");
}

/// Would fail if the command did not find its token where the engine has tokens, found one where it
/// has none, or if the wrapper wrote to its output.
pub(crate) fn environment(on: Subject) {
    let name = unique("environment");
    let print = "echo ${HOLDFAST_TOKEN-none} $HOLDFAST_LOCK ${HOLDFAST_SECRET-none} $HOLDFAST_ON; \
                 echo ${HOLDFAST_ENDED-unknown} ${HOLDFAST_NEEDS_RECOVERY-unknown}";
    let mut last = 0;
    for _ in 0..2 {
        let printed = on.lock(&name, print).ended();
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{printed:?}");
        let (first, ended) = printed.out.split_once('\n').expect("two lines");
        let (token, rest) = first.split_once(' ').expect("a token");
        assert_eq!(rest, format!("{name} none {}", on.url));
        if on.promises().token.holds {
            let token: u64 = token.parse().expect("a number");
            assert!(token > last, "{token} after {last}");
            last = token;
        } else {
            assert_eq!(token, "none");
        }
        let unknown = ended == "unknown unknown\n";
        assert_eq!(unknown, !on.promises().reports_death.holds, "{ended:?}");
    }
}

/// Would fail if a command took the token of an outer wrapper for its own, or if an inner wrapper
/// used another engine than the outer one.
pub(crate) fn nested(on: Subject) {
    let (outer, inner) = (unique("outer"), unique("inner"));
    let print = "echo ${HOLDFAST_TOKEN-none} ${HOLDFAST_SECRET-none} ${HOLDFAST_ENDED_NOTE-none}";
    // As if an outer wrapper had set them.
    let script = format!(
        "HOLDFAST_TOKEN=outside HOLDFAST_SECRET=outside HOLDFAST_ENDED_NOTE=outside \
         holdfast lock {inner} -- sh -c '{print}'; holdfast lock {outer} --try -- true; echo $?"
    );
    let printed = on.lock(&outer, &script).ended();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(!printed.out.contains("outside"), "{printed:?}");
    assert!(printed.out.ends_with("\n75\n"), "the outer lock was not found held: {printed:?}");
}

/// Would fail if a wrapper that gives up kept its place in line, or took the lock after all.
pub(crate) fn waiting_is_interrupted(on: Subject) {
    let name = unique("interrupted");
    let holder = on.lock(&name, "echo $$ > pid; until [ -e stop ]; do sleep 0.05; done");
    on.shell.read("pid");
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let waiter = on.lock(&name, "echo never");
        // Connected and waiting, or still connecting: it must not matter.
        std::thread::sleep(Duration::from_millis(700));
        waiter.signal(signal);
        let printed = waiter.ended();
        assert_eq!((printed.code, printed.out.as_str()), (Some(128 + number), ""), "{printed:?}");
    }
    on.shell.touch("stop");
    assert_eq!(holder.ended().code, Some(0));
    assert_eq!(on.run(&format!("{name} --try"), &["true"]).code, Some(0), "somebody has it");
}

/// Would fail if a wrapper that is interrupted while it takes the lock left it held.
pub(crate) fn early_interrupts(on: Subject) {
    for at in 0..16_u64 {
        let name = unique("early");
        // Without a shell: dash misses an interrupt that arrives just before it starts a command.
        let long = on.start(&format!("{name} --ttl 10m"), &["sleep", "600"]);
        std::thread::sleep(Duration::from_millis(at * 10));
        long.signal([Signal::INT, Signal::TERM][(at % 2) as usize]);
        let code = long.ended().code;
        // `None`: before its signal handlers are installed.
        assert!(matches!(code, None | Some(130 | 143)), "{code:?}");
        let next = on.run(&format!("{name} --wait 10s"), &["true"]);
        assert_eq!(next.code, Some(0), "interrupted after {} ms: {next:?}", at * 10);
    }
}

/// Would fail if a signal did not reach the command, or if the lock were not released afterwards.
pub(crate) fn command_is_interrupted(on: Subject) {
    let name = unique("passed-on");
    let script = "trap 'echo heard; exit 42' INT; echo $$ > work; while :; do sleep 0.05; done";
    let wrapper = on.lock(&format!("{name} --ttl 10m"), script);
    on.shell.read("work");
    wrapper.signal(Signal::INT);
    let printed = wrapper.ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(42), "heard\n"), "{printed:?}");
    assert_eq!(on.run(&format!("{name} --try"), &["true"]).code, Some(0), "it was not released");
}

/// Would fail if a command outlived its killed wrapper, or if the lock never became free again.
pub(crate) fn killed_wrapper(on: Subject) {
    let name = unique("killed");
    let note = if on.promises().reports_death.holds { "--note paid" } else { "" };
    let killed = on.lock(&format!("{name} {note}"), WORK);
    let work = on.shell.read_pid("work");
    let next = on.lock(&name, &format!("{NEXT}; echo \"$HOLDFAST_ENDED $HOLDFAST_ENDED_NOTE\""));
    killed.signal(Signal::KILL);
    dies(work);
    let next = next.ended();
    let heard = if on.promises().reports_death.holds { "died paid" } else { " " };
    assert_eq!((next.code, next.out), (Some(0), format!("dead\n{heard}\n")));
    if on.promises().reports_death.holds {
        assert!(next.err.contains("died") && next.err.contains("paid"), "{}", next.err);
    }
}

/// Would fail if a command outlived the lease of a stopped wrapper.
pub(crate) fn stopped_wrapper(on: Subject) {
    let name = unique("stopped");
    let stopped = on.lock(&name, WORK);
    on.shell.read("work");
    let next = on.lock(&name, NEXT);
    stopped.signal(Signal::STOP);
    let next = next.ended();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "dead\n"));
    stopped.signal(Signal::CONT);
    let stopped = stopped.ended();
    assert_eq!(stopped.code, Some(76), "{stopped:?}");
    let lost = format!("lost {name} on {}", on.promises().engine);
    assert!(stopped.err.contains(&lost), "{stopped:?}");
}

/// Would fail if a command kept running with nobody guarding it, or if the lost lock stayed held.
pub(crate) fn killed_guard(on: Subject) {
    let name = unique("guard");
    let wrapper = on.lock(&name, WORK);
    let (work, guard) = (on.shell.read_pid("work"), on.shell.read_pid("guard"));
    assert_eq!(descendants(wrapper.id()).first().copied(), Some(parent(guard)));
    kill(guard, Signal::KILL);
    let printed = wrapper.ended();
    assert!(!lives(work));
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert_eq!(on.run(&name, &["true"]).code, Some(0));
}

/// Would fail if a candidate that lost the lock did not stand again, or kept renewing what it had
/// lost.
pub(crate) fn election(on: Subject) {
    let name = unique("election");
    let script =
        "echo $PPID > guard-$(ls | grep -c guard-); until [ -e stop ]; do sleep 0.05; done";
    let candidate = on.lock(&format!("{name} --elect"), script);
    kill(on.shell.read_pid("guard-0"), Signal::KILL);
    on.shell.read("guard-1");
    on.shell.touch("stop");
    assert_eq!(candidate.ended().code, Some(0));
    assert_eq!(on.run(&format!("{name} --try"), &["true"]).code, Some(0));
}

/// Would fail if an option that the engine does not support were ignored.
pub(crate) fn refused_options(on: Subject) {
    let name = unique("options");
    let refused = |args: &str, expected: &str| {
        let printed = on.run(&format!("{name} {args}"), &["true"]);
        assert_eq!(printed.code, Some(64), "{args}: {printed:?}");
        assert!(printed.err.contains(expected), "{args}: {printed:?}");
    };
    refused("--shared", "--shared can't be used");
    refused("--permits 2", "--permits can't be used");
    refused("another", "one lock, not several");
    refused("--server http://127.0.0.1:1", "--server is for Holdfast servers");
    refused("--password-file p", "--password-file is for Holdfast servers");
    if on.promises().reports_death.holds {
        assert_eq!(on.run(&format!("{name} --note paid"), &["true"]).code, Some(0));
    } else {
        refused("--note paid", on.promises().reports_death.because);
    }
}

/// Would fail if a command kept running although its engine is down and the lease can't be kept.
pub(crate) fn killed_engine(on: Subject) {
    let name = unique("engine");
    let wrapper = on.lock(&name, WORK);
    let work = on.shell.read_pid("work");
    let server = on.server.as_ref().expect("a server of its own");
    server.kill();
    dies(work);
    let printed = wrapper.ended();
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert!(printed.err.contains(&format!("lost {name} on ")), "{printed:?}");
    let down = on.run(&name, &["true"]);
    assert_eq!(down.code, Some(69), "{down:?}");
    server.restart();
    let next = eventually("the engine is back", || {
        Some(on.run(&name, &["true"])).filter(|next| next.code != Some(69))
    });
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// Would fail if two commands ran at once because the engine was restarted, or if the wrapper did
/// not end.
pub(crate) fn restarted_engine(on: Subject) {
    let name = unique("restarted");
    let wrapper = on.lock(&format!("{name} --ttl 20s"), WORK);
    on.shell.read("work");
    let server = on.server.as_ref().expect("a server of its own");
    server.kill();
    server.restart();
    let tried = on.lock(&format!("{name} --wait 1s"), NEXT).ended();
    on.shell.touch("stop");
    let printed = wrapper.ended();
    assert!(!tried.out.contains("alive"), "two commands ran at the same time");
    // A lock that is on disk is renewed after the restart, unless that took longer than the lease.
    match printed.code {
        Some(0) => assert_eq!(tried.code, Some(75), "{tried:?}"),
        code => assert_eq!(code, Some(76), "{printed:?}"),
    }
    assert_eq!(on.run(&format!("{name} --wait 60s"), &["true"]).code, Some(0));
}
