//! A new cluster from a backup or a damaged folder: complete, or not at all.

use crate::members::join;
use crate::support::{Cluster, HOLDFAST, Held};
use serde_json::json;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Killed at any moment, a restore left a folder that looked new, or had a key and no node: `serve`
/// started an empty cluster in it, and drew tokens from 1 on, which the old cluster had already
/// drawn.
#[test]
fn killed_restore_does_not_start_and_can_be_repeated() {
    let mut cluster = Cluster::empty();
    let first = cluster.add_alone();
    cluster.nodes[first].start();
    cluster.all_ready();
    let port = cluster.nodes[first].port;
    let held: Vec<Held> =
        (0..50).map(|number| cluster.http.grab(port, &format!("seat-{number}"))).collect();
    let last = held.last().expect("some were granted");
    let backup = cluster.path().join("holdfast.backup");
    let bytes = cluster.http.download(port, "/v1/backup").expect("a backup");
    fs::write(&backup, bytes).expect("the backup can be written");
    assert!(cluster.nodes[first].stop().success());

    // The kernel kills it when a file grows beyond this many KiB: at the first byte that it writes,
    // in the snapshot, and in the log.
    for kib in [0, 1, 64] {
        let folder = cluster.path().join(format!("killed-{kib}"));
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -f \"$0\" && exec \"$@\"", &kib.to_string(), HOLDFAST]);
        let killed = restore(command, &["--from"], &backup, &folder);
        assert!(killed.status.signal().is_some(), "it was not killed: {}", text(&killed));
        repeat(&mut cluster, &backup, &folder, last);
    }

    // Killed when everything was there but the end of the mark, and before there was an identity.
    let mark = cluster.path().join("restoring");
    fs::write(&mark, "").expect("a file can be written");
    for without in [None, Some("identity")] {
        let folder = cluster.path().join(format!("whole-{}", without.unwrap_or("but-marked")));
        let done = restore(Command::new(HOLDFAST), &["--from"], &backup, &folder);
        assert!(done.status.success(), "{}", text(&done));
        fs::copy(&mark, folder.join("restoring")).expect("a file can be copied");
        if let Some(file) = without {
            fs::remove_file(folder.join(file)).expect("a file can be removed");
        }
        repeat(&mut cluster, &backup, &folder, last);
    }
}

/// A folder with an unfinished restore does not start; after another restore it does.
fn repeat(cluster: &mut Cluster, backup: &Path, folder: &Path, last: &Held) {
    let at = cluster.add_alone_in(folder);
    let node = &mut cluster.nodes[at];
    node.start();
    assert!(!node.ended().success(), "it started:\n{}", node.printed());
    assert!(node.printed().contains("did not finish"), "{}", node.printed());
    let done = restore(Command::new(HOLDFAST), &["--from"], backup, folder);
    assert!(done.status.success(), "{}", text(&done));
    node.start();
    node.ready(&cluster.http);
    let port = node.port;
    assert_eq!(cluster.http.holders(port, &last.name), [last.token]);
    assert!(cluster.http.grab(port, "new").token > last.token + (1 << 40));
    assert!(cluster.nodes[at].stop().success());
}

/// The log of a cluster of one that once had more members was applied only as far as its commit
/// index had been written: the last grants were lost although nothing was damaged.
#[test]
fn accept_loss_keeps_everything_readable() {
    let mut cluster = Cluster::start(1);
    let second = join(&mut cluster);
    let port = cluster.nodes[0].port;
    cluster.http.post_ok(port, "/v1/members/remove", &json!({ "node": 2 }));
    assert!(!cluster.nodes[second].ended().success());
    let held: Vec<Held> =
        (0..20).map(|number| cluster.http.grab(port, &format!("seat-{number}"))).collect();
    cluster.nodes[0].kill();

    let at = cluster.add_alone();
    let (from, to) = (cluster.nodes[0].folder.clone(), cluster.nodes[at].folder.clone());
    let done = restore(Command::new(HOLDFAST), &["--accept-loss"], &from, &to);
    assert!(done.status.success(), "{}", text(&done));
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    for held in held {
        let holders = cluster.http.holders(cluster.nodes[at].port, &held.name);
        assert_eq!(holders, [held.token], "{} after the restore", held.name);
    }
}

/// Whether it was a cluster of one was looked up in the snapshot, not in the log after it, and
/// nobody checked whether the node was still running: a second cluster granted the locks of the
/// first.
#[test]
fn accept_loss_is_refused_for_several_voters_and_running_nodes() {
    let mut cluster = Cluster::start(1);
    let (from, to) = (cluster.nodes[0].folder.clone(), cluster.path().join("to"));
    let refuse = |from: &PathBuf, why: &str| {
        let refused = restore(Command::new(HOLDFAST), &["--accept-loss"], from, &to);
        assert!(!refused.status.success(), "it was restored: {}", text(&refused));
        assert!(text(&refused).contains(why), "{}", text(&refused));
        assert!(!to.join("identity").exists());
    };
    refuse(&from, "is in use by process");
    let second = join(&mut cluster);
    assert!(cluster.nodes[second].stop().success());
    // With one of two voters down there is nobody to hand over to.
    cluster.nodes[0].kill();
    refuse(&from, "this was not a cluster of one: its voters are nodes 1, 2");
    refuse(&cluster.nodes[second].folder, "this was not a cluster of one");
}

fn restore(mut command: Command, from: &[&str], source: &Path, to: &Path) -> Output {
    command.arg("restore").args(from).arg(source).arg("--data-dir").arg(to);
    command.output().expect("holdfast runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
