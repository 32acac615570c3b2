//! How many bytes a held lock, a waiter and a session request from the allocator, and in how many
//! allocations.
//!
//! Each case adds a million records. So in the lines "max alloc", a million allocations are one per
//! record, and a megabyte is one byte per record. The times include the counting allocator and mean
//! nothing.
//!
//! The memory that is actually used, including rounding and spare capacity, is measured by `cargo
//! run --release -p holdfast-core --example footprint`.
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
