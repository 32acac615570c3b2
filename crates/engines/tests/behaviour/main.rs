//! One behaviour suite for all engines: each case runs against each of them.
//!
//! Where an engine has no tokens, endings or detachable leases, the case asserts that
//! [`holdfast_locks::Promises`] says so and that there are none. Cases that need a second process, a
//! network or a server to restart pass at once on an engine without them, and so does `order` on one
//! that is not fair: these prove nothing there. The engines that need a server of their own are marked `ignore`:
//! `./test engines` runs them.

mod cases;
mod child;
mod engine;
mod proxy;
mod servers;

/// One test per case for an engine: a function that returns an [`engine::Engine`].
macro_rules! suite {
    ($module:ident, $engine:path $(, $ignore:meta)?) => {
        mod $module {
            suite!(@cases $engine, [$($ignore)?],
                exclusion, waiting, renewal, killed_holder, wrong_releaser, dropped_future, tokens,
                order, inspection, stopped_holder, fixed_lease, handover, lost_answers, restart,
                lost_before_next, many_names, dropped_guard
            );
        }
    };
    (@cases $engine:path, $ignore:tt, $($case:ident),+) => {
        $(suite!(@case $engine, $ignore, $case);)+
    };
    (@case $engine:path, [$($ignore:meta)?], $case:ident) => {
        $(#[$ignore])?
        #[test]
        fn $case() {
            $crate::engine::run($engine, stringify!($case), async |engine| {
                $crate::cases::$case(engine).await
            });
        }
    };
}

suite!(memory, crate::servers::memory);

#[cfg(feature = "etcd")]
suite!(etcd, crate::servers::etcd::etcd, ignore = "needs etcd: ./test engines");

#[cfg(feature = "zookeeper")]
suite!(zookeeper, crate::servers::zookeeper::zookeeper, ignore = "needs ZooKeeper: ./test engines");
#[cfg(feature = "postgres")]
suite!(postgres, crate::servers::postgres::lease, ignore = "needs PostgreSQL: ./test engines");
#[cfg(feature = "postgres")]
suite!(
    postgres_advisory,
    crate::servers::postgres::advisory,
    ignore = "needs PostgreSQL: ./test engines"
);
#[cfg(feature = "cassandra")]
suite!(cassandra, crate::servers::cassandra::lwt, ignore = "needs Cassandra: ./test engines");
#[cfg(feature = "cassandra")]
suite!(
    cassandra_plain,
    crate::servers::cassandra::plain,
    ignore = "needs Cassandra: ./test engines"
);
#[cfg(feature = "cassandra")]
suite!(
    cassandra_bakery,
    crate::servers::cassandra::bakery,
    ignore = "needs Cassandra: ./test engines"
);
#[cfg(feature = "holdfast")]
suite!(holdfast, crate::servers::holdfast::holdfast);

#[cfg(feature = "redis")]
suite!(redis_door, crate::servers::holdfast::redis_door);
#[cfg(feature = "redis")]
suite!(redis, crate::servers::redis::single, ignore = "needs Redis: ./test engines");
#[cfg(feature = "redis")]
suite!(redlock, crate::servers::redis::redlock, ignore = "needs Redis: ./test engines");
