//! A holder in its own process, which a test stops, wakes and kills.
//!
//! The process is this test program again, told to run only [`holder_process`].

use super::store::{self, LEDGER};
use holdfast_client::Client;
use holdfast_fence::{Fence, Token};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a holder may be silent before the server serves the next.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The lock that protects the ledger.
pub(crate) const LOCK: &str = "ledger-lock";

const JOB: &str = "HOLDFAST_FENCE_TEST_JOB";
const SERVER: &str = "HOLDFAST_FENCE_TEST_SERVER";
const STORE: &str = "HOLDFAST_FENCE_TEST_STORE";
const MARK: &str = "holder: ";

/// A holder in another process. It is killed when this is dropped.
pub(crate) struct Holder {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// `job` is `once`, `once-unfenced` or `forever NAME`.
    pub(crate) fn start(job: &str, server: &str, store: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::holder::holder_process", "--ignored", "--nocapture"])
            .env(JOB, job)
            .env(SERVER, server)
            .env(STORE, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, stdout }
    }

    /// Its next line; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        while let Some(line) = self.stdout.next_line().await.unwrap() {
            // The test harness may have begun the line.
            if let Some((_, printed)) = line.split_once(MARK) {
                return Some(printed.to_owned());
            }
        }
        None
    }

    pub(crate) async fn tell(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        self.stdin.flush().await.unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it has not been waited for");
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn wake(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Not a test: the body of a holder's process.
#[tokio::test]
#[ignore = "the tests run it in processes of its own"]
async fn holder_process() {
    let job = std::env::var(JOB).expect("run by the other tests");
    let (server, store) = (std::env::var(SERVER).unwrap(), std::env::var(STORE).unwrap());
    let client = Client::builder().session_ttl(LEASE).connect([server]).await.unwrap();
    match job.split_once(' ') {
        Some(("forever", name)) => work_forever(&client, &store, name).await,
        None => hold_once(&client, &store, job == "once").await,
        _ => panic!("no job is called {job}"),
    }
}

/// Reads the ledger, waits for a line on stdin, and takes 50 off what it has read.
async fn hold_once(client: &Client, store: &str, fenced: bool) {
    // On a busy machine its short session may end before it is granted.
    let guard = loop {
        if let Ok(guard) = client.lock(LOCK).acquire().await {
            break guard;
        }
    };
    let token = Token::try_from(&guard).unwrap();
    let fence = store::open(store, client, &guard).await.unwrap();
    let balance: i64 = if fenced {
        store::text(fence.raise(LEDGER, token).await.unwrap().value)
    } else {
        store::read(&*fence).await
    }
    .parse()
    .unwrap();
    // From here on it does not check its guard again, as if it had been stopped just after.
    say(&format!("read {balance} with token {token}"));
    wait_for_a_line().await;
    let value = (balance - 50).to_string().into();
    if !fenced {
        store::write_unfenced(store, client, &guard, value).await;
        return say("written");
    }
    match fence.write(LEDGER, token, value).await {
        Ok(()) => say("written"),
        Err(error) => say(&format!("error: {error}")),
    }
}

/// Appends a line to the ledger over and over, and prints which lines are certainly there.
async fn work_forever(client: &Client, store: &str, name: &str) {
    for number in 1.. {
        let Ok(guard) = client.lock(LOCK).acquire().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(token) = Token::try_from(&guard) else { continue };
        let line = format!("{name}-{number}\n");
        if let Ok(fence) = store::open(store, client, &guard).await
            && add(&*fence, token, &line).await.is_ok()
        {
            say(&format!("wrote {}", line.trim()));
        }
        drop(guard);
    }
}

async fn add(fence: &dyn Fence, token: Token, line: &str) -> Result<(), holdfast_fence::Error> {
    let before = store::text(fence.raise(LEDGER, token).await?.value);
    // Long enough that it is often stopped here.
    tokio::time::sleep(Duration::from_millis(20)).await;
    fence.write(LEDGER, token, format!("{before}{line}").into()).await
}

fn say(line: &str) {
    use std::io::Write;
    // One write, so that a kill leaves complete lines.
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}

async fn wait_for_a_line() {
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.unwrap();
}
