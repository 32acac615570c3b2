//! The README as written: its commands are typed, its tour is played.

use crate::support::{HOLDFAST, follow, outside_cargo};
use std::io::Write;
use std::process::{Command, Stdio};

const README: &str = include_str!("../../../../README.md");

/// What the tour types; every other indented line is its output.
const VERBS: [&str; 7] = ["acquire", "release", "recovered", "put", "outcome", "tick", "show"];

fn is_typed(line: &str) -> bool {
    let printed = line.split_once(": ").map_or(line, |(_, printed)| printed);
    printed.split(' ').next().is_some_and(|verb| VERBS.contains(&verb))
}

#[test]
fn readme_tour_works_as_written() {
    let tour = README.split("## A 60-second tour").nth(1).unwrap().split("\n## ").next().unwrap();
    let lines = tour.lines().filter_map(|line| line.strip_prefix("    "));
    let (typed, printed): (Vec<&str>, Vec<&str>) = lines.partition(|line| is_typed(line));
    assert!(typed.len() > 10 && printed.len() > 5, "the tour was not found");

    let mut holdfast = Command::new(HOLDFAST)
        .arg("play")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    holdfast.stdin.take().unwrap().write_all(typed.join("\n").as_bytes()).unwrap();
    let output = holdfast.wait_with_output().unwrap();
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    let mut rest = shown.lines();
    for line in printed {
        assert!(
            rest.any(|shown| shown == line),
            "the tour says `{line}`, but this happened:\n{shown}"
        );
    }
    assert!(!shown.contains("error:"), "{shown}");
    assert!(shown.contains("would create a cycle"), "{shown}");
}

/// `dev` keeps running in its own terminal while the others are typed.
#[test]
fn readme_commands_work_as_written() {
    const DEV: &str = "cargo run --release -- dev";
    let dev = README.lines().find(|line| line.starts_with(DEV)).expect("the README starts a node");
    let wait = "until curl -fsS http://127.0.0.1:7400/readyz; do sleep 0.1; done";
    let background = format!("{DEV} > /dev/null 2>&1 & {wait}");
    let before_the_tour = README.split("## A 60-second tour").next().unwrap();
    // If this was not built before these tests, it takes longer than a step of a guide may.
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut build = outside_cargo(Command::new("cargo"));
    let built = build.args(["build", "--release"]).current_dir(project).status();
    assert!(built.is_ok_and(|status| status.success()), "the project builds");
    follow(&before_the_tour.replace(dev, &background));
}
