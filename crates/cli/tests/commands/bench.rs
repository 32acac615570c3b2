//! `holdfast bench` against a running server.

use crate::cli::Shell;

/// Would fail if locks were not taken, if times were not measured, or if something were left held.
#[test]
fn bench_measures_a_running_server() {
    let shell = Shell::with_nodes(1);
    let load: [&[&str]; 3] = [
        &["--clients", "4"],
        &["--clients", "8", "--connections", "2", "--one", "--hold", "1ms"],
        &["--clients", "4", "--one", "--permits", "2"],
    ];
    for args in load {
        let args = ["bench", "--seconds", "1", "--json"].iter().chain(args);
        let ran = shell.json(args);
        assert!(ran["pairs"].as_u64() > Some(0), "{ran}");
        assert_eq!(ran["errors"], 0, "{ran}");
        let at = |what: &str, part: &str| ran[what][part].as_u64().expect("a time");
        for what in ["acquire_us", "release_us"] {
            let all = ["p50", "p90", "p99", "max"].map(|part| at(what, part));
            assert!(all.is_sorted() && all[0] > 0, "{ran}");
        }
    }
    assert_eq!(shell.json(["ls", "--json"]), serde_json::json!([]));
    let table = shell.run(["bench", "--seconds", "1"]);
    assert!(table.out.contains("pairs of acquire and release") && table.out.contains("P99"));
    assert_eq!(table.err, "", "progress is only for a terminal");
    assert_eq!(shell.run(["bench", "--clients", "0"]).code, Some(64));
}
