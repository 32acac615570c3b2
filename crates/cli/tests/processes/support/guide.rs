//! Runs a guide for people as written: every command, in order, on separate machines.
//!
//! The machines are folders, and addresses in one network namespace, so the documented ports are
//! free. Everything that a command leaves running is in one process namespace, and ends with it.

use super::{HOLDFAST, eventually};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The machine for commands that may be typed anywhere.
const ANYWHERE: &str = "admin";

/// The folder of this project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Exported variables stay set for later commands on the same machine.
const SAME_SESSION: &str = "export -p | grep ' HOLDFAST_' > \"$SESSION\" || true";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    machine: String,
    /// What is typed.
    pub(crate) typed: String,
    /// The output that the guide shows, line by line.
    pub(crate) printed: Vec<String>,
}

/// Blocks start with ```sh and the machine; a ```text block is the output of the one before. What
/// is in `<!-- run MACHINE: ... -->` happens on a machine without anybody typing it. The machine
/// `project` is this project's folder.
pub(crate) fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        let mut block = || {
            let lines = lines.by_ref().take_while(|line| *line != "```");
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        if let Some(machine) = line.strip_prefix("```sh") {
            let machine = match machine.trim() {
                "" => ANYWHERE,
                machine => machine,
            };
            let (machine, typed) = (machine.to_owned(), block().join("\n"));
            steps.push(Step { machine, typed, printed: Vec::new() });
        } else if line == "```text" {
            let last = steps.last_mut().expect("a command comes before what it prints");
            last.printed = block();
        } else if let Some(hidden) = line.strip_prefix("<!-- run ") {
            let hidden = hidden.strip_suffix(" -->").expect("a hidden step ends with its line");
            let (machine, typed) = hidden.split_once(": ").expect("a machine and a command");
            let (machine, typed) = (machine.to_owned(), typed.to_owned());
            steps.push(Step { machine, typed, printed: Vec::new() });
        } else {
            assert!(!line.starts_with("```"), "a block that nobody runs: {line}");
        }
    }
    steps
}

/// One script for all steps; it stops at the first that fails.
fn script(steps: &[Step]) -> String {
    // It must end even if the process that waits for it is gone.
    let mut script = "set -eu\n(sleep 900; kill -9 -1) &\nip link set lo up\n".to_owned();
    for machine in 1..=5 {
        script += &format!("ip addr add 10.0.0.{machine}/32 dev lo\nmkdir 10.0.0.{machine}\n");
    }
    script += &format!("mkdir {ANYWHERE}\n");
    for (number, Step { machine, .. }) in steps.iter().enumerate() {
        let folder = if machine == "project" { PROJECT } else { machine };
        let _ = writeln!(
            script,
            "(export SESSION=$PWD/{machine}.session SCRIPT=$PWD/{number}.sh; touch \"$SESSION\"; \
             . \"$SESSION\"; cd {folder}; bash -eu -o pipefail \"$SCRIPT\") \
             > {number}.out 2>&1\necho {number} > done",
        );
    }
    script
}

/// Whether a line like this was printed: `…` stands for anything within a line.
pub(crate) fn appears(line: &str, output: &str) -> bool {
    output.lines().any(|told| {
        let mut rest = Some(told);
        for part in line.split('…') {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
        }
        rest.is_some()
    })
}

/// Fails if a command in the guide does not work, or does something else than it says.
pub(crate) fn follow(guide: &str) {
    let steps = steps(guide);
    assert!(steps.len() > 1, "the guide's commands were not found");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = |name: String| folder.path().join(name);
    for (number, step) in steps.iter().enumerate() {
        let typed = format!("{}\n{SAME_SESSION}\n", step.typed);
        fs::write(file(format!("{number}.sh")), typed).expect("a script can be written");
    }
    fs::write(file("all.sh".into()), script(&steps)).expect("a script can be written");

    let status = run_apart(folder.path());
    let output = |number: usize| fs::read_to_string(file(format!("{number}.out")));
    let done = fs::read_to_string(file("done".into())).unwrap_or_default();
    let done: Option<usize> = done.trim().parse().ok();
    let next = done.map_or(0, |done| done + 1);
    if let Some(step) = steps.get(next) {
        let printed = output(next).unwrap_or_default();
        panic!(
            "{status}: on {} this failed:\n{}\n--- it said:\n{printed}",
            step.machine, step.typed
        );
    }
    for (number, step) in steps.iter().enumerate() {
        let output = output(number).expect("every step was run");
        for line in &step.printed {
            assert!(appears(line, &output), "`{line}` is not said by:\n{}\n{output}", step.typed);
        }
    }
}

/// A command without the environment that cargo sets for a test program. A cargo that inherits it
/// sees a change, and rebuilds ring and everything above it; and so does the next one without it.
pub(crate) fn outside_cargo(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let set_by_cargo =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "OUT_DIR"];
        if set_by_cargo.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
}

/// Everything in it ends with it.
struct Apart(Child);

impl Drop for Apart {
    fn drop(&mut self) {
        // If it has already ended, the error does not matter.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `all.sh` in its own namespaces, as long as it makes progress: it records in `done` what it
/// has done. Returns what happened to it.
pub(crate) fn run_apart(folder: &Path) -> String {
    let may = |flags: &str| {
        let tried = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let flags = ["-npf", "-Urnpf"].into_iter().find(|flags| may(flags)).expect(
        "this test needs namespaces: run it as root, or allow user namespaces (`unshare -Urnpf \
         true` from util-linux must work)",
    );
    let bin = Path::new(HOLDFAST).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    for tool in ["ip", "curl"] {
        let found = Command::new(tool).arg("-V").stdout(Stdio::null()).status();
        assert!(found.is_ok_and(|status| status.success()), "this test needs `{tool}`");
    }
    let shell = outside_cargo(Command::new("unshare"))
        .args([flags, "--kill-child", "bash", "all.sh"])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("LC_ALL", "C")
        .env_remove("HOLDFAST_SERVER")
        .stdin(Stdio::null())
        .spawn()
        .expect("unshare runs");
    let mut shell = Apart(shell);
    // As long as it finishes one step after the other, it may continue.
    let mut done = String::new();
    loop {
        let (ended, now) = eventually("one step after the other is done", || {
            let ended = shell.0.try_wait().expect("a child can be waited for");
            let now = fs::read_to_string(folder.join("done")).unwrap_or_default();
            (ended.is_some() || now != done).then_some((ended, now))
        });
        if let Some(status) = ended {
            return status.to_string();
        }
        done = now;
    }
}

#[test]
fn guide_commands_are_parsed() {
    let guide =
        "Text.\n<!-- run a: true -->\n```sh a\none\ntwo\n```\n\n```text\nx …\n```\n```sh\nb\n```\n";
    let step = |machine: &str, typed: &str, printed: &[&str]| Step {
        machine: machine.to_owned(),
        typed: typed.to_owned(),
        printed: printed.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected =
        [step("a", "true", &[]), step("a", "one\ntwo", &["x …"]), step(ANYWHERE, "b", &[])];
    assert_eq!(steps(guide), expected);
    assert!(appears("a…c", "0\nxabcx\n") && !appears("a…c", "a\nc\n"));
}
