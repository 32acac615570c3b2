//! Messages and logs that must never reach the library.

use super::*;

fn entry(index: u64, term: u64) -> LogEntry {
    LogEntry { at: Position { index, term }, kind: EntryKind::Batch, data: Vec::new() }
}

/// Node 1 of three, with entries 2 to 4 of term 2, all of them committed.
fn stored() -> DurableState {
    let voters = Voters { voters: vec![1, 2, 3], learners: Vec::new() };
    DurableState {
        snapshot: Position { index: 1, term: 1 },
        voters,
        hard_state: HardState { term: 2, vote: 0, commit: 4 },
        entries: (2..=4).map(|index| entry(index, 2)).collect(),
    }
}

fn follower() -> Consensus {
    Consensus::new(NodeId(1), stored(), 1).expect("it makes sense")
}

fn message(kind: MessageType) -> RaftMessage {
    RaftMessage { kind: kind as i32, to: 1, from: 2, term: 3, ..RaftMessage::default() }
}

/// A follower whose disk had lost an acknowledged entry used to panic at the next heartbeat, and
/// again after each restart.
#[test]
fn follower_that_lost_entries_does_not_panic() {
    let heartbeat = |commit| RaftMessage { commit, ..message(MessageType::MsgHeartbeat) };
    assert_eq!(follower().step(heartbeat(4)), Ok(()));
    let LostEntries(why) = follower().step(heartbeat(5)).expect_err("it lacks entry 5");
    assert!(why.contains("acknowledged entry 5") && why.contains("ends at entry 4"), "{why}");
    // A leader of an earlier term is not trusted.
    let late = RaftMessage { term: 1, ..heartbeat(5) };
    assert_eq!(follower().step(late), Ok(()));
}

/// Entries that differ from committed ones used to be taken for known, and the log was left as it
/// was.
#[test]
fn diverging_history_is_detected() {
    let append = |index, log_term, entries: Vec<LogEntry>| RaftMessage {
        index,
        log_term,
        entries,
        ..message(MessageType::MsgAppend)
    };
    assert_eq!(follower().step(append(4, 2, vec![entry(5, 3)])), Ok(()));
    assert_eq!(follower().step(append(2, 2, vec![entry(3, 2)])), Ok(()));
    assert!(follower().step(append(4, 3, vec![entry(5, 3)])).is_err());
    assert!(follower().step(append(2, 2, vec![entry(3, 2), entry(4, 3)])).is_err());
}

#[test]
fn inconsistent_log_is_refused() {
    let refused = |change: fn(&mut DurableState)| {
        let mut stored = stored();
        change(&mut stored);
        Consensus::new(NodeId(1), stored, 1).err().unwrap_or_default()
    };
    assert!(refused(|stored| stored.hard_state.commit = 5).contains("but 5 was committed"));
    assert!(refused(|stored| drop(stored.entries.remove(1))).contains("a gap"));
    assert!(refused(|stored| stored.voters.learners.push(2)).contains("members"));
    assert!(Consensus::new(NodeId(0), stored(), 1).is_err());
}

/// Pseudo-random numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn message(&mut self) -> RaftMessage {
        let kinds = FROM_PEERS.len() as u64;
        let kind = FROM_PEERS.get(self.below(kinds) as usize).map_or(0, |kind| *kind as i32);
        let index = self.below(9);
        let first = if self.below(8) == 0 { self.below(9) } else { index + 1 };
        let entries = (first..first + self.below(4)).map(|at| entry(at, self.below(5)));
        let entries = entries.collect();
        let at = Position { index: self.below(12), term: self.below(5) };
        let mut ids = || (0..self.below(4)).map(|_| self.below(5)).collect::<Vec<_>>();
        let snapshot = Some((at, Voters { voters: ids(), learners: ids() }));
        RaftMessage {
            kind,
            to: 1,
            from: 2 + self.below(2),
            term: self.below(6),
            log_term: self.below(5),
            index,
            entries,
            commit: self.below(9),
            commit_term: self.below(5),
            snapshot: snapshot.filter(|_| self.below(4) > 0),
            request_snapshot: self.below(3),
            reject: self.below(2) == 0,
            reject_hint: self.below(9),
            context: vec![0; self.below(3) as usize],
            priority: self.below(3) as i64,
        }
    }
}

/// The library panics at many things that a peer might send. None of them may get through, whatever
/// happens in between.
#[test]
fn no_message_panics_the_raft_library() {
    let mut draw = Draw(7);
    for _ in 0..3_000 {
        let mut consensus = follower();
        let mut applied = 0;
        for _ in 0..30 {
            match draw.below(12) {
                0 => (0..draw.below(25)).for_each(|_| consensus.tick()),
                1 => consensus.campaign(),
                2 => drop(consensus.propose(vec![1])),
                3 => consensus.read_index(vec![draw.below(3) as u8]),
                4 => consensus.transfer(NodeId(draw.below(4))),
                5 => consensus.snapshot_sent(NodeId(2), draw.below(2) == 0),
                6 => consensus.hung_up(NodeId(2)),
                _ => {
                    if consensus.step(draw.message()).is_err() {
                        break;
                    }
                }
            }
            for _ in 0..4 {
                let Some(ready) = consensus.ready() else { break };
                let installed = ready.installed.as_ref().map(|(at, _)| at.index);
                let last = ready.committed.last().map(|last| last.at.index);
                applied = last.or(installed).unwrap_or(applied);
                if draw.below(3) > 0 {
                    consensus.persisted(ready.number);
                }
                consensus.applied(applied);
            }
        }
    }
}
