//! docs/protocols/redis.md lists exactly the commands that exist.

use holdfast_redis::command::all;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/protocols/redis.md");

/// Fails if a command is added but not documented, or documented but missing.
#[test]
fn documentation_lists_exactly_the_supported_commands() {
    let section = PAGE.split("\n## Commands\n").nth(1).expect("a list of commands");
    let section = section.split("\n## ").next().unwrap_or_default();
    let told: BTreeSet<(String, String)> = section
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let (summary, _) = rest.split_once(" | ")?;
            Some((name.to_owned(), summary.to_owned()))
        })
        .collect();
    let known: BTreeSet<(String, String)> =
        all().map(|spec| (spec.name.to_uppercase(), spec.summary.to_owned())).collect();
    let missing: Vec<_> = known.difference(&told).collect();
    let wrong: Vec<_> = told.difference(&known).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "missing: {missing:?}\nwrong: {wrong:?}");
    assert!(known.len() > 80);
}
