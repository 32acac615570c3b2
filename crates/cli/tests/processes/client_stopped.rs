//! A holder that is stopped or cut off: it knows that its lock is lost before it does anything
//! more, and before the next holder is served.

use crate::client_load::urls;
use crate::client_proxy::{Proxy, Way};
use crate::support::{Cluster, eventually};
use holdfast_client::{Client, EndReason, Health};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(4);

/// Set for the process that holds the lock: its servers.
const SERVERS: &str = "HOLDFAST_TEST_SERVERS";

/// Milliseconds since this machine booted, sleep included: the same clock for all processes.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// The program of the other process: holds a lock, and works as long as it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "run by another test, as a process of its own"]
async fn the_holder() {
    let Ok(servers) = std::env::var(SERVERS) else { return };
    let client = Client::builder().session_ttl(TTL).connect(servers).await;
    let client = client.expect("a client");
    let guard = client.lock("seat").label("the holder").acquire().await.expect("the lock");
    let say = |what: &str, at_ms: u64| {
        let mut out = std::io::stdout();
        writeln!(out, "holder: {what} {at_ms}").and_then(|()| out.flush()).expect("it is heard");
    };
    say("held", guard.token().get());
    loop {
        // Read the clock first: what is done after this check counts as done at that time.
        let at_ms = now_ms();
        match guard.health() {
            Health::Lost(_) => return say("lost", at_ms),
            Health::Good | Health::Jeopardy => say("works", at_ms),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// That process, and its output.
struct Holder {
    child: Child,
    printed: mpsc::Receiver<(String, u64)>,
}

impl Holder {
    fn start(servers: &[String]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        // If this process is killed, so is the other one, even while it is stopped.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(["client_stopped::the_holder", "--exact", "--ignored", "--nocapture"])
            .env(SERVERS, servers.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv from util-linux is needed for this test");
        let out = BufReader::new(child.stdout.take().expect("it has an output"));
        let (says, printed) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The test harness may have begun the line.
                let Some((_, words)) = line.split_once("holder: ") else { continue };
                let words = words.split_once(' ').map(|(what, n)| (what.to_owned(), n.parse()));
                if let Some((what, Ok(number))) = words {
                    let _ = says.send((what, number));
                }
            }
        });
        Self { child, printed }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("it can be signalled");
    }

    /// Waits until it is stopped.
    fn has_stopped(&self) {
        let file = format!("/proc/{}/stat", self.child.id());
        eventually("the holder stands still", || {
            let stat = std::fs::read_to_string(&file).ok()?;
            stat.rsplit(") ").next()?.starts_with('T').then_some(())
        });
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // If it has already ended, the error does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Would fail if the client believed what it knew before it was stopped, or relied on a clock that
/// stopped with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_paused_past_its_lease_stops_working() {
    let mut cluster = Cluster::start(3);
    let servers = urls(&cluster.ports());
    let mut holder = Holder::start(&servers);
    let (what, token) = holder.printed.recv().expect("the holder holds the lock");
    assert_eq!(what, "held");
    assert_eq!(holder.printed.recv().expect("it works").0, "works");

    holder.signal(Signal::STOP);
    holder.has_stopped();
    let stopped_ms = now_ms();
    let client = Client::connect(&servers).await.expect("a client");
    let next = client.lock("seat").acquire().await.expect("the next one is served");
    assert!(next.token().get() > token);
    assert_eq!(next.ending().map(|ending| ending.how), Some(EndReason::Expired));

    holder.signal(Signal::CONT);
    let mut printed = Vec::new();
    while let Ok((what, at_ms)) = holder.printed.recv() {
        assert!(what == "lost" || at_ms <= stopped_ms, "worked after it had lost the lock");
        printed.push(what);
    }
    assert_eq!(printed.last().map(String::as_str), Some("lost"));
    assert!(holder.child.wait().expect("it ends").success());
    assert_eq!(next.health(), Health::Good);
}

/// Would fail if the client needed a reply to notice, or counted its lease from the reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnected_holder_is_lost_before_the_next_grant() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let proxy = Proxy::to(ports[0]);
    let ana = Client::builder().session_ttl(TTL).connect([proxy.url()]).await.expect("a client");
    let by_session = ana.lock("by session").acquire().await.expect("a lock");
    let of_its_own = ana.lock("of its own").ttl(TTL).acquire().await.expect("a lock");
    let bo = Client::connect(urls(&ports[1..])).await.expect("a client");
    let wait = |name: &'static str| {
        let bo = bo.clone();
        tokio::spawn(async move {
            let guard = bo.lock(name).acquire().await.expect("it is served");
            (now_ms(), guard)
        })
    };
    let (next_by_session, next_of_its_own) = (wait("by session"), wait("of its own"));
    tokio::time::sleep(TTL / 4).await;

    proxy.set(Way::Silent);
    let lost = |guard: holdfast_client::Guard| async move {
        let how = guard.lost().await;
        (now_ms(), how)
    };
    let (one, two) = tokio::join!(tokio::spawn(lost(by_session)), tokio::spawn(lost(of_its_own)));
    for (lost, next) in [(one, next_by_session), (two, next_of_its_own)] {
        let (lost_ms, how) = lost.expect("the task ends");
        let (served_ms, guard) = next.await.expect("the task ends");
        assert_eq!(how, EndReason::Expired);
        assert!(lost_ms <= served_ms, "told {} ms too late", lost_ms - served_ms);
        assert_eq!(guard.ending().map(|ending| ending.how), Some(EndReason::Expired));
    }
}
