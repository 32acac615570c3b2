//! Plants mistakes in a copy of the workspace and runs the checks there: each mistake must be caught.
//!
//! `mistakes/` holds one diff per mistake, `checks/` the tests that look for them. The sources that
//! ship are only read. The copy is a workspace of its own in the target folder and holds all
//! mistakes at once, each behind a switch that is off until a check plants the mistake. Files are
//! written only if their content changed, so cargo rebuilds only what it must.
//!
//! Run it with `cargo run --release -p planted`.

mod diff;
mod mistakes;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The tests in `checks/` are modules of this name, which is also the filter that selects them.
const CHECK: &str = "caught";

/// Builds and runs the tests that the checks are modules of.
const TESTS: [&str; 8] =
    ["test", "--release", "--locked", "--workspace", "--bin", "sim", "--test", "model"];

/// Variables that cargo sets for this program about its package. The build scripts of some
/// dependencies run again when these change, and then everything that depends on them is rebuilt,
/// here and in the original.
const OF_THIS_PACKAGE: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let target = target_dir()?;
    let copy = target.join("planted");
    workspace::Workspace::planted(&root()?)?.write_to(&copy)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(TESTS).arg("--target-dir").arg(&target);
    cargo.args(["--", CHECK, "--nocapture"]).current_dir(&copy);
    for (name, _) in std::env::vars_os() {
        if OF_THIS_PACKAGE.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status();
    Ok(status.map_err(|error| format!("cargo can't be started: {error}"))?.success())
}

/// The root of the workspace that this program belongs to. Not the one it was built in, which may
/// be another checkout with the same target folder.
fn root() -> Result<PathBuf, String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = package.as_deref().and_then(Path::parent).and_then(Path::parent);
    root.map(Path::to_owned)
        .ok_or_else(|| "run this with `cargo run --release -p planted`".to_owned())
}

/// The target folder of this build: its dependencies are already built there.
fn target_dir() -> Result<PathBuf, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let target = program.parent().and_then(Path::parent);
    target
        .map(Path::to_owned)
        .ok_or_else(|| format!("{} is in no target folder", program.display()))
}
