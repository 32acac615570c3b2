//! Snapshots of every version can still be read.
//!
//! `data/snapshot-v1.bin` was written by version 1 and is never written again; next to it is a text
//! file with its content. The same goes for each later version. `WRITE_SNAPSHOT=1` writes the
//! newest one, and all text files.
#![allow(clippy::disallowed_methods, reason = "a test reads files")]

use holdfast_core::{BadSnapshot, Limits, State};
use holdfast_play::Play;
use std::path::PathBuf;

/// A state that contains everything.
const STORY: &str = r#"
pam: acquire shelf
ana: acquire seat-12A ttl=1m note="paid" request=1
bo: acquire seat-12A wait=30s request=4 lowest=3
cy: acquire seat-12A ttl=5s wait=1h key=random-text-of-cy
pam: acquire seat-12A claims=1
dora: acquire doc shared permanent label=reader
eve: acquire doc shared delay=10s
eve: upgrade doc wait=1h
fay: acquire pool permits=2
gus: acquire pool permits=2
hal: acquire pool permits=2
ivy: acquire left right middle
jo: acquire middle
red: acquire lamp door=redis ttl=9s alone label=red-value
zoe: acquire door/lock door=zookeeper
ken: acquire job ttl=1s note="half done"
lea: acquire job ttl=1s delay=1m
tick 1500ms
tick 1s term=2
ops: revoke pool within=1h force reason="maintenance"
ops: force middle reason="stuck"
ana: put seat-12A "sold to ana" token=2
dora: raise doc token=6 shared
ana: outcome request=9
n1: open node ttl=5s
n1: acquire queue ttl=1h number=1
mia: open ttl=2s label=mia@host
mia: acquire gone
expire mia term=2
"#;

const SHOW: &str = "shelf seat-12A doc pool left middle right lamp door/lock job queue gone";

/// Added in version 2: keys.
const STORY_2: &str = r#"
red: exec set counter 1 ttl=1h; hash cart apples=2 pears=1; list jobs a b c ttl=1m
red: exec relabel counter 2
red: exec hash cart apples=3
cass: exec door=cql set row cass
red: look counter cart jobs row
red: look *
"#;

const SHOW_2: &str = "counter cart jobs row";

/// Added in version 3: fingerprints of requests.
const STORY_3: &str = r#"
nia: acquire desk ttl=1h request=5 lowest=5
web: acquire chair ttl=1h key=random-text-of-web
"#;

/// Added in version 4: node sessions with the node's id, and a grant that is not confirmed.
const STORY_4: &str = r#"
olga: acquire bench ttl=1h alone
n7: open of=7 ttl=5s
n7: acquire bench ttl=1h wait=1m unconfirmed
n7: acquire bench ttl=1h wait=1m unconfirmed
olga: release bench
"#;

const SHOW_4: &str = "bench";

/// The version written now.
const VERSION: u16 = 4;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The story of a version.
fn played(version: u16) -> Play {
    let mut play = Play::default();
    let second = if version > 1 { STORY_2 } else { "" };
    let third = if version > 2 { STORY_3 } else { "" };
    let fourth = if version > 3 { STORY_4 } else { "" };
    let stories = [STORY, second, third, fourth];
    for line in stories.into_iter().flat_map(str::lines) {
        for report in play.line(line) {
            assert!(!report.starts_with("error"), "{line}: {report}");
        }
    }
    play
}

/// Everything that can be queried, as text.
fn report(mut play: Play, version: u16) -> String {
    let mut lines = Vec::new();
    if version > 1 {
        for name in SHOW_2.split(' ') {
            lines.extend([
                format!("key {name}"),
                format!("show {name}"),
                format!("history {name}"),
            ]);
        }
        // Stamps from before the snapshot are still valid, so nothing was forgotten.
        let count_on = ["red: exec publish news same", "keys"].map(str::to_owned);
        lines.extend(count_on);
    }
    for name in SHOW.split(' ') {
        for verb in ["show", "why", "history"] {
            lines.push(format!("{verb} {name}"));
        }
    }
    if version > 3 {
        // The session of the next process ends this one's, and with it what was not confirmed.
        let restarted = ["restarted: open of=7 ttl=5s"].map(str::to_owned);
        lines.push(format!("show {SHOW_4}"));
        lines.extend(restarted);
        lines.extend([format!("show {SHOW_4}"), format!("history {SHOW_4}")]);
    }
    lines.extend(["sessions", "counts", "x: get seat-12A", "x: get doc"].map(str::to_owned));
    if version > 2 {
        let others =
            ["nia: acquire sofa ttl=1h request=5", "web: acquire sofa key=random-text-of-web"];
        lines.extend(others.map(str::to_owned));
    }
    // The memory of requests, and what happens to the rest as time passes.
    lines.push("cy: outcome key=random-text-of-cy".to_owned());
    lines.extend(["tick 30s", "tick 1m", "tick 1h", "ls limit=50", "counts"].map(str::to_owned));
    let answers = lines.iter().flat_map(|line| {
        let report = play.line(line).into_iter().map(|line| format!("  {line}"));
        std::iter::once(format!("> {line}")).chain(report).collect::<Vec<_>>()
    });
    answers.map(|line| line + "\n").collect()
}

fn pieces(state: &State) -> Vec<Vec<u8>> {
    state.snapshot().pieces().collect::<Result<_, _>>().unwrap()
}

/// Pieces in one file, each preceded by its length.
fn framed(pieces: &[Vec<u8>]) -> Vec<u8> {
    let frame = |piece: &Vec<u8>| [&(piece.len() as u32).to_le_bytes()[..], piece].concat();
    pieces.iter().flat_map(frame).collect()
}

fn unframed(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let (piece, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    pieces
}

fn load(pieces: &[Vec<u8>]) -> Result<State, BadSnapshot> {
    State::load(pieces, Limits::DEFAULT, 42)
}

#[test]
fn snapshots_of_every_version_are_read() {
    for version in 1..=VERSION {
        let file = data(&format!("snapshot-v{version}.bin"));
        let words = data(&format!("snapshot-v{version}.txt"));
        let write = std::env::var("WRITE_SNAPSHOT").is_ok();
        if write && version == VERSION {
            std::fs::write(&file, framed(&pieces(played(version).state()))).unwrap();
        }
        let mut state = load(&unframed(&std::fs::read(file).unwrap())).unwrap();
        state.check().unwrap();
        // The program that wrote it counted bytes as at that level.
        state.set_level(version);
        let mut play = played(version);
        play.go_on_with(state);
        let report = report(play, version);
        if write {
            std::fs::write(&words, &report).unwrap();
        }
        assert_eq!(report, std::fs::read_to_string(words).unwrap());
    }
}

#[test]
fn snapshots_survive_a_round_trip() {
    let mut play = played(VERSION);
    let loaded = load(&pieces(play.state())).unwrap();
    loaded.check().unwrap();
    play.go_on_with(loaded);
    assert_eq!(report(play, VERSION), report(played(VERSION), VERSION));
}

#[test]
fn snapshot_is_unaffected_by_later_changes() {
    let mut play = played(VERSION);
    let snapshot = play.state().snapshot();
    let before: Vec<Vec<u8>> = snapshot.pieces().collect::<Result<_, _>>().unwrap();
    for line in ["ana: release seat-12A", "tick 1h", "nia: acquire seat-12A", "ops: force doc"] {
        play.line(line);
    }
    let after: Vec<Vec<u8>> = snapshot.pieces().collect::<Result<_, _>>().unwrap();
    assert_eq!(before, after);
    assert_ne!(before, pieces(play.state()));
}

#[test]
fn invalid_snapshots_are_refused_with_a_reason() {
    let good = pieces(played(VERSION).state());
    assert_eq!(load(&[]).unwrap_err(), BadSnapshot::NotASnapshot);
    assert_eq!(load(&[b"something else".to_vec()]).unwrap_err(), BadSnapshot::NotASnapshot);
    let mut newer = good.clone();
    newer[0][8] = 9;
    let error = load(&newer).unwrap_err();
    assert_eq!(error, BadSnapshot::UnknownVersion(9));
    assert!(error.to_string().contains("upgrade"), "{error}");
    let missing = load(&good[..good.len() - 1]).unwrap_err();
    assert!(matches!(missing, BadSnapshot::Incomplete(_)), "{missing}");
    let mut damaged = good.clone();
    damaged[1].truncate(3);
    assert_eq!(load(&damaged).unwrap_err(), BadSnapshot::Damaged { piece: 1 });
}
