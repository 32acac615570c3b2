//! Operating a cluster with commands.

use crate::cli::Shell;
use crate::support::{HOLDFAST, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Would fail if members could not be changed with commands, or if a command that would stop the
/// cluster were carried out.
#[test]
fn members_can_be_added_replaced_and_removed() {
    let mut shell = Shell::with_nodes(3);
    let add = shell.run(["members", "add", "127.0.0.1"]);
    assert_eq!(add.code, Some(0), "{add:?}");
    let line = add.out.trim();
    assert!(line.starts_with("holdfast serve --data-dir data --cluster-key cluster.key"), "{line}");
    // The printed command, with this test's folder and port.
    let join = line.split("--join ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let at = shell.cluster.add(["--join", join.expect("peers")]);
    shell.cluster.nodes[at].start();
    let asked = shell.cluster.nodes[0].port;
    eventually("the new node votes", || (shell.cluster.voters(asked).len() == 4).then_some(()));

    let dead = shell.cluster.follower();
    let dead_id = shell.cluster.nodes[dead].id(&shell.cluster.http).to_string();
    let new_id = shell.cluster.nodes[at].id(&shell.cluster.http).to_string();
    let asks = shell.run(["members", "replace", &dead_id]);
    assert_eq!(asks.code, Some(64), "{asks:?}");
    assert!(asks.err.contains("members add"), "{asks:?}");
    assert_eq!(shell.run(["members", "replace", &dead_id, "--by", &dead_id]).code, Some(75));
    assert_eq!(shell.run(["members", "replace", "99", "--by", &new_id]).code, Some(75));
    if dead != at {
        shell.cluster.nodes[dead].kill();
        let done = shell.run(["members", "replace", &dead_id, "--by", &new_id]);
        assert_eq!(done.out, format!("node {dead_id} is removed\n"), "{done:?}");
    }

    let follower = shell.cluster.follower();
    let id = shell.cluster.nodes[follower].id(&shell.cluster.http).to_string();
    let lead = shell.run(["members", "transfer", &id]);
    assert_eq!(lead.code, Some(0), "{lead:?}");
    eventually("it leads", || {
        let leader = shell.json(["status", "--json"])["leader"].as_u64();
        (leader.map(|leader| leader.to_string()).as_ref() == Some(&id)).then_some(())
    });
}

/// Would fail if a member could be removed whose vote the others need.
#[test]
fn removal_that_would_lose_the_majority_is_refused() {
    let mut shell = Shell::with_nodes(3);
    let dead = shell.cluster.follower();
    shell.cluster.nodes[dead].kill();
    let alive = shell.cluster.follower();
    let id = shell.cluster.nodes[alive].id(&shell.cluster.http).to_string();
    let printed = shell.run(["members", "remove", &id]);
    assert_eq!(printed.code, Some(75), "{printed:?}");
    assert!(printed.err.contains("majority") && printed.err.contains("--force"), "{printed:?}");
    assert_eq!(shell.cluster.voters(shell.cluster.nodes[alive].port).len(), 3);
}

/// Would fail if a backup were incomplete, readable by other users, or overwritten.
#[test]
fn backup_is_never_overwritten_and_can_be_restored() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a", "--ttl", "1h", "--json"]);
    let done = shell.run(["backup", "copy"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let mode = fs::metadata(shell.file("copy")).expect("a backup").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(shell.run(["backup", "copy"]).code, Some(64));
    let restored = shell.run(["restore", "--from", "copy", "--data-dir", "new"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(restored.err.contains("1 still hold"), "{restored:?}");
}

/// Would fail if a shell had no completions, or if they offered a hidden command.
#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let made = Command::new(HOLDFAST).args(["completions", shell]).output();
        let made = made.expect("holdfast runs");
        let script = String::from_utf8_lossy(&made.stdout);
        assert!(made.status.success() && script.contains("history"), "{shell}");
    }
    let help = Command::new(HOLDFAST).arg("--help").output().expect("holdfast runs");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("guard-child"));
}
