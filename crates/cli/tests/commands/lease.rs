//! What happens to a command when its lease can't be kept.

use crate::cli::{Shell, descendants, dies, kill, lives, parent, state, try_kill};
use crate::support::eventually;
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Writes its pid and its parent's, and runs until it is told to stop or the test is over.
const WORK: &str =
    "echo $PPID > guard; echo $$ > work; while [ -e work -a ! -e stop ]; do sleep 0.05; done";

/// Prints whether the worker is still alive, and what is known about it.
const NEXT: &str = "if kill -0 $(cat work) 2> /dev/null; then echo alive; else echo dead; fi; \
     echo $HOLDFAST_ENDED, token $HOLDFAST_ENDED_TOKEN, $HOLDFAST_ENDED_NOTE";

/// Would fail if a command outlived the lease of a stopped wrapper: the next holder's command looks
/// for it, and it must be dead.
#[test]
fn stopped_wrappers_command_is_killed_before_the_next_holder() {
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

/// Would fail if a command outlived its killed wrapper, or if the next holder did not learn of it.
#[test]
fn command_dies_with_a_killed_wrapper() {
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

/// Would fail if a command kept running with nobody guarding it.
#[test]
fn command_dies_with_a_killed_guard() {
    let shell = Shell::with_nodes(1);
    let wrapper = shell.lock("job --ttl 3s", WORK);
    let work = shell.read_pid("work");
    kill(shell.read_pid("guard"), Signal::KILL);
    let printed = wrapper.ended();
    assert!(!lives(work));
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert!(printed.err.contains("guard"), "{printed:?}");
}

/// Would fail if a command kept running whose guard dies before it can report which process it
/// started (on one core many of these commands run before their guards do), or if the wrapper
/// waited forever for one whose guard dies just after (on two cores that is about every second
/// one).
#[test]
fn command_dies_with_a_guard_killed_at_startup() {
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

/// Would fail if a command that ignores SIGTERM outlived the lease, or if one that handles it had
/// no time to clean up.
#[test]
fn command_gets_sigterm_before_sigkill() {
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

/// Would fail if the wrapper gave up its command when the leader dies: the next leader must renew
/// it, for longer than the lease it had.
#[test]
fn command_survives_the_death_of_the_leader() {
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

/// Would fail if a candidate that lost the lock did not stand again.
#[test]
fn candidate_campaigns_again_after_losing() {
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

/// Would fail if an operator's request did not reach the command.
#[test]
fn revoke_asks_the_holder_and_break_ends_it() {
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

/// The next holder: checks whether anything is still being written.
const WATCH: &str = "a=$(wc -c < writes); sleep 0.7; b=$(wc -c < writes); echo $((b - a))";

/// The guard wrote every stop of the command to a socket that a stopped wrapper does not read,
/// until the socket was full: then it blocked past its deadline, and the command wrote 53 times
/// under the next holder.
#[test]
fn guard_does_not_wait_for_a_stopped_wrapper() {
    let shell = Shell::with_nodes(1);
    let script = "echo $$ > work; : > writes
        (while [ -e work ]; do kill -CONT $$ || exit; done) 2> /dev/null &
        while [ -e work ]; do kill -STOP $$; echo x >> writes; done";
    let stopped = shell.lock("job --ttl 3s", script);
    shell.read("work");
    let next = shell.lock("job --ttl 3s", WATCH);
    shell.waiting("job", 1);
    stopped.signal(Signal::STOP);
    let next = next.ended();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "0\n"), "bytes under the next holder");
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.ended().code, Some(76));
}

/// A guard that was stopped before it started the command started it when it was continued, however
/// late that was.
#[test]
fn delayed_guard_does_not_start_the_command_late() {
    let shell = Shell::with_nodes(1);
    for at in 0..5 {
        let name = format!("job-{at}");
        let wrapper = shell.lock(&format!("{name} --ttl 2s"), "echo $$ > ran");
        let until = Instant::now() + Duration::from_secs(20);
        let guards = loop {
            let found = descendants(wrapper.id());
            if !found.is_empty() || wrapper.has_ended() || Instant::now() > until {
                break found;
            }
        };
        // The processes above the command that exist by now, and the command if it does.
        for guard in &guards {
            try_kill(*guard, Signal::STOP);
        }
        wrapper.signal(Signal::STOP);
        // The command may have run before they were stopped, but not from now on.
        let next = shell.run(["lock", &name, "--wait", "30s", "--", "rm", "-f", "ran"]);
        assert_eq!(next.code, Some(0), "{next:?}");
        for guard in &guards {
            try_kill(*guard, Signal::CONT);
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(!shell.file("ran").exists(), "the command ran under the next holder");
        let _ = wrapper.has_ended() || try_kill(wrapper.id(), Signal::CONT);
        wrapper.ended();
    }
}

/// A guard that was killed while the wrapper was stopped left the command running for good; and
/// what `timeout` or `setsid` had moved out of the command's process group outlived everything: 35
/// writes under the next holder.
#[test]
fn any_two_guards_may_be_stopped_or_killed() {
    let shell = Shell::with_nodes(1);
    let script = "echo $$ > work; : > writes
        (setsid sh -c 'while [ -e work ]; do echo s >> writes; sleep 0.05; done' &)
        timeout 60 sh -c 'while [ -e work ]; do echo t >> writes; sleep 0.05; done' &
        while [ -e work ]; do echo x >> writes; sleep 0.05; done";
    let (stop, end) = (Signal::STOP, Signal::KILL);
    let signals = [(stop, stop), (stop, end), (end, stop), (end, end)];
    let cases = signals.into_iter().flat_map(|both| (0..3).map(move |spared| (both, spared)));
    // A wrapper whose guards are merely stopped keeps renewing.
    let cases = cases.filter(|case| *case != ((stop, stop), 0));
    // All at the same time, each with its own folder and lock.
    let begun = cases.enumerate().map(|(at, case)| {
        let begin = format!("mkdir -p {at}; cd {at}; {script}");
        (at, case, shell.lock(&format!("job-{at} --ttl 4s"), &begin))
    });
    let attacked = begun.collect::<Vec<_>>().into_iter().map(|(at, (both, spared), wrapper)| {
        let inner = parent(shell.read_pid(&format!("{at}/work")));
        let mut chosen = vec![wrapper.id(), parent(inner), inner];
        let next = shell.lock(&format!("job-{at} --ttl 4s"), &format!("cd {at}; {WATCH}"));
        shell.waiting(&format!("job-{at}"), 1);
        chosen.remove(spared);
        kill(chosen[0], both.0);
        // The first signal may have ended all of them already.
        try_kill(chosen[1], both.1);
        (both, spared, wrapper, next)
    });
    for (both, spared, wrapper, next) in attacked.collect::<Vec<_>>() {
        let printed = next.ended();
        let which = format!("{both:?}, all but {spared}: {printed:?}");
        assert_eq!((printed.code, printed.out.as_str()), (Some(0), "0\n"), "{which}");
        if state(wrapper.id()) == 'T' {
            wrapper.signal(Signal::CONT);
        }
        wrapper.ended();
    }
}

/// In a container whose init reaps no orphans, a wrapper whose guard was killed kept looking at
/// what was left of its command forever, and kept renewing its lease.
#[test]
fn wrapper_exits_when_pid_1_does_not_reap() {
    let shell = Shell::with_nodes(1);
    let inner = "echo > runs; until [ -e go ]; do sleep 0.02; done; kill -KILL $PPID; sleep 600";
    fs::write(shell.file("inner.sh"), inner).expect("a script can be written");
    let first = "(holdfast lock job --ttl 60s -- sh inner.sh; echo $? > code) & exec sleep 600";
    let like = shell.command::<&str>([]);
    let may = |flags: &str| {
        let tried = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let flags = ["-pf", "-Urpf"].into_iter().find(|flags| may(flags)).expect("namespaces");
    let mut apart = Command::new("unshare");
    apart.args([flags, "--kill-child", "sh", "-c", first]).current_dir(shell.file("."));
    apart.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut apart = apart.stdin(Stdio::null()).spawn().expect("unshare runs");
    shell.read("runs");
    // The wrapper has noticed it too by then.
    std::thread::sleep(Duration::from_millis(300));
    shell.touch("go");
    let until = Instant::now() + Duration::from_secs(20);
    while !shell.file("code").exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let code = fs::read_to_string(shell.file("code")).unwrap_or_default();
    let _ = apart.kill();
    let _ = apart.wait();
    assert_eq!(code, "76\n");
}

/// A wrapper that lost its lock waited for a message from its guard, forever if that was stopped.
#[test]
fn wrapper_that_lost_its_lock_does_not_wait_for_stopped_guards() {
    let shell = Shell::with_nodes(1);
    let wrapper = shell.lock("job", WORK);
    let work = shell.read_pid("work");
    let guards = descendants(wrapper.id());
    guards.iter().take(2).for_each(|guard| kill(*guard, Signal::STOP));
    assert_eq!(shell.run(["break", "job", "--reason", "test"]).code, Some(0));
    assert_eq!(wrapper.ended().code, Some(76));
    assert!(!lives(work));
    guards.into_iter().for_each(dies);
}

/// Would fail if a loss killed what a shell had started before it exec'ed the wrapper.
#[test]
fn losing_the_lock_spares_earlier_processes() {
    let shell = Shell::with_nodes(1);
    let script = format!("sleep 300 & echo $! > other; exec holdfast lock job -- sh -c '{WORK}'");
    let wrapper = shell.script(&["sh"], &script);
    let work = shell.read_pid("work");
    let other = shell.read_pid("other");
    assert_eq!(shell.run(["break", "job", "--reason", "test"]).code, Some(0));
    assert_eq!(wrapper.ended().code, Some(76));
    assert!(!lives(work));
    assert!(lives(other), "it was ended with the command");
    kill(other, Signal::KILL);
}

/// A job of the shell had started another process before the shell exec'ed the wrapper. When the
/// job ended, that process was reparented to the wrapper, which took it for the command's and
/// killed it.
#[test]
fn losing_the_lock_spares_orphans_of_its_shell() {
    let shell = Shell::with_nodes(1);
    let script = format!(
        "(sleep 300 & echo $! > other; until test -e work; do sleep 0.01; done) &
         echo $! > job; sleep 0.1; exec holdfast lock job -- sh -c '{WORK}'"
    );
    let wrapper = shell.script(&["sh"], &script);
    let (job, work) = (shell.read_pid("job"), shell.read_pid("work"));
    let other = shell.read_pid("other");
    eventually("the wrapper has adopted it", || {
        (!lives(job) && parent(other) == wrapper.id()).then_some(())
    });
    assert_eq!(shell.run(["break", "job", "--reason", "test"]).code, Some(0));
    let printed = wrapper.ended();
    let spared = lives(other);
    try_kill(other, Signal::KILL);
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert!(!lives(work));
    assert!(spared, "it was ended with the command");
}

/// With too few open files allowed, the wrapper panicked.
#[test]
fn too_low_file_limit_is_reported() {
    let shell = Shell::with_nodes(1);
    for files in [6, 7, 10, 16] {
        let wrapped = format!("ulimit -n {files}; exec holdfast lock a -- true");
        let printed = shell.script(&["sh"], &wrapped).ended();
        assert_eq!(printed.code, Some(1), "{printed:?}");
        assert!(
            printed.err.contains("ulimit -n") && !printed.err.contains("panicked"),
            "{printed:?}"
        );
    }
    assert_eq!(shell.run(["lock", "a", "--", "true"]).code, Some(0));
}

/// The wrapper and its guards kept the directory of every process in /proc open while they looked
/// for the command's. On a machine with more processes than `ulimit -n`, the newest could not be
/// opened any more and were taken for dead: a child of the command in its own session kept writing
/// while the next holder had the lock.
#[test]
fn lost_command_is_killed_with_more_processes_than_file_descriptors() {
    const FILES: u32 = 64;
    let shell = Shell::with_nodes(1);
    let crowd = format!("for i in $(seq {FILES}); do sleep 60 & done; echo > crowd; wait");
    let crowd = shell.script(&["sh"], &crowd);
    shell.read("crowd");
    let job = "setsid sh -c \"echo \\$\\$ > job; exec sleep 600\" & echo $PPID > guard; sleep 600";
    let wrapped = format!("ulimit -n {FILES}; exec holdfast lock a --ttl 3s -- sh -c '{job}'");
    let wrapper = shell.script(&["sh"], &wrapped);
    let job = shell.read_pid("job");
    kill(parent(shell.read_pid("guard")), Signal::KILL);
    let printed = wrapper.ended();
    let outlived = try_kill(job, Signal::KILL);
    for pid in descendants(crowd.id()) {
        try_kill(pid, Signal::KILL);
    }
    assert!(!outlived, "the job outlived the lock: {printed:?}");
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert!(printed.err.contains("the command was ended"), "{printed:?}");
}

/// A process whose first thread has ended is shown as a zombie while its other threads keep
/// working. It was taken for dead, and neither killed nor waited for.
#[test]
fn process_whose_main_thread_exited_is_killed_too() {
    let shell = Shell::with_nodes(1);
    let program = "\
import ctypes, os, sys, threading, time
os.setsid()
def work():
    with open('job', 'w') as file:
        file.write(f'{os.getpid()}\\n')
    while True:
        time.sleep(0.01)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(ctypes.c_long(EXIT), ctypes.c_long(0))
";
    let number = if cfg!(target_arch = "x86_64") { "60" } else { "93" };
    fs::write(shell.file("job.py"), program.replace("EXIT", number)).expect("a file is written");
    let wrapper = shell.lock("a --ttl 3s", "python3 job.py & sleep 600");
    let job = shell.read_pid("job");
    eventually("the first thread has ended", || (state(job) == 'Z').then_some(()));
    shell.run(["break", "a", "--reason", "test"]);
    let printed = wrapper.ended();
    let outlived = fs::read_dir(format!("/proc/{job}/task")).is_ok_and(|tasks| tasks.count() > 1);
    try_kill(job, Signal::KILL);
    assert_eq!(printed.code, Some(76), "{printed:?}");
    assert!(!outlived, "the job outlived the lock: {printed:?}");
}

/// A service that is told to terminate while its lease runs out must not be started again:
/// `--elect` passed the signal on to a command that was being killed anyway, and forgot it.
#[test]
fn terminated_elected_service_is_not_restarted() {
    let shell = Shell::with_nodes(1);
    let script = "trap 'echo >> asked; sleep 0.3; exit 0' TERM; echo >> runs; \
                  while :; do sleep 0.02; done";
    let elected = shell.lock("job --ttl 3s --elect", script);
    shell.read("runs");
    let server = shell.cluster.nodes[0].pid();
    kill(server, Signal::STOP);
    shell.read("asked");
    elected.signal(Signal::TERM);
    eventually("the first run is over", || descendants(elected.id()).is_empty().then_some(()));
    kill(server, Signal::CONT);
    assert_eq!(elected.ended().code, Some(128 + 15));
    assert_eq!(shell.read("runs"), "\n", "it was restarted");
}
