//! Whatever was in progress when a backup was taken, a cluster that is restored from it is
//! consistent, and draws no number that another cluster drew.

#[allow(dead_code, reason = "the model does not know of backups")]
mod support;

use holdfast_core::{
    Answer, CannotRestore, Command, Effect, EndReason, Key, Limits, OpenSession, Proposal,
    ProposalOutcome, Restored, Secret, SessionKind, State, Token,
};
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeSet;
use support::cases::{ROOMY, TIGHT};
use support::moves::{Move, moves};
use support::player::{Player, fence_keys, lock_names};

const CASES: u32 = 500;

/// More holders and waiters of one name than there ever are.
const ALL: usize = 1_000;

/// A cluster of one node without a log.
struct Cluster {
    state: State,
    player: Player,
    /// Every number of a ticket or a grant.
    tokens: BTreeSet<Token>,
    /// The most recently granted.
    granted: BTreeSet<Token>,
    sessions: BTreeSet<u64>,
}

impl Cluster {
    fn new(limits: Limits) -> Self {
        Self::of(State::new(limits, 0))
    }

    fn of(state: State) -> Self {
        let player = Player::default();
        let (tokens, granted, sessions) = Default::default();
        Self { state, player, tokens, granted, sessions }
    }

    fn step(&mut self, command: Command) {
        self.propose(command.into());
    }

    fn propose(&mut self, proposal: Proposal) {
        let mut effects = Vec::new();
        let taken = self.state.apply(proposal.clone(), &mut effects);
        self.player.hear(&proposal, &taken, &effects, &self.state);
        if let ProposalOutcome::Answered(Ok(Answer::SessionOpened(id))) = &taken {
            self.sessions.insert(id.0.get());
        }
        if let ProposalOutcome::Answered(Ok(Answer::TicketStatus(status))) = &taken {
            self.tokens.insert(status.token());
        }
        for effect in &effects {
            if let Effect::Granted(grant) = effect {
                self.tokens.insert(grant.token);
                self.granted.insert(grant.token);
            }
        }
        self.state.check().unwrap();
    }

    fn play(&mut self, moves: &[Move]) {
        for number in 1..=3 {
            let kind = if number == 3 { SessionKind::Node } else { SessionKind::Client };
            let (secret, ttl_ms, label) = (Secret([100 + number; 16]), 1_000, None);
            self.step(Command::OpenSession(OpenSession { secret, ttl_ms, label, kind }));
        }
        for a_move in moves {
            let proposal = self.player.play(a_move, &self.state);
            self.propose(proposal);
        }
    }

    fn backup(&self) -> Vec<Vec<u8>> {
        self.state.snapshot().pieces().collect::<Result<_, _>>().unwrap()
    }

    /// The cluster restored from a backup of this one.
    fn restored(&self, unix_s: u64) -> (Self, Restored) {
        let mut cluster = Self::of(load(&self.backup(), *self.state.limits()));
        let restored = cluster.state.restore(unix_s).unwrap();
        cluster.player = self.player.clone();
        let tick = cluster.player.tick(0).into();
        let (how, ticked) = (EndReason::Restored, ProposalOutcome::Answered(Ok(Answer::Ticked)));
        let over = self.player.living_sessions().into_iter().map(|session| session.id);
        let over: Vec<_> = over.map(|session| Effect::SessionEnded { session, how }).collect();
        cluster.player.hear(&tick, &ticked, &over, &cluster.state);
        (cluster, restored)
    }
}

fn load(pieces: &[Vec<u8>], limits: Limits) -> State {
    let state = State::load(pieces, limits, 7).unwrap();
    state.check().unwrap();
    state
}

/// What must hold right after a restore.
fn check_restored(before: &State, after: &State, restored: &Restored) {
    after.check().unwrap();
    let (had, has) = (before.counts(), after.counts());
    assert_eq!((has.sessions, has.waiters), (0, 0));
    assert_eq!((has.holders, has.counter), (restored.still_held, restored.counter));
    assert_eq!((had.sessions, had.waiters), (restored.sessions_ended, restored.waits_ended));
    assert_eq!(had.holders, restored.still_held + restored.holders_ended);
    assert_eq!(has.requests_alone, had.requests_alone);
    assert!(has.deaths >= had.deaths.min(after.limits().deaths_max));
    let roomy = has.deaths < after.limits().deaths_max;
    for name in lock_names() {
        let was = before.lock_view(&name, ALL);
        let is = after.lock_view(&name, ALL);
        let was_held = was.as_ref().is_some_and(|lock| lock.holding > 0);
        let marked = is.as_ref().is_some_and(|lock| lock.needs_recovery.is_some());
        assert!(!roomy || !was_held || marked, "{name} was held and is not marked: {is:?}");
        for holder in is.iter().flat_map(|lock| &lock.holders) {
            let same = was.iter().flat_map(|lock| &lock.holders).any(|held| held == holder);
            assert!(same, "{holder:?} was not held so in {was:?}");
        }
    }
    for name in lock_names() {
        if let object @ Key::Object(_) = before.key(&name) {
            assert_eq!(after.key(&name), object);
        }
    }
    for key in fence_keys() {
        assert_eq!(before.fence(&key), after.fence(&key));
    }
    // A restored state can be written and read like any other.
    let again =
        load(&after.snapshot().pieces().collect::<Result<Vec<_>, _>>().unwrap(), *after.limits());
    assert_eq!(again.counts(), has);
    assert_eq!(again.next_due_in_ms(), after.next_due_in_ms());
    for name in lock_names() {
        assert_eq!(again.lock_view(&name, ALL), after.lock_view(&name, ALL));
        assert_eq!(again.key(&name), after.key(&name));
        assert_eq!(again.stamp(&name), after.stamp(&name));
    }
}

/// One backup, restored twice while the old cluster continues.
fn three_ways(limits: Limits, [first, second, third]: [&[Move]; 3], unix_s: u64, later_s: u64) {
    let mut old = Cluster::new(limits);
    old.play(first);
    let held_before = old.tokens.clone();
    let (mut one, restored) = old.restored(unix_s);
    check_restored(&old.state, &one.state, &restored);
    let (mut two, restored_later) = old.restored(unix_s + later_s);
    check_restored(&old.state, &two.state, &restored_later);

    old.granted.clear();
    old.sessions.clear();
    old.play(second);
    one.play(second);
    two.play(third);
    for cluster in [&one, &two] {
        let above = |token: &Token| held_before.iter().all(|before| before < token);
        assert!(cluster.granted.iter().all(above), "{:?}", cluster.granted);
    }
    for (a, b) in [(&old, &one), (&old, &two), (&one, &two)] {
        assert!(a.granted.is_disjoint(&b.granted), "{:?} and {:?}", a.granted, b.granted);
        assert!(a.sessions.is_disjoint(&b.sessions), "{:?} and {:?}", a.sessions, b.sessions);
    }
    // A backup of a restored cluster is as good as any other.
    let (mut three, restored) = one.restored(unix_s + later_s);
    check_restored(&one.state, &three.state, &restored);
    let (mut four, _) = one.restored(unix_s + later_s + 1);
    three.play(third);
    four.play(third);
    assert!(three.granted.is_disjoint(&four.granted));
    assert!(three.granted.iter().all(|token| one.tokens.iter().all(|before| before < token)));
}

fn play(limits: Limits) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let seconds = (0_u64..4_000_000_000, 1_u64..100_000);
    let strategy = (moves(1..120), moves(1..60), moves(1..60), seconds);
    let result = TestRunner::new(config).run(&strategy, |(first, second, third, seconds)| {
        three_ways(limits, [&first, &second, &third], seconds.0, seconds.1);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn restore_is_sound_and_draws_new_numbers() {
    play(ROOMY);
}

#[test]
fn restore_is_sound_at_the_bounds() {
    play(TIGHT);
}

#[test]
fn restore_is_sound_with_unfinished_work() {
    play(Limits { steps_max: 1, ..ROOMY });
}

#[test]
fn refused_restore_changes_nothing() {
    let mut cluster = Cluster::new(ROOMY);
    cluster.play(&[]);
    let before = cluster.backup();
    let unix_s = 1 << 40;
    assert_eq!(cluster.state.restore(unix_s), Err(CannotRestore::ClockAhead { unix_s }));
    assert_eq!(cluster.backup(), before);
}
