//! The tables in docs/engines.md must match `Promises`. After changing a promise, run this with
//! `UPDATE_DOCS=1` to rewrite them.
#![cfg(all(
    feature = "cassandra",
    feature = "etcd",
    feature = "holdfast",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]

use holdfast_locks::{Promise, Promises};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- generated: promises -->\n";
const END: &str = "<!-- end of generated -->";

type Column = (&'static str, fn(&Promises) -> Promise);

const COLUMNS: [Column; 6] = [
    ("fair", |p| p.fair),
    ("fencing token", |p| p.token),
    ("survives failover", |p| p.survives_failover),
    ("reports a death", |p| p.reports_death),
    ("detachable", |p| p.detachable),
    ("`lost()` in time", |p| p.lost_in_time),
];

fn generated() -> String {
    let mut text = String::from("| engine | recipe |");
    for (name, _) in COLUMNS {
        write!(text, " {name} |").unwrap();
    }
    text.push_str("\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for promises in Promises::all() {
        write!(text, "| {} | {} |", promises.engine, promises.recipe).unwrap();
        for (_, promise) in COLUMNS {
            let holds = if promise(promises).holds { "yes" } else { "no" };
            write!(text, " {holds} |").unwrap();
        }
        text.push('\n');
    }
    for promises in Promises::all() {
        write!(text, "\n### {}, {}\n\n", promises.engine, promises.recipe).unwrap();
        for (name, promise) in COLUMNS {
            let Promise { holds, because, .. } = promise(promises);
            let holds = if holds { "yes" } else { "no" };
            writeln!(text, "- **{name}**: {holds}; {because}").unwrap();
        }
        writeln!(text, "- **whose clock counts**: {}", promises.clock).unwrap();
        writeln!(text, "- **a crashed process leaves**: {}", promises.after_crash).unwrap();
        writeln!(text, "- **a dropped connection leaves**: {}", promises.after_disconnect).unwrap();
        writeln!(text, "- **a request that comes late can do**: {}", promises.late_request)
            .unwrap();
    }
    text
}

#[test]
fn promise_tables_match_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a mark for the tables");
    let (tables, after) = rest.split_once(END).expect("the page has a mark for their end");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", generated())).unwrap();
        return;
    }
    assert_eq!(tables, generated(), "run this test with UPDATE_DOCS=1 to write docs/engines.md");
}
