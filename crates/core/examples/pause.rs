//! How long the loop is paused by a snapshot of a million held locks.
//!
//! Half of the commands acquire new locks, half release locks all over the million, so that almost
//! every command touches chunks that the snapshot shares and has to copy them. Another thread
//! encodes the snapshot at the same time, as in a server. Each round takes a new snapshot; a round
//! without one, filling the empty state, and a load are timed for comparison. The longest times
//! include other programs on the machine, so each is reported for the worst and the median round.
//!
//! `cargo run --release -p holdfast-core --example pause [-- --json]`

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program needs a clock and prints"
)]

mod shared;

use holdfast_core::{
    Acquire, Answer, Command, Lease, Limits, LockName, Proposal, State, TicketStatus, Token,
};
use shared::{LONG_MS, MILLION, SECRET, World, acquire, answer, release, scramble};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Roughly the largest batch of commands that a server would put into one entry.
const BATCH: usize = 1_000;

/// Rounds of each kind: an odd number, so that there is a median.
const ROUNDS: usize = 7;

/// Batches in a round without a snapshot: about as many as fit into the encoding of one.
const QUIET_BATCHES: usize = 400;

/// The target for the longest pause.
const AIM_MS: f64 = 20.0;

fn main() {
    let filling = fill();
    let mut loop_ = Loop { world: filling.world, held: filling.held, drawn: 0 };
    let quiet: Vec<Times> = (0..ROUNDS).map(|_| loop_.quiet_round()).collect();
    let rounds: Vec<Round> = (0..ROUNDS).map(|_| loop_.snapshot_round()).collect();
    let pieces = loop_.world.state.snapshot().pieces().collect::<Result<Vec<Vec<u8>>, _>>();
    let pieces = pieces.expect("every record can be encoded");
    let bytes = pieces.iter().map(Vec::len).sum::<usize>();
    let load = |_| timed(|| State::load(&pieces, Limits::DEFAULT, 1).expect("just written")).1;
    let loads: Vec<Duration> = (0..3).map(load).collect();

    let alive =
        |of: fn(&Times) -> Duration| Spread::of(rounds.iter().map(|round| of(&round.times)));
    let still = |of: fn(&Times) -> Duration| Spread::of(quiet.iter().map(of));
    let once = |of: fn(&Times) -> Duration| Spread::of([of(&filling.times)]);
    let rows = [
        ("snapshot_ms", "State::snapshot, the clone", Spread::of(rounds.iter().map(|r| r.clone))),
        ("alive_apply_p50_ms", "apply, snapshot alive: middle", alive(Times::p50)),
        ("alive_apply_p999_ms", "apply, snapshot alive: 99.9 % within", alive(Times::p999)),
        ("alive_apply_max_ms", "apply, snapshot alive: longest", alive(Times::longest)),
        ("alive_batch_max_ms", "batch of 1,000, snapshot alive: longest", alive(Times::batch)),
        ("quiet_apply_p50_ms", "apply, no snapshot: middle", still(Times::p50)),
        ("quiet_apply_p999_ms", "apply, no snapshot: 99.9 % within", still(Times::p999)),
        ("quiet_apply_max_ms", "apply, no snapshot: longest", still(Times::longest)),
        ("quiet_batch_max_ms", "batch of 1,000, no snapshot: longest", still(Times::batch)),
        ("fill_apply_max_ms", "apply, from none to a million: longest", once(Times::longest)),
        ("fill_batch_max_ms", "batch, from none to a million: longest", once(Times::batch)),
        (
            "encode_ms",
            "encode and drop, beside the loop",
            Spread::of(rounds.iter().map(|r| r.encode)),
        ),
        ("load_ms", "State::load", Spread::of(loads)),
    ];
    if std::env::args().any(|argument| argument == "--json") {
        print_json(&rows, bytes);
    } else {
        print_table(&rows, bytes);
    }
}

/// How long single commands and batches took.
struct Times {
    singles: Vec<Duration>,
    longest_batch: Duration,
}

impl Times {
    /// Capacity for a million times, already resident: growing here would be measured as a pause.
    fn new() -> Self {
        let mut singles = vec![Duration::MAX; MILLION];
        singles.clear();
        Self { singles, longest_batch: Duration::ZERO }
    }

    fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    fn p999(&self) -> Duration {
        self.quantile(0.999)
    }

    fn longest(&self) -> Duration {
        self.quantile(1.0)
    }

    fn batch(&self) -> Duration {
        self.longest_batch
    }

    fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.singles.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * part) as usize).copied().unwrap_or_default()
    }
}

struct Round {
    clone: Duration,
    encode: Duration,
    times: Times,
}

struct Filling {
    world: World,
    held: Vec<(LockName, Token)>,
    times: Times,
}

/// Acquires a million locks, and records how long that paused the loop, as tables grow.
fn fill() -> Filling {
    let mut loop_ = Loop { world: World::warm(Limits::DEFAULT), held: Vec::new(), drawn: 0 };
    let mut times = Times::new();
    while loop_.held.len() < MILLION {
        let batch = (0..BATCH).map(|_| loop_.acquire()).collect();
        loop_.run(batch, &mut times);
    }
    Filling { world: loop_.world, held: loop_.held, times }
}

/// The thread that applies commands.
struct Loop {
    world: World,
    held: Vec<(LockName, Token)>,
    drawn: u32,
}

impl Loop {
    fn quiet_round(&mut self) -> Times {
        let mut times = Times::new();
        for _ in 0..QUIET_BATCHES {
            let batch = self.mixed_batch();
            self.run(batch, &mut times);
        }
        times
    }

    fn snapshot_round(&mut self) -> Round {
        let (snapshot, clone) = timed(|| self.world.state.snapshot());
        let encoded = AtomicBool::new(false);
        let mut times = Times::new();
        let encode = std::thread::scope(|scope| {
            let encoder = scope.spawn(|| {
                let encode = || {
                    snapshot.pieces().for_each(|piece| drop(std::hint::black_box(piece)));
                    drop(snapshot);
                };
                let ((), encode) = timed(encode);
                encoded.store(true, Ordering::Release);
                encode
            });
            while !encoded.load(Ordering::Acquire) && times.singles.len() < MILLION {
                let batch = self.mixed_batch();
                self.run(batch, &mut times);
            }
            encoder.join().expect("encoding does not fail")
        });
        Round { clone, encode, times }
    }

    /// Alternates between new locks and old ones.
    fn mixed_batch(&mut self) -> Vec<(LockName, Proposal)> {
        (0..BATCH).map(|n| if n % 2 == 0 { self.acquire() } else { self.release() }).collect()
    }

    fn acquire(&mut self) -> (LockName, Proposal) {
        let name = self.world.fresh_name();
        let lease = Lease::Deadline { ttl_ms: LONG_MS };
        let acquire = Acquire { lease, ..acquire(name.clone()) };
        (name, Command::Acquire(acquire).into())
    }

    fn release(&mut self) -> (LockName, Proposal) {
        self.drawn += 1;
        let any = scramble(self.drawn) as usize % self.held.len();
        let (name, token) = self.held.swap_remove(any);
        (name.clone(), release(name, token, SECRET).into())
    }

    fn run(&mut self, batch: Vec<(LockName, Proposal)>, times: &mut Times) {
        let mut answers = Vec::with_capacity(batch.len());
        let mut now = Instant::now();
        let begun = now;
        for (name, proposal) in batch {
            let taken = self.world.apply(proposal);
            let then = std::mem::replace(&mut now, Instant::now());
            times.singles.push(now - then);
            answers.push((name, taken));
        }
        times.longest_batch = times.longest_batch.max(now - begun);
        self.world.effects.clear();
        for (name, taken) in answers {
            if let Answer::TicketStatus(TicketStatus::Held(grant)) = answer(taken) {
                self.held.push((name, grant.token));
            }
        }
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed())
}

/// The median and the worst of several rounds, in milliseconds.
struct Spread {
    middle: f64,
    worst: f64,
}

impl Spread {
    fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = times.into_iter().collect();
        sorted.sort_unstable();
        let ms = |at: usize| sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        Self { middle: ms(sorted.len() / 2), worst: ms(sorted.len().saturating_sub(1)) }
    }
}

fn print_table(rows: &[(&str, &str, Spread)], bytes: usize) {
    println!("{:<42} {:>12} {:>12}", "a million held locks", "middle ms", "worst ms");
    for (_, words, Spread { middle, worst }) in rows {
        println!("{words:<42} {middle:>12.4} {worst:>12.4}");
    }
    println!("snapshot: {:.1} MB; aim: {AIM_MS} ms for the longest pause", bytes as f64 / 1e6);
}

fn print_json(rows: &[(&str, &str, Spread)], bytes: usize) {
    let row = |(key, _, Spread { middle, worst }): &(&str, &str, Spread)| {
        format!("\"{key}\":{{\"middle\":{middle:.4},\"worst\":{worst:.4}}}")
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    println!("{{{},\"snapshot_bytes\":{bytes},\"aim_ms\":{AIM_MS}}}", rows.join(","));
}
