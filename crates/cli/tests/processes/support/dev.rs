//! `holdfast dev --nodes 3`: the one documented command that starts a cluster of processes.

use super::{HOLDFAST, Ports, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) struct Dev {
    child: Child,
    ports: Ports,
    folder: TempDir,
    args: Vec<String>,
}

impl Dev {
    pub(crate) fn start(nodes: u16) -> Self {
        Self::start_with(nodes, &[])
    }

    pub(crate) fn start_with(nodes: u16, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let ports = Ports::reserve();
        let mut args = vec!["--nodes".to_owned(), nodes.to_string()];
        args.extend(["--port".to_owned(), ports.base().to_string()]);
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        let child = spawn(&folder, &args);
        Self { child, ports, folder, args }
    }

    /// Stops it gracefully, and starts it again.
    pub(crate) fn restart(&mut self) {
        assert!(self.end(), "{}", self.printed());
        self.child = spawn(&self.folder, &self.args);
    }

    /// The HTTP port of the k-th node.
    pub(crate) fn port(&self, k: u16) -> u16 {
        self.ports.of(k)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn node_folder(&self, k: u16) -> PathBuf {
        self.folder.path().join(format!("node-{k}"))
    }

    /// The pid of the k-th node, if it is running: a dead one leaves its pid file behind.
    pub(crate) fn pid(&self, k: u16) -> Option<Pid> {
        let folder = self.node_folder(k);
        let pid: i32 = fs::read_to_string(folder.join("pid")).ok()?.trim().parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // A single node is the process itself, and was given the parent folder.
        let folders = [folder.to_str()?.as_bytes(), self.folder.path().to_str()?.as_bytes()];
        let is_it = command.split(|byte| *byte == 0).any(|word| folders.contains(&word));
        is_it.then(|| Pid::from_raw(pid)).flatten()
    }

    pub(crate) fn signal(&self, k: u16, signal: Signal) {
        let pid = eventually("the node has a process", || self.pid(k));
        kill_process(pid, signal).expect("the node can be signalled");
    }

    /// The log of all nodes.
    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops all of it, like Ctrl-C; returns whether it ended gracefully.
    pub(crate) fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if matches!(self.child.try_wait(), Ok(None))
            && let Some(pid) = pid
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = eventually("holdfast dev ends", || self.child.try_wait().ok().flatten());
        ended.success()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what the nodes said\n{}", self.printed());
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

fn spawn(folder: &TempDir, args: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.path().join("log"));
    // If this process is killed, it is told to terminate: nothing is left behind.
    Command::new("setpriv")
        .args(["--pdeathsig", "TERM", HOLDFAST, "dev"])
        .args(args)
        .arg("--data-dir")
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("a log can be written"))
        .spawn()
        .expect("setpriv from util-linux is needed for this test")
}
