//! `holdfast`, as typed in a shell.

use crate::support::{Cluster, HOLDFAST, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Servers, and a folder to run commands in.
pub(crate) struct Shell {
    // Dropped in this order: the nodes end before their folder is removed.
    pub(crate) cluster: Cluster,
    folder: TempDir,
    /// The value of HOLDFAST_ON.
    engine: Option<String>,
}

impl Shell {
    pub(crate) fn with_nodes(nodes: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self { cluster: Cluster::start(nodes), folder, engine: None }
    }

    /// The same with HOLDFAST_ON: locks are on this engine.
    #[allow(dead_code, reason = "used by the tests of other engines")]
    pub(crate) fn on(self, url: &str) -> Self {
        Self { engine: Some(url.to_owned()), ..self }
    }

    /// A file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The contents of a file, once it exists and is complete: it ends with a newline.
    pub(crate) fn read(&self, name: &str) -> String {
        let file = self.file(name);
        eventually(&format!("{name} is written"), || {
            fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
        })
    }

    /// A process id that a command wrote to a file.
    pub(crate) fn read_pid(&self, name: &str) -> u32 {
        self.read(name).trim().parse().expect("a process id")
    }

    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.file(name), "\n").expect("a file can be written");
    }

    /// All servers, in the format of HOLDFAST_SERVER.
    pub(crate) fn servers(&self) -> String {
        let url = |port| format!("http://127.0.0.1:{port}");
        self.cluster.nodes.iter().map(|node| url(node.port)).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = with_usual_signals(HOLDFAST);
        command.args(args).env("PATH", path_with_holdfast());
        if !self.cluster.nodes.is_empty() {
            command.env("HOLDFAST_SERVER", self.servers());
        }
        command.envs(self.engine.iter().map(|url| ("HOLDFAST_ON", url)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to completion.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> CommandResult {
        self.command(args).output().expect("holdfast runs").into()
    }

    /// The same; it must succeed and print JSON.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let printed = self.run(args);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        serde_json::from_str(&printed.out).unwrap_or_else(|_| panic!("not JSON: {printed:?}"))
    }

    /// Starts it, with its output in files.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.command(args))
    }

    /// Starts `holdfast lock ARGS -- sh -c SCRIPT`.
    pub(crate) fn lock(&self, args: &str, script: &str) -> Running {
        let args = ["lock"].into_iter().chain(args.split_whitespace());
        self.start(args.chain(["--", "sh", "-c", script]))
    }

    /// The same, with everything pinned to one core.
    pub(crate) fn pinned_lock(&self, args: &str, script: &str) -> Running {
        let mut command = self.command(["lock"]);
        command.args(args.split_whitespace()).args(["--", "sh", "-c", script]);
        let core = about(std::process::id(), "Cpus_allowed_list");
        let core = core.split([',', '-']).next().expect("a core").to_owned();
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", &core]).arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        pinned.envs(variables).current_dir(self.folder.path()).stdin(Stdio::null());
        Running::start(pinned)
    }

    /// Starts a script in a shell.
    pub(crate) fn script(&self, shell: &[&str], script: &str) -> Running {
        let mut command = with_usual_signals(shell[0]);
        command.args(&shell[1..]).args(["-c", script]).current_dir(self.folder.path());
        command.env("HOLDFAST_SERVER", self.servers()).env("PATH", path_with_holdfast());
        command.stdin(Stdio::null());
        Running::start(command)
    }

    /// Waits until this many tickets are waiting for a lock.
    pub(crate) fn waiting(&self, name: &str, count: u64) {
        let port = self.cluster.nodes[0].port;
        eventually(&format!("{count} wait for {name}"), || {
            let lock = self.cluster.http.get_ok(port, &format!("/v1/lock?name={name}"));
            (lock["waiting"] == count).then_some(())
        });
    }
}

/// A program that ignores no signal. If the tests are run in the background they may all ignore
/// Ctrl-C, and a shell that ignored it from the start can't trap it.
pub(crate) fn with_usual_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub(crate) fn path_with_holdfast() -> String {
    let bin = Path::new(HOLDFAST).parent().expect("a folder");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A running command; it does not outlive the test.
pub(crate) struct Running {
    child: Child,
    /// Files, because a pipe stays open as long as anything the command left running.
    out: File,
    err: File,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let [out, err] = [(); 2].map(|()| tempfile::tempfile().expect("a file can be made"));
        let end = |file: &File| file.try_clone().expect("a file can be shared");
        let child = command.stdout(end(&out)).stderr(end(&err)).spawn().expect("holdfast runs");
        let running = Self { child, out, err };
        // Until `env` has reset them, signals may be ignored. No sleep: tests signal very early.
        while ["env", "taskset"].contains(&about(running.id(), "Name").as_str()) {
            std::thread::yield_now();
        }
        running
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.child.id(), signal);
    }

    pub(crate) fn has_ended(&self) -> bool {
        !lives(self.child.id())
    }

    /// Waits until it has ended.
    pub(crate) fn ended(mut self) -> CommandResult {
        let status = eventually("a command ends", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let [stdout, stderr] = [&mut self.out, &mut self.err].map(|file| {
            let mut printed = Vec::new();
            file.rewind()
                .and_then(|()| file.read_to_end(&mut printed))
                .expect("a file can be read");
            printed
        });
        Output { status, stdout, stderr }.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has already ended, the error does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    assert!(try_kill(pid, signal), "{pid} can't be signalled");
}

/// Returns whether the process was there to be signalled.
pub(crate) fn try_kill(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).is_ok()
}

/// A field of a process's /proc status; empty if it is gone.
fn about(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
}

/// The current descendants of a process, deepest last.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, String)> = pids.map(|pid| (pid, about(pid, "PPid"))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).map(u32::to_string) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// The state as in `ps`; X if it is gone.
pub(crate) fn state(pid: u32) -> char {
    about(pid, "State").chars().next().unwrap_or('X')
}

pub(crate) fn parent(pid: u32) -> u32 {
    about(pid, "PPid").parse().expect("a process id")
}

/// Whether a process is running; a zombie is not.
pub(crate) fn lives(pid: u32) -> bool {
    !matches!(state(pid), 'Z' | 'X')
}

/// Waits until a process is gone.
pub(crate) fn dies(pid: u32) {
    eventually(&format!("process {pid} ends"), || (!lives(pid)).then_some(()));
}
