//! Plays every transcript and compares the results with the file.
//!
//! A file starts with a comment that says what it shows, followed by blocks: input lines, `---`,
//! output lines, an empty line. `UPDATE_TRANSCRIPTS=1 cargo test --release -p holdfast-core --test
//! transcripts` writes the current output into the files; read the diff before you commit it.
#![allow(clippy::disallowed_methods, reason = "a test reads files")]

use holdfast_play::Play;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Fewer files than this means that some were lost.
const TRANSCRIPTS_MIN: usize = 60;

fn transcripts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let mut files: Vec<PathBuf> = entries(&root).iter().flat_map(|topic| entries(topic)).collect();
    files.sort();
    files
}

/// Plays a transcript and returns it as it should read.
fn played(text: &str) -> String {
    let mut play = Play::default();
    let mut now = String::new();
    let mut printed = Vec::new();
    let mut skipping = false;
    for line in text.lines() {
        match (skipping, line) {
            (true, "") => {
                skipping = false;
                now.push('\n');
            }
            (true, _) => {}
            (false, "---") => {
                skipping = true;
                now.push_str("---\n");
                for line in printed.drain(..) {
                    writeln!(now, "{line}").unwrap();
                }
            }
            (false, line) => {
                writeln!(now, "{line}").unwrap();
                printed.extend(play.line(line));
                play.state().check().unwrap_or_else(|wrong| panic!("after `{line}`: {wrong}"));
            }
        }
    }
    assert!(printed.is_empty(), "the last block has no `---`");
    now
}

#[test]
fn transcripts_match() {
    let update = std::env::var("UPDATE_TRANSCRIPTS").is_ok();
    let files = transcripts();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.starts_with("# "), "{} must begin with what it shows", file.display());
        assert!(text.contains("\n---\n"), "{} shows nothing", file.display());
        let now = played(&text);
        if now == text {
            continue;
        }
        if update {
            std::fs::write(file, &now).unwrap();
        } else {
            wrong.push(format!("{}: should be\n{text}\nbut is\n{now}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
    assert!(files.len() >= TRANSCRIPTS_MIN, "only {} transcripts", files.len());
}
