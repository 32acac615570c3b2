//! A lock kept by hand, as a script does.

use crate::cli::Shell;
use serde_json::json;
use std::process::Command;

/// Would fail if what `acquire` prints could not be used by a shell, or by the commands after it.
#[test]
fn a_script_takes_renews_notes_and_releases() {
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
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for told in ["token 1 is held for 1m30s", "half way", "nothing to recover", "released token 1"]
    {
        assert!(said.contains(told), "`{told}` is not in:\n{said}");
    }
    assert!(said.ends_with("seat 12  free\n"), "{said}");
}

/// Would fail if a repeated request drew a second ticket, or if its outcome were another one's.
#[test]
fn a_request_has_one_outcome() {
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
fn what_can_not_be_done_has_its_code_and_the_next_step() {
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
        let said = shell.run(args);
        assert_eq!(said.code, Some(code), "{args:?}: {said:?}");
        assert!(said.err.contains(hint), "{args:?}: {said:?}");
    }
}

/// Would fail if the register took the word of a holder that is not the newest.
#[test]
fn the_register_refuses_an_old_token() {
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

/// Would fail if a program that was killed kept its place in line.
#[test]
fn a_killed_acquire_leaves_the_line() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a", "--ttl", "1h", "--json"]);
    let waiter = shell.start(["acquire", "a", "--ttl", "1h"]);
    shell.waiting("a", 1);
    drop(waiter);
    shell.waiting("a", 0);
}
