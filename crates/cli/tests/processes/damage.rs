//! A damaged node does not start, and says how to recover.

use crate::support::{Cluster, HOLDFAST, Held, Node, eventually, new_key, tokens};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Would fail if a node started with a changed log or snapshot, if what its message says did not
/// work, or if it came back under its old id.
#[test]
fn damaged_node_of_three_rejoins_as_a_new_member() {
    let mut cluster = Cluster::start(3);
    let port = cluster.nodes[0].port;
    let held: Vec<Held> =
        (0..5).map(|number| cluster.http.grab(port, &format!("seat-{number}"))).collect();

    for (at, file, new_id) in [(2, "log-", 4), (1, "snapshot-", 5)] {
        assert!(cluster.nodes[at].stop().success());
        let old_id = at as u64 + 1;
        let file = newest(&cluster.nodes[at].folder, file);
        flip(&file, written(&file) / 2);
        let printed = must_not_start(&mut cluster.nodes[at]);
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(printed.contains(name) && printed.contains("damaged"), "{printed}");

        // As the message says, with a member's address.
        let line = printed.lines().find(|line| line.trim().starts_with("holdfast rejoin"));
        let line = line
            .expect("it says how to come back")
            .replace("PEER-ADDRESS", &cluster.nodes[0].peer());
        let mut words = line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
        words.extend(["--port".to_owned(), cluster.nodes[at].port.to_string()]);
        let rejoined = must_run(&words);
        assert!(
            rejoined.contains(&format!("node {old_id} comes back as node {new_id}")),
            "{rejoined}"
        );

        cluster.nodes[at].start();
        cluster.nodes[at].ready(&cluster.http);
        assert_eq!(cluster.nodes[at].id(&cluster.http), new_id);
        eventually("the new id votes and the old one is gone", || {
            let voters = cluster.voters(port);
            (voters.contains(&new_id) && !voters.contains(&old_id)).then_some(())
        });
        for held in &held {
            let holders = cluster.http.holders(cluster.nodes[at].port, &held.name);
            assert_eq!(holders, [held.token], "{} after the rejoin", held.name);
        }
    }
    // Only the two that came back and one of the original nodes are up: one of the two is needed
    // now.
    cluster.nodes[0].kill();
    let again = cluster.http.grab(cluster.nodes[1].port, "another");
    assert!(again.token > held[4].token);
}

/// A node whose folder is gone has forgotten what it voted for and acknowledged. Started like the
/// first time, it once came back under its old id, and the first heartbeat crashed it in the Raft
/// library; after a change of leader it might have voted a second time instead.
#[test]
fn node_that_lost_its_folder_cannot_reuse_its_id() {
    let mut cluster = Cluster::start(3);
    for port in cluster.ports() {
        cluster.http.grab(port, &format!("by-{port}"));
    }
    cluster.nodes[2].kill();
    fs::remove_dir_all(&cluster.nodes[2].folder).expect("the folder can be removed");
    cluster.nodes[2].start();
    assert!(!cluster.nodes[2].ended().success());
    let printed = cluster.nodes[2].printed();
    assert!(printed.contains("must not come back under its old id"), "{printed}");

    // The others keep serving, and it may come back under another id.
    let peers = format!("{},{}", cluster.nodes[0].peer(), cluster.nodes[1].peer());
    let new = cluster.add(["--join", &peers]);
    cluster.nodes[new].start();
    cluster.nodes[new].ready(&cluster.http);
    let port = cluster.nodes[0].port;
    eventually("the new member votes", || cluster.voters(port).contains(&4).then_some(()));
    cluster.http.post_ok(port, "/v1/members/remove", &json!({ "node": 3 }));
    cluster.http.grab(cluster.nodes[new].port, "after");
}

/// The last record of a log is vouched for only by the next one. If the disk damaged it at rest, it
/// was taken for a torn write and cut off, although the leader had counted on it: the next
/// heartbeat then crashed the node in the Raft library, at every start. After a change of leader it
/// might have voted an acknowledged entry away instead.
#[test]
fn node_that_lost_acknowledged_entries_stops_and_rejoins() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let at = (leader + 1) % 3;
    let (leader_port, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let mut printed = None;
    for attempt in 0..30 {
        cluster.http.grab(leader_port, &format!("tail-{attempt}"));
        let applied = |port| cluster.http.get_ok(port, "/v1/status")["applied"].as_u64();
        let last = applied(leader_port);
        eventually("the follower has it", || (applied(port) >= last).then_some(()));
        cluster.nodes[at].kill();
        let file = newest(&cluster.nodes[at].folder, "log-");
        let records = records(&file);
        let entry = records.iter().rposition(|(_, kind)| *kind == ENTRY).expect("an entry");
        let vouched = records[entry..].iter().any(|(_, kind)| *kind == SYNCED);
        if !vouched {
            flip(&file, records[entry].0 + 60);
        }
        cluster.nodes[at].start();
        if vouched {
            // Too late: it is known to be synced by now.
            cluster.nodes[at].ready(&cluster.http);
            continue;
        }
        // If another node leads by now, nobody knows what this one had.
        let ended = eventually("it ends or serves", || {
            let ready = || cluster.http.get(port, "/readyz").is_ok_and(|reply| reply.status == 200);
            if !cluster.nodes[at].is_running() { Some(true) } else { ready().then_some(false) }
        });
        if ended {
            printed = Some(cluster.nodes[at].printed());
            break;
        }
    }
    let printed = printed.expect("the last record was damaged before it was vouched for");
    assert!(
        printed.contains("its log ends at entry") && !printed.contains("panicked"),
        "{printed}"
    );

    // It stays that way, whichever node leads.
    let printed = must_not_start(&mut cluster.nodes[at]);
    assert!(printed.contains("its log ends at entry"), "{printed}");
    let line = printed.lines().find(|line| line.trim().starts_with("holdfast rejoin"));
    let line = line.expect("it says how to come back");
    let line = line.replace("PEER-ADDRESS", &cluster.nodes[leader].peer());
    let mut words = line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
    words.extend(["--port".to_owned(), port.to_string()]);
    // The second time before the first has finished: the old id was then never removed, or the new
    // one was.
    must_run(&words);
    must_run(&words);
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    let old = at as u64 + 1;
    let expected: Vec<u64> = (1..=4).filter(|id| *id != old).collect();
    eventually("the new id votes", || (cluster.voters(leader_port) == expected).then_some(()));
}

/// A cluster of one that holds a lock with a deadline and one with a session lease.
struct SingleNode {
    cluster: Cluster,
    early: Held,
    session: Value,
}

impl SingleNode {
    fn start() -> Self {
        let mut cluster = Cluster::empty();
        let at = cluster.add_alone();
        cluster.nodes[at].start();
        cluster.all_ready();
        let (http, port) = (&cluster.http, cluster.nodes[at].port);
        let early = http.grab(port, "early");
        let opened = http.post_ok(port, "/v1/sessions/open", &json!({ "ttl_ms": 86_400_000 }));
        let session = opened["session"].clone();
        let grab = json!({ "name": "by-session", "session": session });
        http.post_ok(port, "/v1/grab_lock", &grab);
        Self { cluster, early, session }
    }

    /// Damages what was written last, and returns what the node reports.
    fn damage(&mut self) -> String {
        let node = &mut self.cluster.nodes[0];
        let file = newest(&node.folder, "log-");
        let before = written(&file);
        self.cluster.http.grab(node.port, "late");
        let after = written(&file);
        assert!(node.stop().success());
        // In the middle of what was written for the late lock.
        flip(&file, (before + after) / 2);
        let printed = must_not_start(node);
        assert!(
            printed.contains("holdfast restore --from BACKUP --data-dir NEW-FOLDER"),
            "{printed}"
        );
        printed
    }

    /// Restores into a new folder and starts it; returns its index in `nodes`.
    fn restore(&mut self, from: &[&str]) -> usize {
        let at = self.cluster.add_alone();
        let node = &mut self.cluster.nodes[at];
        let mut words = vec!["restore".to_owned()];
        words.extend(from.iter().map(|word| (*word).to_owned()));
        words.extend(["--data-dir".to_owned(), node.folder.display().to_string()]);
        words.extend(["--port".to_owned(), node.port.to_string()]);
        let printed = must_run(&words);
        assert!(printed.contains("what was held needs recovery"), "{printed}");
        node.start();
        node.ready(&self.cluster.http);
        at
    }

    /// What must be true in a restored cluster. Returns one of its tokens.
    fn check(&self, at: usize) -> u64 {
        let (http, port) = (&self.cluster.http, self.cluster.nodes[at].port);
        let early = http.get_ok(port, "/v1/lock?name=early");
        assert_eq!(tokens(&early["holders"]), [self.early.token], "{early}");
        assert!(early["needs_recovery"].is_object(), "{early}");
        let by_session = http.get_ok(port, "/v1/lock?name=by-session");
        assert_eq!(by_session["holding"], 0, "its session has ended: {by_session}");
        assert!(by_session["needs_recovery"].is_object(), "{by_session}");
        let beat = json!({ "session": self.session });
        let beat = http.post(port, "/v1/sessions/heartbeat", &beat).expect("an answer");
        assert_eq!(beat.code(), "session_ended", "{}", beat.body);
        let new = http.grab(port, "new");
        assert!(new.token > self.early.token + (1 << 40), "tokens go on from {}", new.token);
        new.token
    }
}

/// Would fail if a restored cluster could draw a token of the old one, or of another restore.
#[test]
fn single_node_is_restored_from_a_backup() {
    let mut lonely = SingleNode::start();
    let backup = lonely.cluster.path().join("holdfast.backup");
    let bytes = lonely.cluster.http.download(lonely.cluster.nodes[0].port, "/v1/backup");
    fs::write(&backup, bytes.expect("a backup")).expect("the backup can be written");
    lonely.damage();

    let from = backup.display().to_string();
    let first = lonely.restore(&["--from", &from]);
    let token = lonely.check(first);
    let late = lonely.cluster.http.holders(lonely.cluster.nodes[first].port, "late");
    assert!(late.is_empty(), "it was granted after the backup: {late:?}");
    // Two restores within one second may draw the same numbers, as docs/guarantees.md says.
    std::thread::sleep(Duration::from_millis(1_100));
    let second = lonely.restore(&["--from", &from]);
    assert_ne!(lonely.check(second), token);

    // Leftovers of another node must not mix with what is restored: here, a log without its
    // identity.
    let leftover = lonely.cluster.path().join("leftover");
    fs::create_dir(&leftover).expect("a folder can be made");
    fs::write(leftover.join("log-00000000000000000001"), "old").expect("a file can be written");
    let into = leftover.display().to_string();
    let refused = run(&["restore", "--from", &from, "--data-dir", &into]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("is not empty"), "{}", text(&refused));

    // A damaged backup is refused, and creates nothing.
    flip(&backup, written(&backup) / 2);
    let folder = lonely.cluster.path().join("never");
    let refused = run(&["restore", "--from", &from, "--data-dir", &folder.display().to_string()]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("damaged"), "{}", text(&refused));
    assert!(!folder.join("identity").exists());
}

/// Would fail if readable data were thrown away, or if the loss were accepted silently.
#[test]
fn single_node_restarts_after_an_accepted_loss() {
    let mut lonely = SingleNode::start();
    let printed = lonely.damage();
    let damaged = lonely.cluster.nodes[0].folder.display().to_string();
    assert!(printed.contains(&format!("holdfast restore --accept-loss {damaged}")), "{printed}");
    let at = lonely.restore(&["--accept-loss", &damaged]);
    lonely.check(at);
    let late = lonely.cluster.http.holders(lonely.cluster.nodes[at].port, "late");
    assert!(late.is_empty(), "what was damaged can't be known: {late:?}");
}

/// Would fail if a failed rejoin left a folder that starts a new cluster, under the id and the key
/// of a node that has voted before.
#[test]
fn failed_rejoin_changes_nothing() {
    let mut cluster = Cluster::start(1);
    let node = &mut cluster.nodes[0];
    assert!(node.stop().success());
    let file = newest(&node.folder, "log-");
    flip(&file, written(&file) / 2);
    let before = must_not_start(node);
    let folder = node.folder.display().to_string();
    let key = cluster.key.display().to_string();
    let words = ["rejoin", "--data-dir", &folder, "--cluster-key", &key, "--join", "127.0.0.1:1"];
    let refused = run(&words);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("no reply from 127.0.0.1:1"), "{}", text(&refused));
    assert_eq!(must_not_start(node), before);

    // Interrupted after the old files were set aside.
    fs::create_dir(node.folder.join("damaged-1")).expect("a folder can be made");
    for name in ["identity", "log-", "snapshot-"] {
        let file = newest(&node.folder, name);
        let aside = node.folder.join("damaged-1").join(file.file_name().expect("a name"));
        fs::rename(&file, aside).expect("a file can be moved");
    }
    let printed = must_not_start(node);
    assert!(printed.contains("it has not rejoined"), "{printed}");
}

/// A rejoin was killed after it had set the old files aside. Repeated, it did not know which node
/// the folder had been, and asked for `--replaces` with an id that the operator had to look up.
#[test]
fn interrupted_rejoin_can_be_repeated() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.nodes[2].stop().success());
    let folder = cluster.nodes[2].folder.clone();
    let aside = folder.join("damaged-1");
    fs::create_dir(&aside).expect("a folder can be made");
    for entry in fs::read_dir(&folder).expect("the folder can be read") {
        let entry = entry.expect("a file");
        if entry.path() != aside && entry.file_name() != "lock" {
            fs::rename(entry.path(), aside.join(entry.file_name())).expect("it can be moved");
        }
    }
    let printed = must_not_start(&mut cluster.nodes[2]);
    let line = printed.lines().find(|line| line.trim().starts_with("holdfast rejoin"));
    let line = line.expect("it says what to run").replace("PEER-ADDRESS", &cluster.nodes[0].peer());
    let mut words = line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
    words.extend(["--port".to_owned(), cluster.nodes[2].port.to_string()]);
    let rejoined = must_run(&words);
    assert!(rejoined.contains("node 3 comes back as node 4"), "{rejoined}");

    cluster.nodes[2].start();
    cluster.nodes[2].ready(&cluster.http);
    let port = cluster.nodes[0].port;
    eventually("node 4 votes and node 3 is gone", || {
        (cluster.voters(port) == [1, 2, 4]).then_some(())
    });
}

/// Would fail if a node used the data of another cluster.
#[test]
fn key_of_another_cluster_is_refused() {
    let mut cluster = Cluster::start(1);
    assert!(cluster.nodes[0].stop().success());
    new_key(&cluster.key);
    let printed = must_not_start(&mut cluster.nodes[0]);
    assert!(printed.contains("use the key or the folder of the other"), "{printed}");
}

/// Starts a node that must refuse; returns its output.
fn must_not_start(node: &mut Node) -> String {
    node.start();
    let status = node.ended();
    let printed = node.printed();
    assert!(!status.success(), "it started and ended in order: {printed}");
    assert!(!printed.contains("serves at"), "{printed}");
    printed
}

fn run<S: AsRef<str>>(words: &[S]) -> Output {
    let words = words.iter().map(AsRef::as_ref);
    Command::new(HOLDFAST).args(words).output().expect("holdfast runs")
}

fn must_run(words: &[String]) -> String {
    let done = run(words);
    assert!(done.status.success(), "{words:?}: {}", text(&done));
    text(&done)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn newest(folder: &Path, prefix: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("the folder can be read");
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    paths.filter(named).max().expect("there is such a file")
}

/// Kinds of records, as in docs/storage-format.md.
const ENTRY: u64 = 2;
const SYNCED: u64 = 6;

/// Where each record of a log begins, and its kind.
fn records(file: &Path) -> Vec<(usize, u64)> {
    let bytes = fs::read(file).expect("the file can be read");
    let number = |at: usize, count: usize| {
        let mut word = [0; 8];
        word[..count].copy_from_slice(&bytes[at..at + count]);
        u64::from_le_bytes(word)
    };
    let mut records = Vec::new();
    let mut at = 32;
    while at + 40 <= bytes.len() && number(at + 32, 8) != 0 {
        records.push((at, number(at + 32, 8)));
        at += 40 + (number(at + 12, 4) as usize).next_multiple_of(8);
    }
    records
}

/// The length of a file without the zeros at its end.
fn written(file: &Path) -> usize {
    let bytes = fs::read(file).expect("the file can be read");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("the file can be read");
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("the file can be written");
}
