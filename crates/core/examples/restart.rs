//! The cost of a restart and of a leader change with a million leases.
//!
//! Two states: a million locks with a deadline each, and a million sessions that hold a lock each.
//! Measured for each: encoding the snapshot, loading it, and what a new leader asks of the core in
//! its first turn, which is the TTLs of all sessions, when something is due, and, as the first
//! heartbeats arrive, whether each session is alive. On a busy machine, CPU time says more than
//! elapsed time: both are reported (the former on Linux only).
//!
//! `cargo run --release -p holdfast-core --example restart [-- --json]`

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program needs a clock and prints"
)]

mod shared;

use holdfast_core::{Limits, SessionRef, State};
use shared::{MILLION, World, acquire_in};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of each kind: an odd number, so that there is a median.
const ROUNDS: usize = 3;

fn main() {
    let deadlines = World::with_held(MILLION);
    let mut rows = measure("deadlines", &deadlines.state, &[]);
    drop(deadlines);

    let mut world = World::warm(Limits::DEFAULT);
    let sessions = world.open_sessions(MILLION);
    for session in &sessions {
        let name = world.fresh_name();
        world.grant(acquire_in(*session, name));
    }
    rows.extend(measure("sessions", &world.state, &sessions));

    if std::env::args().any(|argument| argument == "--json") {
        let row = |Row { of, key, took, .. }: &Row| {
            let Took { passed_ms, on_core_ms } = took;
            format!("\"{of}_{key}_ms\":{passed_ms:.4},\"{of}_{key}_on_core_ms\":{on_core_ms:.4}")
        };
        println!("{{{}}}", rows.iter().map(row).collect::<Vec<_>>().join(","));
    } else {
        println!("{:<12} {:<30} {:>12} {:>12}", "a million", "middle of three", "ms", "on a core");
        for Row { of, words, took: Took { passed_ms, on_core_ms }, .. } in &rows {
            println!("{of:<12} {words:<30} {passed_ms:>12.4} {on_core_ms:>12.4}");
        }
    }
}

struct Row {
    of: &'static str,
    key: &'static str,
    words: &'static str,
    took: Took,
}

/// How long something took, in milliseconds.
struct Took {
    passed_ms: f64,
    on_core_ms: f64,
}

fn measure(of: &'static str, state: &State, sessions: &[SessionRef]) -> Vec<Row> {
    let row = |key, words, took| Row { of, key, words, took };
    let snapshot = state.snapshot();
    let encode = timed(|| snapshot.pieces().for_each(|piece| drop(black_box(piece))));
    let pieces: Vec<Vec<u8>> =
        snapshot.pieces().collect::<Result<_, _>>().expect("every record can be encoded");
    let load = timed(|| State::load(&pieces, Limits::DEFAULT, 1).expect("just written"));
    let loaded = State::load(&pieces, Limits::DEFAULT, 1).expect("just written");
    let ttls = timed(|| loaded.session_ttls().map(|(_, ttl_ms)| ttl_ms).sum::<u64>());
    let due = timed(|| loaded.next_due_in_ms());
    let mut rows = vec![
        row("encode", "Snapshot::pieces", encode),
        row("load", "State::load", load),
        row("ttls", "State::session_ttls, all", ttls),
        row("next_due", "State::next_due_in_ms", due),
    ];
    if !sessions.is_empty() {
        let lives = || sessions.iter().filter(|session| loaded.session_lives(session)).count();
        assert_eq!(lives(), sessions.len());
        rows.push(row("lives", "State::session_lives, each", timed(lives)));
    }
    rows
}

/// The median of the rounds, separately for each time; results are dropped untimed.
fn timed<T>(mut work: impl FnMut() -> T) -> Took {
    let mut round = || {
        let (begun, on_core) = (Instant::now(), on_core());
        let made = black_box(work());
        let took = (begun.elapsed(), self::on_core().saturating_sub(on_core));
        drop(made);
        took
    };
    let (passed, on_core): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| round()).unzip();
    Took { passed_ms: middle_ms(passed), on_core_ms: middle_ms(on_core) }
}

fn middle_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// The CPU time of this thread.
fn on_core() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}
