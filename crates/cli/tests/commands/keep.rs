//! A lock kept by a script, with `acquire` and `release`.

use crate::cli::{CommandResult, Shell, kill, try_kill};
use rustix::process::Signal;
use serde_json::json;
use std::process::Command;
use std::time::Duration;

/// Would fail if a shell, or later commands, could not use what `acquire` prints.
#[test]
fn scripts_can_acquire_renew_note_and_release() {
    let shell = Shell::with_nodes(1);
    let script = "set -e; eval \"$(holdfast acquire 'seat 12' --ttl 60s)\"
        test \"$HOLDFAST_TOKEN\" = 1
        holdfast renew 'seat 12' --ttl 90s; holdfast note 'seat 12' 'half way'
        holdfast show 'seat 12'; holdfast recovered 'seat 12'; holdfast release 'seat 12'
        holdfast show 'seat 12'";
    let like = shell.command(["-c"]);
    let mut sh = Command::new("sh");
    sh.arg("-c").arg(script);
    for (key, value) in like.get_envs() {
        sh.env(key, value.unwrap_or_default());
    }
    let output = sh.output().expect("sh runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for told in ["token 1 is held for 1m30s", "half way", "nothing to recover", "released token 1"]
    {
        assert!(printed.contains(told), "`{told}` is not in:\n{printed}");
    }
    assert!(printed.ends_with("seat 12  free\n"), "{printed}");
}

/// `eval "$(holdfast acquire ...)"` went on without the lock when it was not acquired: nothing was
/// printed, and evaluating an empty string succeeds.
#[test]
fn failed_acquire_stops_the_evaluating_script() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "busy", "--ttl", "1h", "--json"]);
    let failing = [
        ("acquire busy --ttl 5s --try", 75),
        ("acquire busy --ttl 5s --try --request-id $(cat /proc/sys/kernel/random/uuid)", 75),
        ("acquire busy --no-such-flag", 64),
        ("acquire busy --ttl five", 64),
        ("aquire busy --ttl 5s", 64),
    ];
    for sh in [&["bash"][..], &["dash"], &["bash", "-e"], &["dash", "-e"], &["bash", "-eu"]] {
        for (args, code) in failing {
            let script = format!("eval \"$(holdfast {args})\"; echo ran > ran");
            assert_eq!(shell.script(sh, &script).ended().code, Some(code), "{sh:?}: {args}");
        }
    }
    let nobody = "eval \"$(holdfast acquire a --ttl 5s --server http://127.0.0.1:1)\"; echo > ran";
    assert_eq!(shell.script(&["dash"], nobody).ended().code, Some(69));

    // Terminated by a signal while it waits.
    for (at, id) in ["", "--request-id $(cat /proc/sys/kernel/random/uuid)"].iter().enumerate() {
        let acquire = format!("exec holdfast acquire busy --ttl 5s {id}");
        let script = format!("eval \"$(sh -c 'echo $$ > pid-{at}; {acquire}')\"; echo ran > ran");
        let waits = shell.script(&["dash"], &script);
        let pid = shell.read_pid(&format!("pid-{at}"));
        shell.waiting("busy", 1);
        kill(pid, Signal::TERM);
        assert_eq!(waits.ended().code, Some(128 + 15), "{id}");
    }
    assert!(!shell.file("ran").exists(), "a script went on without the lock");

    // An interactive shell is not closed by it, and `--json` prints nothing for a shell.
    let typed = "eval \"$(holdfast acquire busy --ttl 5s --try)\"; echo status $?";
    let typed = shell.script(&["bash", "--norc", "-i"], typed).ended();
    assert_eq!(typed.out, "status 75\n", "{typed:?}");
    for args in [&["acquire", "busy", "--ttl", "5s", "--try", "--json"][..], &["ls", "--bogus"]] {
        assert_eq!(shell.run(args).out, "", "{args:?}");
    }
    // As in the guide, also where the program does not exist.
    let guide = "PATH=; grant=$(holdfast acquire a --ttl 5s) || exit; eval \"$grant\"; echo ran";
    let printed = shell.script(&["dash"], guide).ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(127), ""));
}

/// Would fail if a repeated request drew a second ticket, or if its outcome were another request's.
#[test]
fn outcome_reports_what_a_request_did() {
    let shell = Shell::with_nodes(1);
    let id = "request-0123456789";
    let acquire = ["acquire", "a", "--ttl", "60s", "--request-id", id, "--json"];
    let first = shell.json(acquire);
    let again = shell.json(acquire);
    assert_eq!(first["fencing_token"], again["fencing_token"]);
    assert_eq!(first["secret"], again["secret"]);
    let outcome = shell.json(["outcome", id, "--json"]);
    assert_eq!(outcome["outcome"], "held");
    let (token, secret) = (first["fencing_token"].to_string(), first["secret"].as_str());
    let secret = secret.expect("a secret");
    shell.json(["release", "a", "--token", &token, "--secret", secret, "--json"]);
    let ended = shell.run(["outcome", id]);
    assert_eq!(ended.out, "ended: released, token 1\n");
    let never = shell.json(["outcome", "never-asked-0123456789", "--json"]);
    assert_eq!(never, json!({ "outcome": "never" }));
}

/// Would fail if a script could not tell what went wrong.
#[test]
fn failures_have_an_exit_code_and_a_hint() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a", "--ttl", "60s", "--json"]);
    let zeros = "0".repeat(32);
    let cases: [(&[&str], i32, &str); 6] = [
        (&["acquire", "a", "--ttl", "1s", "--try"], 75, "--wait"),
        (&["release", "a", "--token", "1", "--secret", &zeros], 1, "--secret"),
        (&["release", "b", "--token", "1", "--secret", &zeros], 75, "holdfast show"),
        (&["release", "a", "--token", "1", "--secret", "xyz"], 64, "32"),
        (&["acquire", "a"], 64, "--ttl"),
        (&["ls", "--server", "http://127.0.0.1:1"], 69, "HOLDFAST_SERVER"),
    ];
    for (args, code, hint) in cases {
        let printed = shell.run(args);
        assert_eq!(printed.code, Some(code), "{args:?}: {printed:?}");
        assert!(printed.err.contains(hint), "{args:?}: {printed:?}");
    }
}

/// Would fail if the register accepted a write from a holder that is not the newest.
#[test]
fn register_refuses_old_tokens() {
    let shell = Shell::with_nodes(1);
    let put = "holdfast register put ledger $HOLDFAST_TOKEN";
    assert_eq!(shell.lock("l", put).ended().code, Some(0));
    assert_eq!(shell.lock("l", put).ended().code, Some(0));
    let late = shell.run(["register", "put", "ledger", "late", "--token", "1"]);
    assert_eq!(late.code, Some(75), "{late:?}");
    assert_eq!(shell.run(["register", "get", "ledger"]).out, "2\n");
    let raised = shell.json(["register", "raise", "ledger", "--token", "2", "--json"]);
    assert_eq!((&raised["value"], &raised["highest"]), (&json!("2"), &json!(2)));
}

/// Would fail if an acquire that is interrupted while in progress left a lock held whose token
/// nobody knows.
#[test]
fn interrupted_acquire_releases_its_lock() {
    let shell = Shell::with_nodes(1);
    for at in 0..12_u64 {
        let name = format!("early-{at}");
        let acquire = shell.start(["acquire", &name, "--ttl", "10m"]);
        std::thread::sleep(Duration::from_millis(at * 3));
        let _ = acquire.has_ended() || try_kill(acquire.id(), Signal::TERM);
        let printed = acquire.ended();
        let granted = printed.out.contains("HOLDFAST_TOKEN");
        assert_eq!(granted, printed.code == Some(0), "{printed:?}");
        let next = shell.run(["lock", &name, "--wait", "5s", "--", "true"]);
        assert_eq!(next.code, Some(if granted { 75 } else { 0 }), "{printed:?} {next:?}");
        if granted {
            return;
        }
    }
}

/// Would fail if a killed program kept its place in line.
#[test]
fn killed_acquire_leaves_the_line() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a", "--ttl", "1h", "--json"]);
    let waiter = shell.start(["acquire", "a", "--ttl", "1h"]);
    shell.waiting("a", 1);
    drop(waiter);
    shell.waiting("a", 0);
}

/// The first of several servers hung. Each command waited 15 seconds for it before it tried the
/// next one, and a lock with a TTL of 10 seconds that was to be renewed was gone by then.
#[test]
fn hanging_server_does_not_cost_the_lock() {
    let shell = Shell::with_nodes(1);
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hung = hangs.local_addr().expect("an address");
    let both = format!("http://{hung},{}", shell.servers());
    let run = |args: &[&str]| -> CommandResult {
        shell.command(args).env("HOLDFAST_SERVER", &both).output().expect("holdfast runs").into()
    };
    let grant = shell.json(["acquire", "seat", "--ttl", "10s", "--json"]);
    let (token, secret) = (grant["fencing_token"].to_string(), grant["secret"].as_str());
    let secret = secret.expect("a secret");
    let renewed = run(&["renew", "seat", "--ttl", "60s", "--token", &token, "--secret", secret]);
    assert_eq!(renewed.code, Some(0), "{renewed:?}");
    let shown = run(&["show", "seat"]);
    assert!(shown.out.contains("1 holding"), "{shown:?}");
}

/// A script that retries on exit code 75 never stopped: invalid values had that code too.
#[test]
fn invalid_values_are_usage_errors() {
    let shell = Shell::with_nodes(1);
    let long = "n".repeat(600);
    for args in [
        vec!["acquire", "--ttl", "5s", &long],
        vec!["acquire", "--ttl", "400d", "seat"],
        vec!["acquire", "--ttl", "5s", "seat", "seat"],
        vec!["lock", &long, "--", "true"],
    ] {
        let printed = shell.run(&args);
        assert_eq!(printed.code, Some(64), "{args:?}: {printed:?}");
    }
}
