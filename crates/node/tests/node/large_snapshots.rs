//! The largest states fit into files: as a node's own snapshot, as one that is sent, and as a
//! backup.
//!
//! Pieces of a snapshot were limited by records, not by bytes. With 256 long register values no
//! node could write a snapshot any more, and a backup was written without an error that could not
//! be read back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops where it can't go on")]

use holdfast_core::{
    Acquire, Answer, Command, Door, Label, Lease, Limits, LockName, Mode, OpenSession, Proposal,
    ProposalOutcome, RequestId, RequestRef, Secret, SessionKind, SessionRef, State, Token, Value,
    Wait,
};
use holdfast_node::{
    Cluster, NodeId, Position, SnapshotTask, backup, load, read_backup, read_snapshot,
    verify_backup, write_snapshot,
};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, PIECE_BYTES_MAX, SnapshotWriter};

fn apply(state: &mut State, proposal: impl Into<Proposal>) -> Answer {
    match state.apply(proposal.into(), &mut Vec::new()) {
        ProposalOutcome::Answered(Ok(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

/// A register of long values, and a session that remembers as many answers as it may.
fn large() -> State {
    let mut state = State::new(Limits::DEFAULT, 1);
    let name = |number: usize| LockName::parse(format!("{number:0512}")).unwrap();
    let secret = Secret([1; 16]);
    let (label, kind) = (Label::parse("x".repeat(4_096)).ok(), SessionKind::Client);
    let open = OpenSession { secret, ttl_ms: 10_000, label, kind };
    let Answer::SessionOpened(id) = apply(&mut state, Command::OpenSession(open)) else {
        panic!("no session");
    };
    let session = SessionRef { id, secret };
    let acquire = Acquire {
        names: (0..16).map(name).collect(),
        mode: Mode::Exclusive,
        session: Some(session),
        lease: Lease::Session,
        wait: Wait::Try,
        label: None,
        note: None,
        secret: None,
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    };
    apply(&mut state, Command::Acquire(acquire));
    let put = |number: usize| {
        let value = Value::parse(vec![b'v'; Value::BYTES_MAX]).unwrap();
        Command::Put { key: name(number), value, token: Token(1), mode: Mode::Exclusive }
    };
    for number in 0..400 {
        apply(&mut state, put(number));
    }
    for id in 1..=60 {
        let (id, lowest) = (RequestId::new(id).unwrap(), RequestId::FIRST);
        let request = Some(RequestRef::InSession { session, id, lowest });
        apply(&mut state, Proposal { from: None, request, command: put(0) });
    }
    state
}

fn task(state: &State) -> SnapshotTask {
    SnapshotTask {
        at: Position { index: 7, term: 3 },
        cluster: Cluster::begin([(NodeId(1), "127.0.0.1:1".to_owned())]),
        snapshot: state.snapshot(),
    }
}

#[test]
fn largest_state_is_written_sent_and_loaded() {
    let (state, disk) = (large(), SimDisk::new());
    write_snapshot(&disk, &task(&state)).unwrap();
    let reader = read_snapshot(&disk).unwrap().unwrap();
    // As another node receives it: piece by piece, each within the limit.
    let other = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&other, reader.position(), reader.meta()).unwrap();
    for piece in reader.pieces() {
        let piece = piece.unwrap();
        assert!(piece.len() <= PIECE_BYTES_MAX / 2, "{} bytes", piece.len());
        writer.piece(writer.next_piece(), &piece).unwrap();
    }
    assert_eq!(writer.checksum(), reader.checksum());
    writer.finish().unwrap();
    let received = read_snapshot(&other).unwrap().unwrap();
    for reader in [reader, received] {
        let loaded = load(&reader, Limits::DEFAULT, 2).unwrap();
        loaded.state.check().unwrap();
        assert_eq!(loaded.state.counts(), state.counts());
    }
}

#[test]
fn largest_backup_can_be_restored() {
    let (state, disk) = (large(), SimDisk::new());
    let parts: Result<Vec<Vec<u8>>, String> = backup(&task(&state)).collect();
    let bytes = parts.unwrap().concat();
    let put = |name: &str, bytes: &[u8]| {
        let file = disk.create(name).unwrap();
        disk.write_at(&file, 0, bytes).unwrap();
    };
    put("backup", &bytes);
    verify_backup(&disk, "backup").unwrap();
    assert_eq!(read_backup(&disk, "backup").unwrap().state.counts(), state.counts());
    put("cut", &bytes[..bytes.len() - 1]);
    verify_backup(&disk, "cut").unwrap_err();
}
