//! How many bytes of memory a held lock, a waiter and a session cost.
//!
//! Each case adds a million of them in a process of its own, so that no freed memory is reused, and
//! divides the growth of the resident memory. This is what a machine needs: it includes the
//! allocator's rounding, and the capacity that tables keep to grow. The bytes requested from the
//! allocator are measured by `cargo bench -p holdfast-core --bench footprint`.
//!
//! `cargo run --release -p holdfast-core --example footprint [-- --json]`

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program reads its memory and prints"
)]

mod shared;

use shared::MILLION;
use shared::cases::Case;
use std::error::Error;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tells a process which case to run.
const CASE: &str = "--case";

/// The target for a held lock.
const AIM_BYTES: f64 = 300.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [CASE, key] => measure(Case::of(key).ok_or("no such case")?),
        ["--json"] => print_json(&measure_all()?),
        [] => print_table(&measure_all()?),
        _ => return Err("usage: footprint [--json]".into()),
    }
    Ok(())
}

/// Prints the cost of one of the million.
fn measure(case: Case) {
    let ground = case.ground();
    let before = resident_bytes();
    let ground = ground.add_million(case);
    let grown = resident_bytes() - before;
    println!("{:.1}", grown / MILLION as f64);
    drop(ground);
}

/// The resident memory of this process, on Linux.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = kilobytes.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kilobytes: f64 = kilobytes.and_then(|text| text.parse().ok()).expect("needs Linux's /proc");
    kilobytes * 1024.0
}

fn measure_all() -> Result<Vec<(Case, f64)>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let measure = |case: Case| {
        let output = Command::new(&program).args([CASE, case.key()]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let bytes = text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr))?;
        Ok((case, bytes))
    };
    Case::ALL.into_iter().map(measure).collect()
}

fn print_table(rows: &[(Case, f64)]) {
    println!("{:<42} {:>12}", "a million of", "bytes each");
    for (case, bytes) in rows {
        println!("{:<42} {bytes:>12.1}", case.words());
    }
    println!("aim: {AIM_BYTES} a held lock");
}

fn print_json(rows: &[(Case, f64)]) {
    let rows: Vec<_> =
        rows.iter().map(|(case, bytes)| format!("\"{}\":{bytes}", case.key())).collect();
    println!("{{\"resident_bytes_each\":{{{}}},\"aim_lock\":{AIM_BYTES}}}", rows.join(","));
}
