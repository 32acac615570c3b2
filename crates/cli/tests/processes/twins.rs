//! Copies of a data folder: two nodes never run under one id.

use crate::support::{Cluster, HOLDFAST, Load, Node};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A copied folder once ran next to its original, and nobody noticed: both voted and acknowledged
/// as node 2. With the right two other nodes down, acknowledged tokens were issued again.
#[test]
fn copied_folder_does_not_run_beside_the_original() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(2, cluster.ports());
    load.goes_on(10);
    let twin = cluster.add([]);
    cluster.nodes[1].signal(Signal::STOP);
    copy(&cluster.nodes[1].folder, &cluster.nodes[twin].folder);
    cluster.nodes[1].signal(Signal::CONT);

    let printed = must_not_start(&mut cluster.nodes[twin]);
    assert!(printed.contains("its files were copied"), "{printed}");
    assert!(printed.contains("holdfast accept-move --data-dir"), "{printed}");

    // Someone accepts the move although the original is running: the other nodes notice.
    accept_move(&cluster.nodes[twin].folder);
    cluster.nodes[twin].start();
    assert!(!cluster.nodes[twin].ended().success());
    let printed = cluster.nodes[twin].printed();
    let original = cluster.nodes[1].peer();
    assert!(
        printed.contains(&format!("another node runs under this node's id, at {original}")),
        "{printed}"
    );
    // And it does not try again when the original is away for a moment.
    cluster.nodes[1].kill();
    let printed = must_not_start(&mut cluster.nodes[twin]);
    assert!(printed.contains("another node runs under this node's id"), "{printed}");
    cluster.nodes[1].start();
    cluster.all_ready();
    load.goes_on(10);
    load.finish(&cluster.http);
}

/// A folder from before its node's last start has forgotten what the node promised since.
#[test]
fn old_copy_is_refused_while_the_original_is_down() {
    let mut cluster = Cluster::start(3);
    let copy = copy_of(&mut cluster, 1);
    let port = cluster.nodes[0].port;
    cluster.http.grab(port, "since");
    accept_move(&cluster.nodes[copy].folder);
    cluster.nodes[1].kill();

    cluster.nodes[copy].start();
    assert!(!cluster.nodes[copy].ended().success());
    let printed = cluster.nodes[copy].printed();
    assert!(printed.contains("a later start under this node's id has been seen"), "{printed}");

    cluster.nodes[1].start();
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[1].port, "after");
}

/// The others remembered the starts of a node only until they were restarted themselves.
#[test]
fn old_copy_is_refused_after_the_others_restarted() {
    let mut cluster = Cluster::start(3);
    let copy = copy_of(&mut cluster, 1);
    cluster.http.grab(cluster.nodes[0].port, "since");
    accept_move(&cluster.nodes[copy].folder);
    cluster.nodes[1].kill();
    for at in [0, 2] {
        cluster.nodes[at].kill();
        cluster.nodes[at].start();
        cluster.all_ready();
    }
    cluster.nodes[copy].start();
    assert!(!cluster.nodes[copy].ended().success());
    let printed = cluster.nodes[copy].printed();
    assert!(printed.contains("a later start under this node's id has been seen"), "{printed}");
}

/// A copy that is put back over the folder leaves the file `identity` the same: only its creation
/// time was compared, so the node ran with an old log.
#[test]
fn old_copy_restored_over_its_folder_does_not_start() {
    let mut cluster = Cluster::start(1);
    let folder = cluster.nodes[0].folder.clone();
    let port = cluster.nodes[0].port;
    let old = folder.with_file_name("old");

    // Made while the node was stopped, and put back after it was continued.
    cluster.nodes[0].signal(Signal::STOP);
    copy(&folder, &old);
    cluster.nodes[0].signal(Signal::CONT);
    cluster.http.grab(port, "since");
    assert!(cluster.nodes[0].stop().success());
    let newest = folder.with_file_name("newest");
    copy(&folder, &newest);
    put_back(&old, &folder);
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("an older copy was put back over this folder"), "{printed}");
    assert!(printed.contains("holdfast rejoin"), "{printed}");
    let (accepted, printed) = run_accept_move(&folder);
    assert!(!accepted && printed.contains("an older copy was put back"), "{printed}");

    // What was there before is not an old copy.
    put_back(&newest, &folder);
    cluster.nodes[0].start();
    cluster.all_ready();
    assert_eq!(cluster.http.holders(port, "since").len(), 1);

    // A copy that was made before the last start.
    assert!(cluster.nodes[0].stop().success());
    put_back(&newest, &folder);
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("an older copy was put back over this folder"), "{printed}");
}

/// Only the log of an old copy was put back, and `stamp` and `site` stayed the same: the node ran
/// without what it had granted since, and issued those tokens again.
#[test]
fn old_log_restored_into_its_folder_does_not_start() {
    let mut cluster = Cluster::start(1);
    let folder = cluster.nodes[0].folder.clone();
    let port = cluster.nodes[0].port;
    cluster.http.grab(port, "before");
    assert!(cluster.nodes[0].stop().success());
    let old = folder.with_file_name("old");
    copy(&folder, &old);
    cluster.nodes[0].start();
    cluster.all_ready();
    cluster.http.grab(port, "since");
    assert!(cluster.nodes[0].stop().success());
    let newest = folder.with_file_name("newest");
    copy(&folder, &newest);

    put_log_back(&old, &folder);
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("older log files were put back"), "{printed}");
    assert!(printed.contains("holdfast rejoin"), "{printed}");

    // Its own log is as good as before.
    put_log_back(&newest, &folder);
    cluster.nodes[0].start();
    cluster.all_ready();
    assert_eq!(cluster.http.holders(port, "since").len(), 1);
}

/// A copy made of hard links has the very same files as its folder, so neither the time of
/// `identity` nor that of `stamp` distinguished it. Started in the folder's place, it had lost what
/// was granted since the next segment of the log began, and issued those tokens again.
#[test]
fn hard_linked_copy_does_not_start() {
    let mut cluster = Cluster::start(1);
    let folder = cluster.nodes[0].folder.clone();
    let port = cluster.nodes[0].port;
    let old = folder.with_file_name("old");
    let copied = Command::new("cp").arg("-al").arg(&folder).arg(&old).status();
    assert!(copied.expect("cp runs").success());
    cluster.http.grab(port, "since");
    assert!(cluster.nodes[0].stop().success());

    // In the place of its original.
    let newest = folder.with_file_name("newest");
    fs::rename(&folder, &newest).expect("the folder can be renamed");
    fs::rename(&old, &folder).expect("and the copy");
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("shares files with another folder: "), "{printed}");
    assert!(printed.contains(" has 2 names"), "{printed}");
    assert!(printed.contains("--join PEER-ADDRESS"), "{printed}");
    let (accepted, printed) = run_accept_move(&folder);
    assert!(!accepted && printed.contains("shares files with another folder"), "{printed}");

    // Nor does the original, as long as nobody has said which is which.
    fs::rename(&folder, &old).expect("the copy can be renamed");
    fs::rename(&newest, &folder).expect("and the folder");
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("shares files with another folder"), "{printed}");

    // Without the copy it is an ordinary folder again.
    fs::remove_dir_all(&old).expect("the copy can be removed");
    cluster.nodes[0].start();
    cluster.all_ready();
    assert_eq!(cluster.http.holders(port, "since").len(), 1);
}

/// A machine that has lost power leaves connections behind that look alive. The next process under
/// its id must get in, and then the previous one must not, should it be alive after all.
#[test]
fn unresponsive_run_is_superseded_permanently() {
    let mut cluster = Cluster::start(3);
    let follower = cluster.follower();
    cluster.nodes[follower].stop();
    let moved = cluster.add([]);
    copy(&cluster.nodes[follower].folder, &cluster.nodes[moved].folder);
    accept_move(&cluster.nodes[moved].folder);
    cluster.nodes[follower].start();
    cluster.nodes[follower].ready(&cluster.http);
    cluster.nodes[follower].signal(Signal::STOP);

    // Started as often as its original, and once more: a later start.
    cluster.nodes[moved].start();
    assert!(!cluster.nodes[moved].ended().success(), "two with the same number of starts");
    fs::remove_dir_all(&cluster.nodes[moved].folder).expect("the folder can be removed");
    copy(&cluster.nodes[follower].folder, &cluster.nodes[moved].folder);
    accept_move(&cluster.nodes[moved].folder);
    cluster.nodes[moved].start();
    cluster.nodes[moved].ready(&cluster.http);

    cluster.nodes[follower].signal(Signal::CONT);
    assert!(!cluster.nodes[follower].ended().success());
    let printed = cluster.nodes[follower].printed();
    assert!(printed.contains("a later start under this node's id has been seen"), "{printed}");
    cluster.http.grab(cluster.nodes[moved].port, "after");
}

/// A machine whose disk was not mounted was started as the guide says, with the cluster's key and
/// an empty folder. It started its own cluster under that key and granted every lock a second time,
/// and the healthy node 1 that connected to it was told that it must never come back.
#[test]
fn empty_folder_with_an_existing_key_does_not_start_a_cluster() {
    let mut cluster = Cluster::start(3);
    let port = cluster.nodes[0].port;
    let held = cluster.http.grab(port, "seat");
    assert!(cluster.nodes[1].stop().success());
    std::fs::remove_dir_all(&cluster.nodes[1].folder).expect("the folder goes");
    let empty = cluster.add([]);
    let printed = must_not_start(&mut cluster.nodes[empty]);
    assert!(
        printed.contains("the key of a cluster that exists") && printed.contains("--join"),
        "{printed}"
    );
    assert_eq!(cluster.http.holders(port, "seat"), [held.token]);
}

/// A folder that was renamed, or was used by an older version, is not a copy.
#[test]
fn renamed_folders_and_folders_of_older_versions_start() {
    let mut cluster = Cluster::start(1);
    assert!(cluster.nodes[0].stop().success());
    let folder = cluster.nodes[0].folder.clone();
    let renamed = folder.with_file_name("renamed");
    fs::rename(&folder, &renamed).expect("the folder can be renamed");
    fs::rename(&renamed, &folder).expect("and back");
    cluster.nodes[0].start();
    cluster.all_ready();
    assert!(cluster.nodes[0].stop().success());
    fs::remove_file(folder.join("site")).expect("what an older program did not write");
    cluster.nodes[0].start();
    cluster.all_ready();
    assert!(folder.join("site").exists());

    // Nothing to accept.
    assert!(cluster.nodes[0].stop().success());
    let refused = run_accept_move(&folder);
    assert!(!refused.0 && refused.1.contains("was not moved"), "{}", refused.1);
}

/// Stops a node, copies its folder and restarts it; returns the index of a node for the copy.
fn copy_of(cluster: &mut Cluster, original: usize) -> usize {
    assert!(cluster.nodes[original].stop().success());
    let at = cluster.add([]);
    copy(&cluster.nodes[original].folder, &cluster.nodes[at].folder);
    cluster.nodes[original].start();
    cluster.nodes[original].ready(&cluster.http);
    at
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
    // Only for people.
    let _ = fs::remove_file(to.join("pid"));
}

/// Over the existing files.
fn put_back(copy: &Path, folder: &Path) {
    let copied = Command::new("cp").arg("-a").arg(copy.join(".")).arg(folder).status();
    assert!(copied.expect("cp runs").success());
}

/// The log and the snapshots only.
fn put_log_back(copy: &Path, folder: &Path) {
    for entry in fs::read_dir(copy).expect("the copy can be read") {
        let name = entry.expect("the copy can be read").file_name();
        let text = name.to_string_lossy();
        if text.starts_with("log-") || text.starts_with("snapshot-") {
            fs::copy(copy.join(&name), folder.join(&name)).expect("a file can be put back");
        }
    }
}

fn accept_move(folder: &Path) {
    let (done, printed) = run_accept_move(folder);
    assert!(done, "{printed}");
}

fn run_accept_move(folder: &Path) -> (bool, String) {
    let mut command = Command::new(HOLDFAST);
    let output = command.args(["accept-move", "--data-dir"]).arg(folder).output();
    let output = output.expect("holdfast runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn must_not_start(node: &mut Node) -> String {
    node.start();
    assert!(!node.ended().success());
    let printed = node.printed();
    assert!(!printed.contains("serves at"), "{printed}");
    printed
}
