//! Copies of a data folder: two nodes never run under one id.

use crate::support::{Cluster, HOLDFAST, Load, Node};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A copied folder once ran next to its original, and nobody noticed: both voted and acknowledged
/// as node 2. With the right two other nodes down, acknowledged tokens were issued again.
#[test]
fn a_copied_folder_does_not_run_beside_its_original() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(2, cluster.ports());
    load.goes_on(10);
    let twin = cluster.add([]);
    cluster.nodes[1].signal(Signal::STOP);
    copy(&cluster.nodes[1].folder, &cluster.nodes[twin].folder);
    cluster.nodes[1].signal(Signal::CONT);

    let said = must_not_start(&mut cluster.nodes[twin]);
    assert!(said.contains("its files were copied"), "{said}");
    assert!(said.contains("holdfast accept-move --data-dir"), "{said}");

    // Someone accepts the move although the original is running: the other nodes notice.
    accept_move(&cluster.nodes[twin].folder);
    cluster.nodes[twin].start();
    assert!(!cluster.nodes[twin].ended().success());
    let said = cluster.nodes[twin].said();
    let original = cluster.nodes[1].peer();
    assert!(
        said.contains(&format!("another node runs under this node's id, at {original}")),
        "{said}"
    );
    // And it does not try again when the original is away for a moment.
    cluster.nodes[1].kill();
    let said = must_not_start(&mut cluster.nodes[twin]);
    assert!(said.contains("another node runs under this node's id"), "{said}");
    cluster.nodes[1].start();
    cluster.all_ready();
    load.goes_on(10);
    load.finish(&cluster.http);
}

/// A folder from before its node's last start has forgotten what the node promised since.
#[test]
fn an_old_copy_is_not_let_in_while_its_original_is_down() {
    let mut cluster = Cluster::start(3);
    let copy = copy_of(&mut cluster, 1);
    let port = cluster.nodes[0].port;
    cluster.http.grab(port, "since");
    accept_move(&cluster.nodes[copy].folder);
    cluster.nodes[1].kill();

    cluster.nodes[copy].start();
    assert!(!cluster.nodes[copy].ended().success());
    let said = cluster.nodes[copy].said();
    assert!(said.contains("a later start under this node's id has been seen"), "{said}");

    cluster.nodes[1].start();
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[1].port, "after");
}

/// The others remembered the starts of a node only until they were restarted themselves.
#[test]
fn an_old_copy_is_not_let_in_after_the_others_were_restarted() {
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
    let said = cluster.nodes[copy].said();
    assert!(said.contains("a later start under this node's id has been seen"), "{said}");
}

/// A copy that is put back over the folder leaves the file `identity` the same: only its creation
/// time was compared, so the node ran with an old log.
#[test]
fn an_old_copy_that_is_put_back_over_its_folder_does_not_start() {
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
    let said = must_not_start(&mut cluster.nodes[0]);
    assert!(said.contains("an older copy was put back over this folder"), "{said}");
    assert!(said.contains("holdfast rejoin"), "{said}");
    let (accepted, said) = run_accept_move(&folder);
    assert!(!accepted && said.contains("an older copy was put back"), "{said}");

    // What was there before is not an old copy.
    put_back(&newest, &folder);
    cluster.nodes[0].start();
    cluster.all_ready();
    assert_eq!(cluster.http.holders(port, "since").len(), 1);

    // A copy that was made before the last start.
    assert!(cluster.nodes[0].stop().success());
    put_back(&newest, &folder);
    let said = must_not_start(&mut cluster.nodes[0]);
    assert!(said.contains("an older copy was put back over this folder"), "{said}");
}

/// Only the log of an old copy was put back, and `stamp` and `site` stayed the same: the node ran
/// without what it had granted since, and issued those tokens again.
#[test]
fn an_old_log_that_is_put_back_into_its_folder_does_not_start() {
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
    let said = must_not_start(&mut cluster.nodes[0]);
    assert!(said.contains("older log files were put back"), "{said}");
    assert!(said.contains("holdfast rejoin"), "{said}");

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
fn a_copy_made_of_hard_links_does_not_start() {
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
    let said = must_not_start(&mut cluster.nodes[0]);
    assert!(said.contains("shares files with another folder: "), "{said}");
    assert!(said.contains(" has 2 names"), "{said}");
    assert!(said.contains("--join PEER-ADDRESS"), "{said}");
    let (accepted, said) = run_accept_move(&folder);
    assert!(!accepted && said.contains("shares files with another folder"), "{said}");

    // Nor does the original, as long as nobody has said which is which.
    fs::rename(&folder, &old).expect("the copy can be renamed");
    fs::rename(&newest, &folder).expect("and the folder");
    let said = must_not_start(&mut cluster.nodes[0]);
    assert!(said.contains("shares files with another folder"), "{said}");

    // Without the copy it is an ordinary folder again.
    fs::remove_dir_all(&old).expect("the copy can be removed");
    cluster.nodes[0].start();
    cluster.all_ready();
    assert_eq!(cluster.http.holders(port, "since").len(), 1);
}

/// A machine that has lost power leaves connections behind that look alive. The next process under
/// its id must get in, and then the previous one must not, should it be alive after all.
#[test]
fn one_that_does_not_answer_makes_room_for_good() {
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
    let said = cluster.nodes[follower].said();
    assert!(said.contains("a later start under this node's id has been seen"), "{said}");
    cluster.http.grab(cluster.nodes[moved].port, "after");
}

/// A machine whose disk was not mounted was started as the guide says, with the cluster's key and
/// an empty folder. It started its own cluster under that key and granted every lock a second time,
/// and the healthy node 1 that connected to it was told that it must never come back.
#[test]
fn an_empty_folder_does_not_begin_a_cluster_under_a_key_that_exists() {
    let mut cluster = Cluster::start(3);
    let port = cluster.nodes[0].port;
    let held = cluster.http.grab(port, "seat");
    assert!(cluster.nodes[1].stop().success());
    std::fs::remove_dir_all(&cluster.nodes[1].folder).expect("the folder goes");
    let empty = cluster.add([]);
    let said = must_not_start(&mut cluster.nodes[empty]);
    assert!(said.contains("the key of a cluster that exists") && said.contains("--join"), "{said}");
    assert_eq!(cluster.http.holders(port, "seat"), [held.token]);
}

/// A folder that was renamed, or was used by an older version, is not a copy.
#[test]
fn a_renamed_folder_and_that_of_an_older_program_start_as_before() {
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
    let (done, said) = run_accept_move(folder);
    assert!(done, "{said}");
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
    let said = node.said();
    assert!(!said.contains("serves at"), "{said}");
    said
}
