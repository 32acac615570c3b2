//! Replays the transcripts in `tests/transcripts`: requests, then what comes of them.
//!
//! `UPDATE=1 cargo test -p holdfast-redis --test transcripts` rewrites them with the current
//! output.

mod support;

use bytes::BytesMut;
use holdfast_redis::resp::{Bounds, Decoder};
use std::fmt::Write;
use std::path::Path;
use support::{Harness, show};

#[test]
fn stories() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "the stories are missing");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let story = retell(&text);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &story).unwrap();
            continue;
        }
        assert_eq!(text, story, "{}", file.display());
    }
}

/// Plays a transcript: lines up to `---` are sent; what follows, up to an empty line, is the
/// output.
fn retell(text: &str) -> String {
    let mut harness = Harness::default();
    let mut story = String::new();
    let mut replies = String::new();
    let mut in_story = false;
    for line in text.lines().chain([""]) {
        if line == "---" {
            writeln!(story, "---\n{}", replies.trim_end()).unwrap();
            replies.clear();
            in_story = true;
        } else if line.is_empty() {
            if !replies.is_empty() {
                writeln!(story, "---\n{}", replies.trim_end()).unwrap();
                replies.clear();
            }
            story.push('\n');
            in_story = false;
        } else if !in_story {
            writeln!(story, "{line}").unwrap();
            if !line.starts_with('#') {
                replies.push_str(&play(&mut harness, line));
            }
        }
    }
    format!("{}\n", story.trim_end())
}

fn play(harness: &mut Harness, line: &str) -> String {
    let mut out = String::new();
    if let Some(ms) = line.strip_prefix("tick ") {
        harness.tick(ms.parse().unwrap());
    } else {
        let (who, request) = line.split_once(": ").unwrap_or_else(|| panic!("who? {line}"));
        if who == "native" {
            let words: Vec<&str> = request.split(' ').collect();
            let said = match words.as_slice() {
                ["acquire", name, label, ttl, wait] => {
                    harness.acquire(name, label, ttl.parse().unwrap(), wait.parse().unwrap())
                }
                ["release", name] => harness.release(name),
                other => panic!("what? {other:?}"),
            };
            writeln!(out, "native: {said}").unwrap();
        } else {
            let mut buffer = BytesMut::from(format!("{request}\n").as_bytes());
            let words = Decoder::default().decode(&mut buffer, &Bounds::DEFAULT).unwrap().unwrap();
            for reply in harness.ask(who, &words) {
                writeln!(out, "{who}: {}", show::reply(&reply)).unwrap();
            }
        }
    }
    for effect in std::mem::take(&mut harness.effects) {
        if let Some(line) = show::effect(&effect) {
            writeln!(out, "{line}").unwrap();
        }
    }
    out
}
