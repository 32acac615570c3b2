//! A second process: this test program again, with its task in the environment.

use holdfast_locks::{LeaseRef, Locks};
use std::env;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "HOLDFAST_LOCKS_CHILD";

/// A child process that communicates in lines.
pub(crate) struct Helper {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a child in this role; `settings` become its environment.
    pub(crate) fn start(role: &str, settings: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["child::child_process", "--exact", "--nocapture"])
            .env(ROLE, role)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    /// The rest of the child's next line that starts with `reply `.
    pub(crate) fn receive(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the child has ended");
            if let Some((_, said)) = line.split_once("say ") {
                return said.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits until it has exited by itself, without error.
    pub(crate) fn finish(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn reply(line: &str) {
    let mut stdout = stdout();
    writeln!(stdout, "say {line}").unwrap();
    stdout.flush().unwrap();
}

fn read_line() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Not a test: the body of a child process.
#[test]
fn child_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        if role == "serve" {
            return serve().await;
        }
        let locks = Locks::connect(&setting("URL")).await.unwrap();
        match role.as_str() {
            "hold" => hold(&locks).await,
            "count" => count(&locks).await,
            "finish" => finish(&locks).await,
            other => panic!("no such role: {other}"),
        }
    });
}

/// Runs one member of a Holdfast cluster until it is killed.
async fn serve() {
    let ports: Vec<_> = setting("PORTS").split(',').map(|port| port.parse().unwrap()).collect();
    let (folder, node) = (setting("FOLDER"), setting("NODE").parse().unwrap());
    let server = crate::servers::holdfast::serve(folder.as_ref(), &ports, node).await;
    reply("serving");
    let _ = server.run(std::future::pending()).await;
}

/// Takes a lock and prints its token, then does what each line says: checks whether it is still
/// held, takes it once more, or releases it.
async fn hold(locks: &Locks) {
    let ttl = Duration::from_millis(setting("TTL_MS").parse().unwrap());
    let lock = locks.lock(setting("NAME")).ttl(ttl).label("child").note("half done");
    let guard = lock.acquire().await.unwrap();
    reply(&format!("held {:?}", guard.token().map(u64::from)));
    loop {
        match tokio::task::spawn_blocking(read_line).await.unwrap().as_str() {
            "look" => reply(if guard.is_lost() { "lost" } else { "good" }),
            "take" => {
                let lock = locks.lock(setting("NAME")).wait(Duration::from_secs(60));
                // Kept until the process ends.
                std::mem::forget(lock.acquire().await.unwrap());
                reply("taken");
            }
            "release" => return reply(&format!("{:?}", guard.release().await)),
            _ => return,
        }
    }
}

/// Increments a number in a file, many times, one at a time under the lock.
async fn count(locks: &Locks) {
    let times = setting("TIMES").parse().unwrap();
    crate::cases::increment(locks, &setting("NAME"), &setting("FILE"), times).await;
    reply("done");
}

/// Uses a lease that the parent detached.
async fn finish(locks: &Locks) {
    let lease: LeaseRef = serde_json::from_str(&read_line()).unwrap();
    let lease = locks.attach(lease).await.unwrap();
    reply(&format!("checked {}", lease.check().await.is_ok()));
    reply(&format!("extended {:?}", lease.extend(Duration::from_secs(60)).await));
    read_line();
    reply(&format!("released {:?}", lease.release().await));
}
