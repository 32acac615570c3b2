//! A node with a full disk tells clients so, and continues when there is room again.

use crate::support::{Cluster, HOLDFAST, Held, Http, Node, TIMEOUT, unique};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A log segment has 64 MiB: one fits next to the ballast, two don't; without it, two do.
const DISK_MIB: usize = 144;
const BALLAST_MIB: usize = 40;

/// A small disk in a mount namespace that exists as long as this.
struct SmallDisk {
    keeper: Child,
    as_root: bool,
    path: PathBuf,
}

impl SmallDisk {
    fn mount(path: &Path) -> Self {
        fs::create_dir(path).expect("a folder can be made");
        let may = |flags: &str| {
            let tried =
                Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        let as_root = may("-m");
        assert!(
            as_root || may("-Urm"),
            "this test needs a mount namespace: run it as root, or allow user namespaces \
             (`unshare -Urm true` from util-linux must work)"
        );
        // It ends when its stdin closes, and that closes when this process ends.
        let script =
            format!("mount -t tmpfs -o size={DISK_MIB}m tmpfs \"$1\" && echo up && exec cat");
        let mut keeper = Command::new("unshare")
            .args([if as_root { "-m" } else { "-Urm" }, "sh", "-c", &script, "sh"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        let output = keeper.stdout.as_mut().expect("its output is piped");
        BufReader::new(output).read_line(&mut line).expect("it says something");
        assert_eq!(line, "up\n", "the small disk could not be mounted");
        Self { keeper, as_root, path: path.to_path_buf() }
    }

    /// A command that runs where the disk is mounted.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.keeper.id().to_string(), "-m"]);
        if !self.as_root {
            command.args(["-U", "--preserve-credentials"]);
        }
        command
    }

    /// A file on it, as seen from outside.
    fn seen(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.path.strip_prefix("/").expect("an absolute path")).join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Would fail if a full disk stopped the node, if clients were left waiting, if it did not continue
/// by itself, or if anything acknowledged were gone afterwards.
#[test]
fn node_recovers_from_a_full_disk() {
    let mut cluster = Cluster::empty();
    let disk = SmallDisk::mount(&cluster.path().join("small"));
    fs::write(disk.seen("ballast"), vec![1; BALLAST_MIB << 20]).expect("the ballast fits");
    let at = cluster.add_alone_in(&disk.path.join("data"));
    let Cluster { nodes, http, .. } = &mut cluster;
    let node = &mut nodes[at];
    let start = |node: &mut Node| {
        let mut command = disk.enter();
        command.arg(HOLDFAST).arg("serve").args(node.args());
        node.start_as(command);
    };
    start(node);
    node.ready(http);
    let port = node.port;

    let held = fill(port);
    assert!(held.len() > 1_000, "it was full after {} locks", held.len());
    let reply = http.post(port, "/v1/grab_lock", &json!({ "name": "one more", "ttl_ms": 60_000 }));
    let reply = reply.expect("a full node answers");
    assert_eq!((reply.status, reply.code()), (503, "disk_full"), "{}", reply.body);
    assert!(node.printed().contains("the disk is full"), "{}", node.printed());
    assert!(node.is_running());

    fs::remove_file(disk.seen("ballast")).expect("the ballast can be removed");
    let after = http.grab(port, "after");
    assert!(node.printed().contains("the disk has room again"), "{}", node.printed());
    check(http, port, &held, &after);
    node.kill();
    start(node);
    node.ready(http);
    check(http, port, &held, &after);
}

/// A node whose disk was full fell behind the others, and reported that the cluster had no leader:
/// operators looked for the fault in the wrong place.
#[test]
fn full_node_that_falls_behind_reports_why() {
    let mut cluster = Cluster::empty();
    let disk = SmallDisk::mount(&cluster.path().join("small"));
    fs::write(disk.seen("ballast"), vec![1; BALLAST_MIB << 20]).expect("the ballast fits");
    let member = |(k, port): (usize, &u16)| format!("{k}=127.0.0.1:{port}");
    let members: Vec<String> = (1..).zip(&cluster.peer_ports(3)).map(member).collect();
    let members = members.join(",");
    let key = cluster.key.display().to_string();
    let small = cluster.add_alone_in(&disk.path.join("data"));
    for id in ["2", "3"] {
        cluster.add(["--node", id, "--members", &members]);
    }
    for (at, node) in cluster.nodes.iter_mut().enumerate() {
        if at == small {
            let mut command = disk.enter();
            command.arg(HOLDFAST).arg("serve").args(node.args());
            command.args(["--cluster-key", &key, "--node", "1", "--members", &members]);
            node.start_as(command);
        } else {
            node.start();
        }
    }
    cluster.all_ready();

    let (full, elsewhere) = (cluster.nodes[small].port, cluster.nodes[2].port);
    let http = &cluster.http;
    fill_until(elsewhere, &|| {
        http.get(full, "/v1/status").is_ok_and(|reply| reply.body["disk_full"] == true)
    });
    let ready = http.get(full, "/readyz").expect("a full node answers");
    assert_eq!((ready.status, ready.code()), (503, "disk_full"), "{}", ready.body);
    // It learns that the others are ahead, and can't follow.
    let after = http.grab(elsewhere, "after");
    let read = http.get(full, "/v1/lock?name=after").expect("a full node answers");
    assert_eq!((read.status, read.code()), (503, "disk_full"), "{}", read.body);

    // The command line once said "no server answers" about a server that did.
    let url = format!("http://127.0.0.1:{full}");
    let asked = Command::new(HOLDFAST).args(["show", "after", "--server", &url]).output();
    let asked = asked.expect("holdfast runs");
    let printed = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(69), "{printed}");
    assert!(printed.contains("disk") && !printed.contains("no server answers"), "{printed}");

    fs::remove_file(disk.seen("ballast")).expect("the ballast can be removed");
    cluster.nodes[small].ready(&cluster.http);
    assert_eq!(cluster.http.holders(full, "after"), [after.token]);
}

fn check(http: &Http, port: u16, held: &[Held], after: &Held) {
    for held in held.iter().chain([after]) {
        assert_eq!(http.holders(port, &held.name), [held.token], "a lost grant: {}", held.name);
    }
}

/// Takes big locks until the disk is full; returns those that were granted.
fn fill(port: u16) -> Vec<Held> {
    fill_until(port, &|| false)
}

/// The same, or until `enough`.
fn fill_until(port: u16, enough: &(dyn Fn() -> bool + Sync)) -> Vec<Held> {
    let (full, all) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let client = |number: usize| {
        let http = Http::new(Duration::from_secs(20));
        let mut granted_at = Instant::now();
        for count in 0.. {
            if full.load(Ordering::Relaxed) {
                return;
            }
            assert!(granted_at.elapsed() < TIMEOUT, "neither a lock nor a clear answer");
            // Sixteen names, a label and a note: about 16 KiB.
            let name = |k: usize| format!("{k:x}.{number}.{count}.{}", "x".repeat(490));
            let names: Vec<String> = (0..16).map(name).collect();
            let body = json!({
                "names": names, "ttl_ms": 3_600_000, "request_id": unique(),
                "label": "l".repeat(4_000), "note": "n".repeat(4_000),
            });
            match http.post(port, "/v1/grab_lock", &body) {
                Ok(reply) if reply.status == 200 => {
                    let held = Held::of(&names[0], &reply.body);
                    all.lock().expect("nobody panicked").push(held);
                    granted_at = Instant::now();
                    if count % 8 == 0 && enough() {
                        full.store(true, Ordering::Relaxed);
                    }
                }
                Ok(reply) if reply.code() == "disk_full" => full.store(true, Ordering::Relaxed),
                // It was in flight when the disk became full: nobody was told that it is held.
                Ok(reply) => assert_eq!(reply.status, 503, "{}", reply.body),
                Err(error) => panic!("a full node must answer: {error}"),
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || client(number));
        }
    });
    all.into_inner().expect("nobody panicked")
}
