//! Network failures between a wrapper and its engine.

use crate::cli::{dies, lives};
use crate::engine::unique;
use crate::proxy::{Mode, Proxy};
use crate::subject::{self, Subject};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const WORK: &str = "echo $$ > work; until [ -e stop ]; do sleep 0.05; done; exit 7";

/// The engine behind a proxy that runs as long as this exists.
struct Reached {
    on: Subject,
    proxy: Proxy,
    _runtime: Runtime,
}

impl Reached {
    fn through_proxy(mut on: Subject) -> Self {
        let runtime = Runtime::new().expect("a runtime starts");
        let proxy = runtime.block_on(Proxy::start(on.host.clone()));
        on.url = on.url_at(&proxy.address);
        Self { on, proxy, _runtime: runtime }
    }
}

/// Would fail if a wrapper gave up a lock that it can renew over a new connection.
fn cut_connections(on: Subject) {
    let Reached { on, proxy, _runtime } = Reached::through_proxy(on);
    let name = unique("cut");
    let wrapper = on.lock(&format!("{name} --ttl 10s"), WORK);
    let work = on.shell.read_pid("work");
    // Longer than the lease, so that it must have been renewed in between.
    let until = Instant::now() + Duration::from_secs(13);
    while Instant::now() < until {
        proxy.cut();
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(lives(work), "the command was ended: {:?}", wrapper.ended());
    }
    on.shell.touch("stop");
    let printed = wrapper.ended();
    assert_eq!(printed.code, Some(7), "{printed:?}");
}

/// Would fail if a wrapper that gets no replies from its engine kept its command running.
fn silent_network(on: Subject) {
    let Reached { on, proxy, _runtime } = Reached::through_proxy(on);
    let name = unique("silent");
    let wrapper = on.lock(&name, WORK);
    let work = on.shell.read_pid("work");
    proxy.set(Mode::Silent);
    dies(work);
    assert_eq!(wrapper.ended().code, Some(76));
    proxy.set(Mode::Open);
    proxy.cut();
    let next = on.run(&format!("{name} --wait 60s"), &["true"]);
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// Would fail if a wrapper whose engine does not answer exited with another code than the
/// command's, did not end, or did not report a lock that may still be held.
fn lost_release(on: Subject) {
    let Reached { on, proxy, _runtime } = Reached::through_proxy(on);
    let name = unique("release");
    let wrapper = on.lock(&format!("{name} --ttl 30s"), WORK);
    on.shell.read("work");
    proxy.set(Mode::Silent);
    on.shell.touch("stop");
    let printed = wrapper.ended();
    assert_eq!(printed.code, Some(7), "{printed:?}");
    assert!(printed.err.contains("not released"), "{printed:?}");
}

/// Would fail if a signal could not end a wrapper that waits for a reply.
fn interrupted_without_answers(on: Subject) {
    let Reached { on, proxy, _runtime } = Reached::through_proxy(on);
    proxy.set(Mode::Silent);
    let wrapper = on.lock(&unique("unanswered"), "echo never");
    std::thread::sleep(Duration::from_millis(500));
    wrapper.signal(Signal::INT);
    let printed = wrapper.ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(128 + 2), ""), "{printed:?}");
}

macro_rules! suite {
    ($module:ident, $subject:path $(, $ignore:meta)?) => {
        mod $module {
            suite!(@cases $subject, [$($ignore)?],
                cut_connections, silent_network, lost_release, interrupted_without_answers
            );
        }
    };
    (@cases $subject:path, $ignore:tt, $($case:ident),+) => {
        $(suite!(@case $subject, $ignore, $case);)+
    };
    (@case $subject:path, [$($ignore:meta)?], $case:ident) => {
        $(#[$ignore])?
        #[test]
        fn $case() {
            super::$case($subject(false));
        }
    };
}

suite!(holdfast, super::subject::holdfast);
suite!(redis_door, super::subject::redis_door);
suite!(redis, super::subject::redis, ignore = "needs Redis: ./test engines");
suite!(etcd, super::subject::etcd, ignore = "needs etcd: ./test engines");
suite!(postgres, super::subject::postgres, ignore = "needs PostgreSQL: ./test engines");
suite!(zookeeper, super::subject::zookeeper, ignore = "needs ZooKeeper: ./test engines");
