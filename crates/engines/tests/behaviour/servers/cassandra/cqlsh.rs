//! The real cqlsh, from PyPI, installed as docs/tutorials/cassandra-lock.md says.

use crate::page;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub(crate) const PAGE: &str = "tutorials/cassandra-lock.md";

/// Longer than any statement takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A command that marks the end of a statement's output, and what it prints.
const END: (&str, &str) = ("SHOW HOST", "Connected to ");

/// A cqlsh session to type into.
pub(crate) struct Cqlsh {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Cqlsh {
    /// Runs the page's command, with another port.
    pub(crate) fn start(port: u16) -> Self {
        let page = page::read(PAGE);
        let blocks = page::blocks(&page);
        let mut shell = blocks.iter().filter(|block| block.language == "sh");
        let install = &shell.next().expect("the page installs cqlsh").text;
        let start = &shell.next().expect("the page starts cqlsh").text;
        let start = start.trim_end().replace("9042", &port.to_string());
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec {start} 2>&1")])
            .current_dir(installed(install))
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut cqlsh = Self { process, input, lines };
        // The first output contains a warning about versions.
        cqlsh.type_in("");
        cqlsh
    }

    /// Types statements, and returns what they print.
    pub(crate) fn type_in(&mut self, statements: &str) -> String {
        let (command, answer) = END;
        writeln!(self.input, "{statements}\n{command}").unwrap();
        let mut printed = String::new();
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no end after {statements}: {printed}"));
            if line.starts_with(answer) {
                return printed;
            }
            printed.extend([&line, "\n"]);
        }
    }
}

impl Drop for Cqlsh {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where these commands have installed cqlsh: once, in the user's cache.
fn installed(commands: &str) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = super::cache();
        std::fs::create_dir_all(&folder).unwrap();
        run_shell(commands, &folder);
        folder
    })
}

/// Runs a block of shell commands, each of which must succeed.
pub(crate) fn run_shell(commands: &str, folder: &Path) {
    let ran = Command::new("sh").args(["-e", "-c", commands]).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{commands}: {said}");
}
