//! The result, as text for people and JSON for programs.

use super::Bench;
use super::run::BenchResult;
use crate::table::Table;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

pub(super) fn json(bench: &Bench, connections: usize, ran: &BenchResult) -> Value {
    json!({
        "clients": bench.clients,
        "connections": connections,
        "lock": if bench.one { "one" } else { "own" },
        "mode": bench.mode(),
        "hold_ms": crate::duration::millis(bench.hold),
        "seconds": ran.took.as_secs_f64(),
        "pairs": ran.pairs,
        "pairs_per_second": per_second(ran),
        "errors": ran.errors,
        "first_error": ran.first_error.as_ref().map(|error| &error.message),
        "acquire_us": quantiles(&ran.acquire),
        "release_us": quantiles(&ran.release),
    })
}

fn quantiles(times: &Histogram<u64>) -> Value {
    let mut all: Value = QUANTILES
        .iter()
        .map(|(name, part)| ((*name).to_owned(), json!(times.value_at_quantile(*part))))
        .collect();
    all["max"] = times.max().into();
    all
}

fn per_second(ran: &BenchResult) -> u64 {
    (ran.pairs as f64 / ran.took.as_secs_f64().max(0.001)).round() as u64
}

pub(super) fn text(bench: &Bench, connections: usize, ran: &BenchResult) -> String {
    let lock = if bench.one { "one lock for all" } else { "a lock each" };
    let mut text = format!(
        "{} clients, {connections} connections, {lock}, {}, {:.1} s\n\
         {} pairs of acquire and release, {} a second, {} errors\n",
        bench.clients,
        bench.mode(),
        ran.took.as_secs_f64(),
        ran.pairs,
        per_second(ran),
        ran.errors,
    );
    if let Some(error) = &ran.first_error {
        text += &format!("the first error: {}\n", crate::table::clean(&error.message));
    }
    let mut table = Table::new(&["", ">P50", ">P90", ">P99", ">MAX"]);
    for (name, times) in [("acquire", &ran.acquire), ("release", &ran.release)] {
        let at = QUANTILES.iter().map(|(_, part)| times.value_at_quantile(*part));
        let cells = at.chain([times.max()]).map(|us| show(us).into());
        table.row(std::iter::once(name.into()).chain(cells));
    }
    text + &table.text(None, false)
}

/// Microseconds in the unit that reads best.
fn show(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1_000.0),
        _ => format!("{:.2} s", us as f64 / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_a_fitting_unit() {
        assert_eq!([7, 1_234, 2_500_000].map(show), ["7 us", "1.23 ms", "2.50 s"]);
    }

    #[test]
    fn json_has_all_quantiles() {
        let mut times = Histogram::new(3).unwrap();
        (1..=100).for_each(|us| times.record(us).unwrap());
        assert_eq!(quantiles(&times), json!({ "p50": 50, "p90": 90, "p99": 99, "max": 100 }));
    }
}
