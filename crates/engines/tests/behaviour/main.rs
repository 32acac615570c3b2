//! One behaviour suite for all engines: each case runs against each of them.
//!
//! Every cell of the table of promises in docs/engines.md is shown by a case, whether the promise
//! is kept or not ([`SHOWN_BY`]): where an engine is unfair, a later waiter is served first; where
//! a lock does not survive, another client gets it; where a holder can't be notified in time, it
//! still believes when the next one is served. What can't be shown for an engine is an
//! [`engine::Exception`], which must agree with its promises. Engines that need their own server
//! are marked `ignore`: `./test engines` runs them.

mod cases;
mod child;
mod engine;
#[cfg(feature = "cassandra")]
mod page;
mod proxy;
mod servers;

/// One test per case for an engine: a function that returns an [`engine::Engine`].
macro_rules! suite {
    ($module:ident, $recipe:expr, $engine:path $(, $ignore:meta)?) => {
        mod $module {
            /// The engine and its recipe, as named by the promises.
            pub(super) const RECIPE: [&str; 2] = $recipe;

            $(#[$ignore])?
            #[test]
            fn recipe() {
                $crate::engine::run($engine, "recipe", async |engine| {
                    let promises = engine.connect().await.promises();
                    assert_eq!([promises.engine, promises.recipe], RECIPE);
                });
            }

            suite!(@cases $engine, [$($ignore)?],
                exclusion, waiting, renewal, killed_holder, wrong_releaser, dropped_future, tokens,
                order, inspection, stopped_holder, fixed_lease, handover, lost_answers, restart,
                lost_before_next, many_names, dropped_guard, chaos, late_take, late_renewal,
                shorter_extension, races
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

suite!(memory, ["memory", "line"], crate::servers::memory);

#[cfg(feature = "etcd")]
suite!(etcd, ["etcd", "lease"], crate::servers::etcd::etcd, ignore = "needs etcd: ./test engines");

#[cfg(feature = "zookeeper")]
suite!(
    zookeeper,
    ["zookeeper", "ephemeral"],
    crate::servers::zookeeper::zookeeper,
    ignore = "needs ZooKeeper: ./test engines"
);
#[cfg(feature = "postgres")]
suite!(
    postgres,
    ["postgres", "lease"],
    crate::servers::postgres::lease,
    ignore = "needs PostgreSQL: ./test engines"
);
#[cfg(feature = "postgres")]
suite!(
    postgres_advisory,
    ["postgres", "advisory"],
    crate::servers::postgres::advisory,
    ignore = "needs PostgreSQL: ./test engines"
);
#[cfg(feature = "cassandra")]
suite!(
    cassandra,
    ["cassandra", "lwt"],
    crate::servers::cassandra::lwt,
    ignore = "needs Cassandra: ./test engines"
);
#[cfg(feature = "cassandra")]
suite!(
    cassandra_plain,
    ["cassandra", "lwt, plain"],
    crate::servers::cassandra::plain,
    ignore = "needs Cassandra: ./test engines"
);
#[cfg(feature = "cassandra")]
suite!(
    cassandra_bakery,
    ["cassandra", "bakery"],
    crate::servers::cassandra::bakery,
    ignore = "needs Cassandra: ./test engines"
);
#[cfg(feature = "holdfast")]
suite!(holdfast, ["holdfast", "lease"], crate::servers::holdfast::holdfast);

#[cfg(feature = "redis")]
suite!(redis_door, ["redis", "single server"], crate::servers::holdfast::redis_door);
#[cfg(feature = "redis")]
suite!(
    redis,
    ["redis", "single server"],
    crate::servers::redis::single,
    ignore = "needs Redis: ./test engines"
);
#[cfg(feature = "redis")]
suite!(
    redlock,
    ["redis", "Redlock"],
    crate::servers::redis::redlock,
    ignore = "needs Redis: ./test engines"
);

/// Which case shows that a promise is kept and, for an engine that does not make it, that it is
/// not.
const SHOWN_BY: [(&str, &str); 6] = [
    ("fair", "order"),
    ("token", "tokens"),
    ("survives_failover", "restart"),
    ("reports_death", "killed_holder"),
    ("detachable", "handover"),
    ("lost_in_time", "lost_before_next"),
];

/// A new promise needs a case, and a new recipe needs a suite.
#[test]
#[cfg(all(
    feature = "cassandra",
    feature = "etcd",
    feature = "holdfast",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
fn every_promise_of_every_recipe_is_shown() {
    let suites = [
        memory::RECIPE,
        etcd::RECIPE,
        zookeeper::RECIPE,
        postgres::RECIPE,
        postgres_advisory::RECIPE,
        cassandra::RECIPE,
        cassandra_plain::RECIPE,
        cassandra_bakery::RECIPE,
        holdfast::RECIPE,
        redis::RECIPE,
        redlock::RECIPE,
    ];
    for promises in holdfast_locks::Promises::all() {
        let recipe = [promises.engine, promises.recipe];
        assert!(suites.contains(&recipe), "{recipe:?} has no suite");
        let fields = serde_json::to_value(promises).unwrap();
        for (name, field) in fields.as_object().unwrap() {
            let shown = SHOWN_BY.iter().any(|(promise, _)| promise == name);
            assert_eq!(field.is_object(), shown, "no case shows `{name}`");
        }
    }
    let source = include_str!("main.rs");
    let (_, cases) = source.split_once("suite!(@cases").unwrap();
    let (cases, _) = cases.split_once(");").unwrap();
    for (_, case) in SHOWN_BY {
        assert!(cases.contains(case), "{case} is in no suite");
    }
}
