//! Every planted mistake that clients of a cluster can notice is caught by a checker of the
//! simulator. A module of the copied simulator.

use crate::planted;
use crate::world::{Plan, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds tried for each mistake: most are caught by the first two, the rarest within twenty.
const SEEDS_MAX: u64 = 60;

/// Seeds that must pass when no mistake is planted.
const SEEDS_WITHOUT: u64 = 10;

/// Mistakes in the core that show in what clients of a cluster do; its own checks catch all.
const IN_CORE: [&str; 9] = [
    "serve_the_dead",
    "take_number_twice",
    "take_number_early",
    "forget_request_id",
    "reuse_token",
    "serve_out_of_order",
    "skip_lease_check_on_grant",
    "lose_counter",
    "lose_requests",
];

/// The first seed that catches a mistake, and how. Nodes run in the thread that calls this.
fn caught(mistake: Option<&str>, seeds_max: u64) -> Option<(u64, String)> {
    planted::plant(mistake);
    holdfast_client::planted::plant(mistake);
    let broken = |seed| run(Plan { seed, ..Plan::default() }).violation;
    (0..seeds_max).find_map(|seed| broken(seed).map(|violation| (seed, violation)))
}

/// Looks for all mistakes, as many at a time as there are cores; returns those that got away.
fn uncaught(mistakes: &[&'static str]) -> Vec<&'static str> {
    let (next, uncaught) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mistake) = mistakes.get(next.fetch_add(1, Ordering::Relaxed)) {
            match caught(Some(mistake), SEEDS_MAX) {
                Some((seed, violation)) => {
                    eprintln!("{mistake}: caught at seed {seed}: {violation}")
                }
                None => uncaught.lock().unwrap().push(*mistake),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    uncaught.into_inner().unwrap()
}

#[test]
fn every_planted_mistake_is_caught_by_the_simulator() {
    assert_eq!(caught(None, SEEDS_WITHOUT), None, "caught without a mistake");
    let in_crates: [&[&'static str]; 7] = [
        &planted::TREE,
        &planted::ZOOKEEPER,
        &planted::NODE,
        &planted::GATEWAY,
        &planted::GRPC,
        &planted::CLIENT,
        &planted::SIM,
    ];
    let mistakes = [&IN_CORE[..], &in_crates.concat()].concat();
    let uncaught = uncaught(&mistakes);
    assert!(uncaught.is_empty(), "not caught within {SEEDS_MAX} seeds: {uncaught:?}");
}
