//! `holdfast lock --on URL` through the binary: the same cases on every engine.
//!
//! Engines that need their own server are marked `ignore`: `./test engines` runs them.

#[allow(dead_code, unused_imports, reason = "shared with the tests of processes")]
#[path = "../processes/support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with the tests of commands")]
#[path = "../commands/cli.rs"]
mod cli;

mod servers;

#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/engine.rs"]
mod engine;

#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/proxy.rs"]
mod proxy;

#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/page.rs"]
mod page;

#[path = "../commands/signal_pairs.rs"]
mod signal_pairs;

mod attack;
mod bad_input;
mod cases;
mod connections;
mod guide;
mod subject;

/// One test per case for an engine: a function that returns a [`subject::Subject`], with its own
/// server if requested.
macro_rules! suite {
    ($module:ident, $subject:path $(, $ignore:meta)?) => {
        mod $module {
            suite!(@cases $subject, [$($ignore)?],
                exclusion, exit_codes, environment, nested, waiting_is_interrupted,
                early_interrupts, command_is_interrupted, killed_wrapper, stopped_wrapper,
                killed_guard, election, refused_options, killed_engine, restarted_engine
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
            let own_server = ["killed_engine", "restarted_engine"].contains(&stringify!($case));
            $crate::cases::$case($subject(own_server));
        }
    };
}

suite!(holdfast, crate::subject::holdfast);
suite!(redis_door, crate::subject::redis_door);
suite!(redis, crate::subject::redis, ignore = "needs Redis: ./test engines");
suite!(etcd, crate::subject::etcd, ignore = "needs etcd: ./test engines");
suite!(postgres, crate::subject::postgres, ignore = "needs PostgreSQL: ./test engines");
suite!(zookeeper, crate::subject::zookeeper, ignore = "needs ZooKeeper: ./test engines");

/// What Redlock and Cassandra have in common with the others is covered there; these show that the
/// command line reaches them.
#[test]
#[ignore = "needs Redis: ./test engines"]
fn redlock() {
    cases::exclusion(subject::redlock(false));
    cases::exit_codes(subject::redlock(false));
    cases::killed_wrapper(subject::redlock(false));
}

#[test]
#[ignore = "needs Cassandra: ./test engines"]
fn cassandra() {
    cases::exclusion(subject::cassandra(false));
    cases::exit_codes(subject::cassandra(false));
    cases::waiting_is_interrupted(subject::cassandra(false));
}
