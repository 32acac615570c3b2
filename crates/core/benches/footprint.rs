//! How many bytes a held lock, a waiter and a session ask of the allocator, and in how many
//! pieces.
//!
//! Each case adds a million records. So in the lines "max alloc", a million allocations are one
//! for each record, and a megabyte is a byte for each. The times are those of a counting
//! allocator and tell nothing.
//!
//! What the machine gives for it, rounding and spare room included, is told by
//! `cargo run --release -p holdfast-core --example footprint`.
//!
//! `cargo bench -p holdfast-core --bench footprint`

#[path = "../examples/shared/mod.rs"]
mod shared;

use divan::{AllocProfiler, Bencher};
use mimalloc::MiMalloc;
use shared::cases::Case;

#[global_allocator]
static ALLOCATOR: AllocProfiler<MiMalloc> = AllocProfiler::new(MiMalloc);

fn main() {
    divan::main();
}

#[divan::bench(args = Case::ALL.map(Case::key), sample_count = 1, sample_size = 1)]
fn million(bencher: Bencher, key: &str) {
    let case = Case::of(key).expect("a key of a case");
    bencher.with_inputs(|| case.ground()).bench_local_values(|ground| ground.add_million(case));
}
