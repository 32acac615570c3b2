//! One `holdfast serve`: started, killed, stopped and restarted, always by its own pid.

use super::ports::peer_address;
use super::{HOLDFAST, Http, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub(crate) struct Node {
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    starts: u32,
    child: Option<Child>,
}

impl Node {
    /// A node that is not started yet; `args` are the arguments of `serve` besides folder and port.
    pub(crate) fn new<S: Into<OsString>>(
        port: u16,
        folder: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut all: Vec<OsString> = vec!["--data-dir".into(), folder.into()];
        all.extend(["--port".into(), port.to_string().into()]);
        all.extend(args.into_iter().map(Into::into));
        let (folder, log) = (folder.to_path_buf(), folder.with_extension("log"));
        Self { port, folder, args: all, log, starts: 0, child: None }
    }

    /// Changes its ports, from its next start on.
    pub(crate) fn move_to(&mut self, port: u16) {
        let flag = self.args.iter().position(|arg| arg == "--port").expect("it has a port");
        self.args[flag + 1] = port.to_string().into();
        self.port = port;
    }

    /// Changes its last argument, from its next start on.
    pub(crate) fn replace_last_arg(&mut self, arg: impl Into<OsString>) {
        *self.args.last_mut().expect("it has arguments") = arg.into();
    }

    /// Changes the values of `--node` and `--members`, which must be its last arguments.
    pub(crate) fn replace_members(&mut self, id: &str, members: &str) {
        self.replace_last_arg(members);
        let at = self.args.len() - 3;
        self.args[at] = id.into();
    }

    pub(crate) fn peer(&self) -> String {
        peer_address(self.port)
    }

    /// Starts or restarts it.
    pub(crate) fn start(&mut self) {
        let mut command = Command::new(HOLDFAST);
        command.arg("serve").args(&self.args);
        self.start_as(command);
    }

    /// The same, with a command that execs the node.
    pub(crate) fn start_as(&mut self, mut command: Command) {
        assert!(!self.is_running(), "{} runs already", self.folder.display());
        self.starts += 1;
        self.log = self.folder.with_extension(format!("{}.log", self.starts));
        let log = File::create(&self.log).expect("a log can be written");
        // Its stdin closes when this process ends, which stops the node: none is left behind.
        command.arg("--stop-with-stdin").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("the node can be started"));
    }

    /// The arguments of `serve`.
    pub(crate) fn args(&self) -> &[OsString] {
        &self.args
    }

    /// Its log since it was last started.
    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the node was started").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the node can be signalled");
        if signal == Signal::STOP {
            // A busy machine may let it run on for a while.
            eventually("the node has stopped", || is_stopped(self.pid()).then_some(()));
        }
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("the node was started");
        child.kill().expect("the node can be killed");
        child.wait().expect("the node ends");
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the node was started");
        // Kept here: `wait` must not close its stdin, which would stop it.
        let input = child.stdin.take();
        let what = format!("{} ends", self.folder.display());
        let status = eventually(&what, || child.try_wait().expect("a child can be waited for"));
        drop(input);
        status
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&mut self, http: &Http) {
        let what = format!("the node in {} is ready", self.folder.display());
        eventually(&what, || {
            assert!(self.is_running(), "the node has ended:\n{}", self.printed());
            http.get(self.port, "/readyz").ok().filter(|reply| reply.status == 200)
        });
    }

    /// What it knows about the cluster.
    pub(crate) fn status(&self, http: &Http) -> Option<Value> {
        let reply = http.get(self.port, "/v1/status").ok()?;
        (reply.status == 200).then_some(reply.body)
    }

    /// Its id in the cluster.
    pub(crate) fn id(&self, http: &Http) -> u64 {
        http.get_ok(self.port, "/v1/status")["node"].as_u64().expect("a node has an id")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // If it has already ended, the error does not matter.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let printed = self.printed();
            let lines: Vec<&str> = printed.lines().rev().take(30).collect();
            eprintln!("--- the last words of {}", self.folder.display());
            for line in lines.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the node runs");
    threads.flatten().all(|thread| {
        // `12 (name) T ...`; a thread that has just ended has no file any more.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
