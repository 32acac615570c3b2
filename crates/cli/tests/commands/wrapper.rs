//! `holdfast lock`: what its command sees, and what its caller gets back.

use crate::cli::{Shell, descendants, kill, lives, parent, state, try_kill, with_usual_signals};
use crate::support::{HOLDFAST, eventually};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Would fail if an exit code were changed on the way, or if two ways to end had the same one.
#[test]
fn each_ending_has_its_exit_code() {
    let shell = Shell::with_nodes(1);
    let code = |args: &str, script: &str| shell.lock(args, script).ended().code;
    assert_eq!(code("a", "exit 0"), Some(0));
    assert_eq!(code("a", "exit 3"), Some(3));
    assert_eq!(code("a", "exit 255"), Some(255));
    assert_eq!(code("a", "kill -9 $$"), Some(128 + 9));
    assert_eq!(code("a", "kill -15 $$"), Some(128 + 15));

    let missing = shell.run(["lock", "a", "--", "there-is-no-such-program"]);
    assert_eq!(missing.code, Some(127));
    assert!(missing.err.contains("there-is-no-such-program"), "{missing:?}");
    assert_eq!(shell.run(["lock", "a", "--", "/"]).code, Some(126));

    let holder = shell.lock("busy", "echo $$ > pid; until [ -e stop ]; do sleep 0.05; done");
    shell.read("pid");
    for wait in ["--try", "--wait=100ms"] {
        let printed = shell.run(["lock", "busy", wait, "--", "true"]);
        assert_eq!(printed.code, Some(75), "{printed:?}");
        assert!(
            printed.err.contains("did not get busy") && printed.err.contains("--wait"),
            "{printed:?}"
        );
    }
    shell.touch("stop");
    assert_eq!(holder.ended().code, Some(0));

    let nobody = ["lock", "a", "--server", "http://127.0.0.1:1", "--", "true"];
    let nobody = shell.run(nobody);
    assert_eq!(nobody.code, Some(69));
    assert!(nobody.err.contains("HOLDFAST_SERVER"), "{nobody:?}");

    let wrong: [&[&str]; 5] = [
        &["lock", "a"],
        &["lock", "--", "true"],
        &["lock", "a", "--ttl", "15", "--", "true"],
        &["lock", "a", "--ttl", "10ms", "--", "true"],
        &["lock", "a", "--try", "--wait", "1s", "--", "true"],
    ];
    for args in wrong {
        assert_eq!(shell.run(args).code, Some(64), "{args:?}");
    }
}

/// Would fail if the command did not know what it holds, or if the wrapper wrote to its output.
#[test]
fn command_gets_its_token_and_nothing_else_is_printed() {
    let shell = Shell::with_nodes(1);
    let print = "echo $HOLDFAST_TOKEN $HOLDFAST_LOCK ${#HOLDFAST_SECRET}";
    let printed = shell.lock("shop/seat", print).ended();
    assert_eq!((printed.out.as_str(), printed.err.as_str()), ("1 shop/seat 32\n", ""));
    let several = shell.lock("b a", "echo \"$HOLDFAST_LOCK\" on $HOLDFAST_HOLDING").ended();
    assert_eq!(several.out, "b\na on 2\n");
    // With these variables, it can act as the holder.
    let note = "holdfast note c half-done > said && holdfast show c --json";
    let shown = shell.lock("c --note begun", note).ended();
    assert!(shown.out.contains("\"note\":\"half-done\""), "{shown:?}");
}

/// Would fail if a signal did not reach the command, or if the wrapper ended before the command.
#[test]
fn signals_are_passed_on() {
    let shell = Shell::with_nodes(1);
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let script = format!(
            "trap 'echo heard {name}; exit 42' {name}; echo $$ > ready-{name}; \
             while :; do sleep 0.05; done"
        );
        let running = shell.lock("a", &script);
        shell.read(&format!("ready-{name}"));
        running.signal(signal);
        let printed = running.ended();
        assert_eq!((printed.code, printed.out.as_str()), (Some(42), &*format!("heard {name}\n")));
    }
}

/// Would fail if a wrapper that gives up kept its place in line.
#[test]
fn signals_end_the_wait() {
    let shell = Shell::with_nodes(1);
    let holder = shell.lock("a", "echo $$ > pid; until [ -e stop ]; do sleep 0.05; done");
    shell.read("pid");
    let waiter = shell.lock("a", "echo never");
    shell.waiting("a", 1);
    waiter.signal(Signal::TERM);
    let printed = waiter.ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(128 + 15), ""));
    shell.waiting("a", 0);
    shell.touch("stop");
    assert_eq!(holder.ended().code, Some(0));
}

/// A `holdfast lock` that was interrupted during its acquire dropped it and exited: in 10 of 40
/// cases the lock had been granted in the meantime, and stayed held until its TTL was over.
#[test]
fn interrupted_wrapper_releases_its_lock() {
    let shell = Shell::with_nodes(1);
    for at in 0..24_u64 {
        let name = format!("early-{at}");
        // Without a shell: dash misses an interrupt that arrives just before it starts a command.
        let wrapper = shell.start(["lock", &name, "--ttl", "10m", "--", "sleep", "600"]);
        // Before the signal handlers are installed, while it connects, in line, when it is granted.
        std::thread::sleep(Duration::from_millis(at * 2));
        wrapper.signal([Signal::INT, Signal::TERM][(at % 2) as usize]);
        let code = wrapper.ended().code;
        assert!(matches!(code, None | Some(130 | 143)), "{code:?}");
        let next = shell.run(["lock", &name, "--wait", "5s", "--", "true"]);
        assert_eq!(next.code, Some(0), "interrupted after {} ms: {next:?}", at * 2);
    }
}

/// A command that was killed by a signal left behind what it had started outside of its process
/// group (`timeout` creates its own), and the lock was released while that was running.
#[test]
fn descendants_of_a_killed_command_die_before_the_release() {
    let shell = Shell::with_nodes(1);
    let script = "timeout 600 sh -c 'echo $$ > job; sleep 600' & echo $$ > command; wait; :";
    let wrapper = shell.lock("a", script);
    let job = shell.read_pid("job");
    shell.read("command");
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().code, Some(128 + 15));
    assert!(!lives(job), "the job outlived the lock");
}

/// Would fail if what a command leaves running on purpose were killed when it ends by itself.
#[test]
fn background_processes_outlive_a_finished_command() {
    let shell = Shell::with_nodes(1);
    let script = "setsid sh -c 'echo $$ > daemon; sleep 30' & until [ -e daemon ]; do :; done";
    assert_eq!(shell.lock("a", script).ended().code, Some(0));
    let daemon = shell.read_pid("daemon");
    std::thread::sleep(Duration::from_millis(200));
    assert!(lives(daemon), "it was ended with the command");
    kill(daemon, Signal::KILL);
}

/// Would fail if a guard were killed by a signal that is sent to all processes of a service: the
/// command would be killed instead of asked, and the lock lost instead of released.
#[test]
fn signal_to_the_process_group_ends_the_command_cleanly() {
    let shell = Shell::with_nodes(1);
    let script = "trap 'echo bye; exit 0' TERM; echo $$ > runs; while :; do sleep 0.05; done";
    let wrapper = shell.lock("a", script);
    shell.read("runs");
    for pid in descendants(wrapper.id()).into_iter().take(2).chain([wrapper.id()]) {
        kill(pid, Signal::TERM);
    }
    let printed = wrapper.ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(0), "bye\n"), "{printed:?}");
}

/// Would fail if output passed through a buffer in the wrapper, or were cut off.
#[test]
fn large_output_arrives_completely() {
    const BYTES: usize = 200 << 20;
    let shell = Shell::with_nodes(1);
    let mut child = shell
        .command(["lock", "a", "--", "head", "-c", &BYTES.to_string(), "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("holdfast runs");
    let mut out = child.stdout.take().expect("a pipe");
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        match out.read(&mut buffer).expect("output can be read") {
            0 => break,
            count => total += count,
        }
    }
    assert_eq!(total, BYTES);
    assert!(child.wait().expect("it ends").success());
}

/// Would fail if the command's stdin were the guard's socket, or if a missing one broke the
/// wrapper.
#[test]
fn stdin_is_inherited_and_may_be_closed() {
    let shell = Shell::with_nodes(1);
    let mut child = shell
        .command(["lock", "a", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("holdfast runs");
    child.stdin.take().expect("a pipe").write_all(b"line\n").expect("input can be written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"line\n");

    let script = format!("exec <&-; exec {HOLDFAST} lock a -- cat");
    let mut without = Command::new("sh");
    without.arg("-c").arg(script).env("HOLDFAST_SERVER", shell.servers());
    let output = without.output().expect("sh runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
}

/// A terminal with a program in it; it does not outlive the test.
struct Terminal(Option<Child>);

impl Terminal {
    fn with(shell: &Shell, typed: &str) -> Self {
        let like = shell.command::<&str>([]);
        let mut script = with_usual_signals("script");
        script.args(["-qefc", typed, "/dev/null"]).current_dir(shell.file("."));
        for (key, value) in like.get_envs() {
            script.env(key, value.unwrap_or_default());
        }
        let child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = child.spawn().expect("script from util-linux is needed for this test");
        Self(Some(child))
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.0.as_mut().and_then(|child| child.stdin.as_mut()).expect("a pipe");
        stdin.write_all(keys.as_bytes()).expect("a key can be pressed");
    }

    /// Presses the same keys until a file has a line: keys that come too early get lost, or arrive
    /// in part.
    fn press_until(&mut self, keys: &str, file: &Path) {
        eventually(&format!("{} is there", file.display()), || {
            self.press(keys);
            std::thread::sleep(Duration::from_millis(300));
            fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n')).then_some(())
        });
    }

    /// Waits until it has ended; then all these lines must have been on the screen.
    fn must_show(mut self, lines: &[&str]) {
        let child = self.0.as_mut().expect("it was not waited for");
        eventually("the terminal is closed", || child.try_wait().expect("it can be waited for"));
        let child = self.0.take().expect("it was not waited for");
        let output = child.wait_with_output().expect("it has ended");
        let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        for line in lines {
            assert!(
                printed.lines().any(|told| told.ends_with(line)),
                "`{line}` is not in:\n{printed}"
            );
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Would fail if a command could not read from the terminal, or if Ctrl-C ended the wrapper instead
/// of the command.
#[test]
fn command_gets_the_terminal() {
    let shell = Shell::with_nodes(1);
    let inner = "trap \"echo interrupted; exit 5\" INT; read line; echo \"got $line\"; \
                 echo $$ > waits; while :; do sleep 0.05; done";
    let then = "echo \"code $?\"; read more; echo \"then $more\"";
    let typed = format!("holdfast lock a -- sh -c '{inner}'; {then}");
    let mut terminal = Terminal::with(&shell, &typed);
    terminal.press("hello\n");
    shell.read("waits");
    terminal.press("\x03");
    terminal.press("again\n");
    terminal.must_show(&["got hello", "interrupted", "code 5", "then again"]);
}

/// Would fail if the shell did not see its job stopped, or if the command did not get the terminal
/// back with `fg`.
#[test]
fn stopped_command_resumes_with_fg() {
    let shell = Shell::with_nodes(1);
    let mut terminal = Terminal::with(&shell, "bash --norc -i");
    let inner = "echo $PPID > runs; read line; echo \"got $line\"; echo > got";
    terminal.press(&format!("holdfast lock a --ttl 60s -- sh -c '{inner}'\n"));
    // There are two guards in between.
    let wrapper = parent(parent(shell.read_pid("runs")));
    terminal.press("\x1a");
    // Before that, the command might get the input that is meant for the shell.
    eventually("the wrapper is stopped", || (state(wrapper) == 'T').then_some(()));
    terminal.press_until("jobs -s > stopped\n", &shell.file("stopped"));
    assert!(shell.read("stopped").contains("holdfast lock"));
    terminal.press("fg; echo \"code $?\"; exit\n");
    terminal.press_until("hello\n", &shell.file("got"));
    terminal.must_show(&["got hello", "code 0"]);
}

/// The outer guard blocks the signals that terminate a service, but one that arrived between its
/// start and that moment killed it: the lock was lost instead of released.
#[test]
fn signal_during_startup_loses_no_lock() {
    let shell = Shell::with_nodes(1);
    for at in 0..30_u64 {
        let name = format!("early-{at}");
        let wrapper = shell.lock(&format!("{name} --ttl 10m"), "sleep 600");
        // As soon as there is a guard, or a moment later.
        while descendants(wrapper.id()).is_empty() && !wrapper.has_ended() {}
        std::thread::sleep(Duration::from_micros(at * 300));
        for pid in descendants(wrapper.id()).into_iter().chain([wrapper.id()]) {
            try_kill(pid, Signal::TERM);
        }
        let printed = wrapper.ended();
        assert_eq!(printed.code, Some(128 + 15), "{at}: {printed:?}");
        let next = shell.run(["lock", &name, "--try", "--", "true"]);
        assert_eq!(next.code, Some(0), "{at}: {next:?}");
    }
}
