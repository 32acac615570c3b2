//! A disk that fails to sync a write stops the node.

use crate::support::{Cluster, HOLDFAST, Load};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Replaces the libc function in the node's process, and fails while a file exists.
const FAILING_SYNC: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    const char *broken = getenv("DISK_IS_BROKEN_WHILE");
    if (broken && access(broken, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_fdatasync, fd);
}
"#;

/// Would fail if a node kept running after a failed sync, or retried it: Linux would then report
/// success, with the data gone.
#[test]
fn failed_sync_stops_the_node_and_the_others_keep_serving() {
    let mut cluster = Cluster::start(3);
    let broken = cluster.path().join("broken");
    let library = build(cluster.path());
    let load = Load::start(4, cluster.ports());
    let leader = cluster.leader();
    assert!(cluster.nodes[leader].stop().success());
    let mut command = Command::new(HOLDFAST);
    command.arg("serve").args(cluster.nodes[leader].args());
    command.env("LD_PRELOAD", library).env("DISK_IS_BROKEN_WHILE", &broken);
    cluster.nodes[leader].start_as(command);
    cluster.all_ready();
    load.goes_on(20);

    fs::write(&broken, "").expect("a file can be written");
    let status = cluster.nodes[leader].ended();
    let printed = cluster.nodes[leader].printed();
    assert!(!status.success(), "{status}: {printed}");
    assert!(printed.contains("the disk did not confirm what was written"), "{printed}");
    load.goes_on(20);

    // It may come back under its id: everything is verified at the start.
    cluster.nodes[leader].start();
    cluster.all_ready();
    load.goes_on(20);
    load.finish(&cluster.http);
}

fn build(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("failing_sync.c"), folder.join("failing_sync.so"));
    fs::write(&source, FAILING_SYNC).expect("a file can be written");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    let built = built.expect("a C compiler, `cc`, is needed for this test");
    assert!(built.success(), "cc failed");
    library
}
