//! `holdfast` when its output can't be written.

use crate::cli::{Shell, kill, lives};
use crate::support::{HOLDFAST, eventually};
use rustix::process::Signal;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").expect("/dev/full can be opened").into()
}

/// A socket that is full, and its other end.
fn full_pipe() -> (Stdio, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().expect("sockets can be made");
    ours.set_nonblocking(true).expect("a socket need not block");
    loop {
        match ours.write(&[b'x'; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    ours.set_nonblocking(false).expect("a socket can block");
    (OwnedFd::from(ours).into(), theirs)
}

/// A message that could not be written made the program panic: it exited with 101, whatever had
/// happened.
#[test]
fn exit_codes_are_kept_when_stderr_is_full() {
    let shell = Shell::with_nodes(1);
    let code = |args: &[&str]| {
        let status = shell.command(args).stderr(full_disk()).stdout(Stdio::null()).status();
        status.expect("holdfast runs").code()
    };
    let holder = shell.lock("busy", "echo > held; until [ -e stop ]; do sleep 0.05; done");
    shell.read("held");
    assert_eq!(code(&["lock", "busy", "--try", "--", "true"]), Some(75));
    assert_eq!(code(&["acquire", "busy", "--ttl", "5s", "--try"]), Some(75));
    shell.touch("stop");
    assert_eq!(holder.ended().code, Some(0));
    assert_eq!(code(&["lock", "a", "--", "there-is-no-such-program"]), Some(127));
    assert_eq!(code(&["lock", "a", "--server", "http://127.0.0.1:1", "--", "true"]), Some(69));
    assert_eq!(code(&["lock", "a"]), Some(64));
    assert_eq!(code(&["history", "nobody-knows"]), shell.run(["history", "nobody-knows"]).code);
}

/// The wrapper announced a loss before it acted on it. If the message could not be written, it
/// panicked and released the lock, and the next holder did not learn that the command was killed;
/// if the message had to wait for a reader, the wrapper kept renewing a lock that nobody held.
#[test]
fn loss_counts_even_if_stderr_is_full() {
    let shell = Shell::with_nodes(1);
    for name in ["disk", "pipe"] {
        let (pipe, _unread) = full_pipe();
        let stderr = if name == "disk" { full_disk() } else { pipe };
        let script = format!("echo $PPID > guard-{name}; echo $$ > {name}; exec sleep 600");
        let args = ["lock", name, "--ttl", "3s", "--", "sh", "-c", &script];
        let mut wrapper = shell.command(args).stderr(stderr).spawn().expect("holdfast runs");
        let command = shell.read_pid(name);
        kill(shell.read_pid(&format!("guard-{name}")), Signal::KILL);
        let next =
            ["lock", name, "--wait", "30s", "--", "sh", "-c", "echo $HOLDFAST_NEEDS_RECOVERY"];
        let next = shell.run(next);
        assert!(!lives(command));
        let ended = eventually("the wrapper ends", || wrapper.try_wait().expect("it is a child"));
        assert_eq!(ended.code(), Some(76), "{name}");
        assert_eq!((next.code, next.out.as_str()), (Some(0), "1\n"), "{name}: {next:?}");
    }
}

/// A lock left behind by a dead holder is announced before the command is started: if that could
/// not be written, the command was not run, and the lock counted as released.
#[test]
fn command_runs_even_if_the_previous_ending_cannot_be_printed() {
    let shell = Shell::with_nodes(1);
    for (name, stderr) in [("disk", full_disk()), ("pipe", full_pipe().0)] {
        assert_eq!(shell.run(["acquire", name, "--ttl", "1h"]).code, Some(0));
        assert_eq!(shell.run(["break", name, "--reason", "test"]).code, Some(0));
        let mut command = shell.command(["lock", name, "--", "echo", "ran"]);
        let output = command.stderr(stderr).stdout(Stdio::piped()).output().expect("it runs");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"ran\n"[..]));
    }
}

/// An `acquire` whose grant could not be printed left the lock held, with a secret that nobody
/// knew.
#[test]
fn acquire_that_cannot_be_printed_is_released() {
    let shell = Shell::with_nodes(1);
    for args in
        [&["acquire", "a", "b", "--ttl", "1h"][..], &["acquire", "a", "--ttl", "1h", "--json"]]
    {
        let status = shell.command(args).stdout(full_disk()).stderr(Stdio::null()).status();
        assert_eq!(status.expect("holdfast runs").code(), Some(1), "{args:?}");
        let next = shell.run(["lock", "a", "b", "--try", "--", "true"]);
        assert_eq!(next.code, Some(0), "{args:?}: {next:?}");
    }
}

/// A watch that could not print an event took that for a broken connection, and went on forever.
#[test]
fn watch_ends_when_stdout_fails() {
    let shell = Shell::with_nodes(1);
    let mut command = shell.command(["watch"]);
    let mut watch = command.stdout(full_disk()).stderr(Stdio::null()).spawn().expect("it runs");
    let ended = eventually("the watch ends", || {
        assert_eq!(shell.run(["lock", "a", "--", "true"]).code, Some(0));
        watch.try_wait().expect("it is a child")
    });
    assert_eq!(ended.code(), Some(1));
}

/// With `ulimit -f 0` the wrapper died of SIGXFSZ while it held the lock, which stayed held until
/// its TTL was over.
#[test]
fn wrapper_that_cannot_write_files_releases_the_lock() {
    let shell = Shell::with_nodes(1);
    let wrapped = "ulimit -f 0; exec holdfast lock a --ttl 1h -- true";
    assert_eq!(shell.script(&["sh"], wrapped).ended().code, Some(1));
    assert_eq!(shell.run(["lock", "a", "--try", "--", "true"]).code, Some(0));
}

/// A node panicked and exited when its log could not be written, as on a full disk.
#[test]
fn node_serves_when_its_log_output_fails() {
    let mut shell = Shell::with_nodes(1);
    let node = &mut shell.cluster.nodes[0];
    node.stop();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" serve \"$@\" 2> /dev/full", HOLDFAST]).args(node.args());
    node.start_as(command);
    shell.cluster.all_ready();
    assert_eq!(shell.run(["lock", "a", "--", "true"]).code, Some(0));
    assert!(shell.cluster.nodes[0].is_running());
}

/// `new-key > FILE` on a full disk panicked.
#[test]
fn unprintable_key_is_an_error() {
    let shell = Shell::with_nodes(1);
    let new_key = shell.command(["new-key"]).stdout(full_disk()).stderr(full_disk()).status();
    assert_eq!(new_key.expect("holdfast runs").code(), Some(1));
}
