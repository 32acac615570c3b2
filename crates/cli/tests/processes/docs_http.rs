//! docs/http-api.md, typed as written: every command, in order, in one shell.

use crate::support::guide::{appears, steps};
use crate::support::{Dev, Http, TIMEOUT};
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

const PAGE: &str = include_str!("../../../../docs/http-api.md");

/// The server in the page's examples.
const DOCUMENTED: &str = "http://127.0.0.1:7400";

/// Would fail if a command on the page did not work, or printed something else than it says.
#[test]
fn page_commands_work_as_written() {
    let dev = Dev::start(1);
    Http::new(TIMEOUT).get_ok(dev.port(1), "/readyz");
    let steps = steps(PAGE);
    assert!(steps.len() > 12, "the page's commands were not found");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut script = "set -eu -o pipefail\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        let typed = step.typed.replace(DOCUMENTED, &format!("http://127.0.0.1:{}", dev.port(1)));
        // Braces, so that one step sees the variables that earlier ones have set.
        let _ = writeln!(script, "{{ {typed}\n}} > {number}.out 2>&1");
    }
    fs::write(folder.path().join("page.sh"), script).expect("a script can be written");
    let shell = Command::new("timeout")
        .args([&TIMEOUT.as_secs().to_string(), "bash", "page.sh"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    for (number, step) in steps.iter().enumerate() {
        let output = fs::read_to_string(folder.path().join(format!("{number}.out")));
        let output = output.unwrap_or_else(|error| panic!("{error}, {shell:?}\n{}", step.typed));
        for line in &step.printed {
            assert!(appears(line, &output), "`{line}` is not said by:\n{}\n{output}", step.typed);
        }
    }
    assert!(shell.status.success(), "{shell:?}");
}

/// Would fail if an endpoint were added and not explained.
#[test]
fn every_call_is_documented() {
    let dev = Dev::start(1);
    let described = Http::new(TIMEOUT).get_ok(dev.port(1), "/openapi.json");
    let paths = described["paths"].as_object().expect("paths are described");
    assert!(paths.len() > 30);
    for path in paths.keys() {
        let last = path.rsplit('/').next().unwrap_or_default();
        let told = PAGE.contains(path.as_str()) || PAGE.contains(&format!("`{last}`"));
        assert!(told, "{path} is not on the page");
    }
}
