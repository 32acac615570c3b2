//! Locks that are dropped as their runtime or their process ends are released, not left to die.

use crate::server::Node;
use crate::{LONG, operator};
use holdfast_client::{Client, blocking};
use holdfast_proto::v1::{Lock, ShowRequest};
use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Longer than any test runs.
const OWN_TTL: Duration = Duration::from_mins(10);

/// Tells the program below its server and what to do.
const SERVER: &str = "HOLDFAST_TEST_SERVER";
const PROGRAM: &str = "HOLDFAST_TEST_PROGRAM";

/// A server in a runtime that outlives those of the tests.
struct World {
    runtime: Runtime,
    node: Node,
}

impl World {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let node = runtime.block_on(Node::start());
        Self { runtime, node }
    }

    fn show(&self, name: &str) -> Lock {
        self.runtime.block_on(async {
            let request = ShowRequest { name: name.to_owned().into(), stale: false };
            operator(&self.node).await.show(request).await.unwrap().into_inner()
        })
    }

    /// Without waiting: it was released before the runtime or the program had ended.
    fn assert_released(&self, name: &str, when: &str) {
        let lock = self.show(name);
        assert_eq!((lock.holding, lock.waiting), (0, 0), "{when}: {lock:?}");
        assert_eq!(lock.needs_recovery, None, "{when}: nobody died");
    }

    fn end(self) {
        self.runtime.block_on(self.node.end());
    }
}

fn runtimes() -> [(&'static str, Runtime); 2] {
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    [("one thread", current), ("many threads", Runtime::new().unwrap())]
}

/// The task that kept the session ended with its runtime, so a guard that was dropped at the end of
/// `#[tokio::main]` was mostly not released, and the next holder saw a death.
#[test]
fn guards_dropped_with_their_runtime_are_released() {
    let world = World::new();
    let url = &world.node.url;
    for (when, runtime) in runtimes() {
        runtime.block_on(async {
            let client = Client::connect([url]).await.unwrap();
            let _session = client.lock("session").acquire().await.unwrap();
            let _own = client.lock("own").ttl(OWN_TTL).acquire().await.unwrap();
        });
        drop(runtime);
        world.assert_released("session", when);
        world.assert_released("own", when);
    }
    world.end();
}

/// Tasks that are cancelled by the end of their runtime have guards and waits too.
#[test]
fn guards_of_tasks_are_released_when_the_runtime_ends() {
    let world = World::new();
    let url = &world.node.url;
    for (when, runtime) in runtimes() {
        runtime.block_on(async {
            let client = Client::connect([url]).await.unwrap();
            let mut holders = tokio::task::JoinSet::new();
            for number in 0..4 {
                let client = client.clone();
                holders.spawn(async move {
                    let lock = client.lock(format!("task-{number}"));
                    let lock = if number % 2 == 0 { lock } else { lock.ttl(OWN_TTL) };
                    lock.acquire().await.unwrap()
                });
            }
            for guard in holders.join_all().await {
                let client = client.clone();
                tokio::spawn(async move {
                    // Waits for its own lock, until the runtime ends.
                    let _waits = client.lock(guard.name()).ttl(OWN_TTL).acquire().await;
                    drop(guard);
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        drop(runtime);
        for number in 0..4 {
            world.assert_released(&format!("task-{number}"), when);
        }
    }
    world.end();
}

/// A client does not need the runtime that it was connected from.
#[test]
fn client_outlives_its_runtime() {
    let world = World::new();
    let first = Runtime::new().unwrap();
    let ttl = Duration::from_millis(900);
    let (client, guard) = first.block_on(async {
        let setup = Client::builder().session_ttl(ttl);
        let client = setup.connect([&world.node.url]).await.unwrap();
        let guard = client.lock("seat").acquire().await.unwrap();
        (client, guard)
    });
    drop(first);
    std::thread::sleep(ttl * 2);
    assert!(!guard.remaining().is_zero());
    let second = Runtime::new().unwrap();
    second.block_on(async {
        guard.note(Some(b"still here")).await.unwrap();
        client.lock("other").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(client.election("seat").leader().await.unwrap().unwrap().token, guard.token());
    });
    drop(guard);
    world.assert_released("seat", "its runtime is gone");
    world.end();
}

/// A server that does not answer delays the end of a runtime only briefly.
#[test]
fn runtime_shutdown_does_not_wait_for_an_unreachable_server() {
    let mut world = World::new();
    let runtime = Runtime::new().unwrap();
    let guards = runtime.block_on(async {
        let client = Client::connect([&world.node.url]).await.unwrap();
        let mut guards = Vec::new();
        for number in 0..20 {
            guards.push(client.lock(format!("seat-{number}")).acquire().await.unwrap());
        }
        guards
    });
    world.runtime.block_on(world.node.pause());
    let begun = Instant::now();
    runtime.spawn(async move {
        let _guards = guards;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    assert!(begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
}

/// The same in a process that really ends.
#[test]
fn guards_dropped_at_the_end_of_main_are_released() {
    let world = World::new();
    let programs =
        ["async", "task", "acquire", "panic", "blocking", "spawn_blocking", "thread_local"];
    for program in programs {
        for round in 0..3 {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "shutdown::a_program", "--nocapture"])
                .envs([(SERVER, world.node.url.as_str()), (PROGRAM, program)])
                .output()
                .unwrap();
            assert_eq!(child.status.code(), Some(7), "{program}: {child:?}");
            world.assert_released("seat", &format!("{program}, round {round}"));
        }
    }
    world.end();
}

/// Not a test: what the child processes of the one above run.
#[test]
fn a_program() {
    let (Ok(server), Ok(program)) = (std::env::var(SERVER), std::env::var(PROGRAM)) else { return };
    match program.as_str() {
        "blocking" => {
            let client = blocking::Client::connect([server]).unwrap();
            let _guard = client.lock("seat").ttl(OWN_TTL).acquire().unwrap();
        }
        // The last handle did not block here: it took this for asynchronous code.
        "spawn_blocking" => Runtime::new().unwrap().block_on(async move {
            let blocks = tokio::task::spawn_blocking(move || {
                let client = blocking::Client::connect([server]).unwrap();
                let _guard = client.lock("seat").ttl(OWN_TTL).acquire().unwrap();
            });
            blocks.await.unwrap();
        }),
        // At the end of the thread, tokio's own thread-locals were gone, and the process aborted.
        "thread_local" => {
            thread_local! {
                static KEPT: RefCell<Vec<(blocking::Guard, blocking::Client)>> =
                    const { RefCell::new(Vec::new()) };
            }
            let thread = std::thread::spawn(move || {
                // Created first, so destroyed last.
                KEPT.with_borrow(Vec::is_empty);
                let client = blocking::Client::connect([server]).unwrap();
                let guard = client.lock("seat").ttl(OWN_TTL).acquire().unwrap();
                KEPT.with_borrow_mut(|kept| kept.push((guard, client)));
            });
            thread.join().unwrap();
        }
        "panic" => {
            let main = || Runtime::new().unwrap().block_on(main(&server, "panic"));
            assert!(std::panic::catch_unwind(main).is_err());
        }
        how => Runtime::new().unwrap().block_on(main(&server, how)),
    }
    // As if main returned.
    std::process::exit(7);
}

async fn main(server: &str, how: &str) {
    let client = Client::connect([server]).await.unwrap();
    let lock = client.lock("seat").ttl(OWN_TTL);
    match how {
        "async" => drop(client.lock("seat").acquire().await.unwrap()),
        "panic" => {
            let _guard = lock.acquire().await.unwrap();
            panic!("as it was asked to");
        }
        "acquire" => {
            let at_once = tokio::time::timeout(Duration::from_micros(300), lock.acquire()).await;
            drop(at_once);
        }
        _ => {
            let guard = lock.acquire().await.unwrap();
            tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
        }
    }
}
