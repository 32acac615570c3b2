//! Plays moves against the core and judges every step.

use super::compare;
use super::model::Model;
use super::moves::Move;
use super::player::{Player, fence_keys, lock_names};
use super::promises::Promises;
use super::stamps::Stamps;
use holdfast_core::{
    Command, Effect, Label, Limits, OpenSession, Proposal, ProposalOutcome, Reason, Secret,
    SessionKind, State,
};
use std::fmt;

/// After this many steps, the state is written as a snapshot and loaded again.
const STEPS_TO_A_SNAPSHOT: usize = 16;

/// After this many entries nothing may be left over, however small the steps are.
const SETTLING_TICKS: usize = 1_000;

/// What a check found.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) check: &'static str,
    pub(crate) what: String,
}

/// What the moves are played against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) judges: Judges,
}

/// Who judges the steps of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judges {
    /// What can be seen from outside.
    pub(crate) promises: bool,
    /// The core's own invariants, and a replica that never loads a snapshot.
    pub(crate) invariants: bool,
    /// What the model would have done.
    pub(crate) model: bool,
}

impl Judges {
    pub(crate) const ALL: Self = Self { promises: true, invariants: true, model: true };
}

/// A command and its results.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) proposal: Proposal,
    pub(crate) taken: ProposalOutcome,
    pub(crate) effects: Vec<Effect>,
}

/// A run whose last step failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) wrong: Wrong,
    pub(crate) steps: Vec<Step>,
}

/// Plays all moves, then ends everything, which must leave nothing behind.
pub(crate) fn run(moves: &[Move], setup: Setup) -> Result<Vec<Step>, Failure> {
    let mut run = Run::new(setup);
    match run.play(moves) {
        Ok(()) => Ok(run.steps),
        Err(wrong) => Err(Failure { wrong, steps: run.steps }),
    }
}

struct Run {
    setup: Setup,
    state: State,
    /// Applies the same commands, and must do exactly the same as a state that loaded a snapshot.
    replica: State,
    model: Option<Model>,
    promises: Promises,
    player: Player,
    steps: Vec<Step>,
    events_seen: u64,
    stamps: Stamps,
}

impl Run {
    fn new(setup: Setup) -> Self {
        Self {
            setup,
            state: State::new(setup.limits, 0),
            replica: State::new(setup.limits, u64::MAX),
            model: setup.judges.model.then(|| Model::new(setup.limits)),
            promises: Promises::new(setup.limits),
            player: Player::default(),
            steps: Vec::new(),
            events_seen: 0,
            stamps: Stamps::default(),
        }
    }

    fn check_replica(&mut self) -> Result<(), Wrong> {
        let Some(Step { proposal, taken, effects }) = self.steps.last() else { return Ok(()) };
        let mut of_replica = Vec::new();
        let taken_there = self.replica.apply(proposal.clone(), &mut of_replica);
        if (taken, effects) == (&taken_there, &of_replica) {
            return Ok(());
        }
        let what = format!("a replica without a snapshot did\n  {taken_there:?}\n  {of_replica:?}");
        Err(Wrong { check: "replicas", what })
    }

    fn play(&mut self, moves: &[Move]) -> Result<(), Wrong> {
        for (number, kind) in [
            (1, SessionKind::Client),
            (2, SessionKind::Client),
            (3, SessionKind::NodeOf { node: 1 }),
        ] {
            let (secret, ttl_ms) = (Secret([200 + number; 16]), 1_000);
            self.step(Command::OpenSession(OpenSession { secret, ttl_ms, label: None, kind }))?;
        }
        for a_move in moves {
            let proposal = self.player.play(a_move, &self.state);
            self.step(proposal)?;
        }
        self.end_all()
    }

    fn step(&mut self, proposal: impl Into<Proposal>) -> Result<(), Wrong> {
        let proposal = proposal.into();
        let counter = self.state.counts().counter;
        let mut effects = Vec::new();
        let taken = self.state.apply(proposal.clone(), &mut effects);
        self.player.hear(&proposal, &taken, &effects, &self.state);
        self.steps.push(Step { proposal, taken, effects });
        self.judge(counter)?;
        if self.steps.len().is_multiple_of(STEPS_TO_A_SNAPSHOT) {
            self.reload()?;
        }
        Ok(())
    }

    fn judge(&mut self, counter_before: u64) -> Result<(), Wrong> {
        let Some(Step { proposal, taken, effects }) = self.steps.last() else { return Ok(()) };
        if self.setup.judges.promises {
            self.promises.check(proposal, taken, effects)?;
            let counter = self.state.counts().counter;
            if counter < counter_before {
                let what = format!("the counter went back from {counter_before} to {counter}");
                return Err(Wrong { check: "numbers rise", what });
            }
            self.stamps.check(&self.state)?;
        }
        if self.setup.judges.invariants {
            self.state.check().map_err(|what| Wrong { check: "invariants", what })?;
            self.check_no_circle()?;
            self.check_replica()?;
        }
        let Some(Step { proposal, taken, effects }) = self.steps.last() else { return Ok(()) };
        if let Some(model) = &mut self.model {
            let (expected, expected_effects) = model.apply(proposal.clone());
            compare::answers(model, taken, &expected)?;
            compare::effects(effects, &expected_effects)?;
            compare::views(&self.state, model)?;
            self.events_seen = compare::history(&self.state, model, self.events_seen)?;
            model.forget_events(self.state.events().next().map(|event| event.number));
        }
        Ok(())
    }

    /// A declared cycle must have been refused when it was about to close; the core's own `why`
    /// reports none.
    fn check_no_circle(&self) -> Result<(), Wrong> {
        let why = lock_names().into_iter().map(|name| self.state.why(&name));
        match why.flat_map(|why| why.circles).find(|circle| circle.declared) {
            Some(circle) => Err(Wrong { check: "circles", what: format!("{circle:?}") }),
            None => Ok(()),
        }
    }

    /// Continues with a state loaded from a snapshot, which must be indistinguishable from the one
    /// before.
    fn reload(&mut self) -> Result<(), Wrong> {
        let snapshot = self.state.snapshot();
        let wrong = |what: String| Wrong { check: "snapshot", what };
        let pieces: Vec<Vec<u8>> = snapshot
            .pieces()
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(format!("{error:?}")))?;
        let hash_key = self.steps.len() as u64;
        let loaded = State::load(&pieces, self.setup.limits, hash_key)
            .map_err(|error| wrong(format!("{error:?}")))?;
        if self.setup.judges.invariants {
            loaded.check().map_err(wrong)?;
        }
        self.state = loaded;
        if let Some(model) = &self.model {
            compare::views(&self.state, model)?;
        }
        Ok(())
    }

    /// Ends everything that is left, and lets time pass until all is forgotten.
    fn end_all(&mut self) -> Result<(), Wrong> {
        for owner in self.player.living_sessions() {
            self.step(Command::CloseSession(owner))?;
        }
        self.settle()?;
        for ticket in self.player.standing(&self.state) {
            let Some(name) = ticket.names.as_slice().first().cloned() else { continue };
            let (by, reason) = (Label::parse("end"), Reason::parse("end"));
            if let (Ok(by), Ok(reason)) = (by, reason) {
                self.step(Command::Force { name, token: Some(ticket.token), by, reason })?;
            }
        }
        for command in self.player.remove_objects(&self.state) {
            self.step(command)?;
        }
        self.settle()?;
        let end_of_time = self.player.tick(u64::MAX);
        self.step(end_of_time)?;
        self.settle()?;
        let cleared = self.remove_nodes()?;
        self.settle()?;
        // Forgetting also happens in bounded steps, but is never reported as due.
        for _ in 0..SETTLING_TICKS {
            if self.nothing_left(cleared) {
                return Ok(());
            }
            let tick = self.player.tick(0);
            self.step(tick)?;
        }
        let (left, due) = (self.state.counts(), self.state.next_due_in_ms());
        Err(Wrong { check: "nothing left", what: format!("{left:?}, next due in {due:?} ms") })
    }

    /// Deletes every znode that is left, deepest first; false if the memory is so full of them that
    /// no session can be opened for that.
    fn remove_nodes(&mut self) -> Result<bool, Wrong> {
        let (secret, ttl_ms) = (Secret([199; 16]), 1_000);
        let (label, kind) = (None, SessionKind::Client);
        self.step(Command::OpenSession(OpenSession { secret, ttl_ms, label, kind }))?;
        let living = self.player.living_sessions();
        for command in self.player.remove_nodes(&self.state) {
            self.step(command)?;
        }
        for owner in &living {
            self.step(Command::CloseSession(*owner))?;
        }
        Ok(!living.is_empty())
    }

    fn nothing_left(&self, cleared: bool) -> bool {
        let left = self.state.counts();
        let kept = fence_keys().into_iter().filter_map(|key| Some((self.state.fence(&key)?, key)));
        let in_register: usize = kept
            .map(|(fence, key)| {
                key.as_bytes().len()
                    + fence.value.as_ref().map_or(0, |value| value.as_bytes().len())
            })
            .sum();
        left.locks == 0
            && left.holders == 0
            && left.waiters == 0
            && left.sessions == 0
            && left.deaths == 0
            && left.requests_alone == 0
            && left.objects == 0
            && (left.nodes == 0 || !cleared)
            && (left.bytes == in_register || !cleared)
            && self.state.next_due_in_ms().is_none()
    }

    /// Lets the core finish pending work: a bounded step in each entry.
    fn settle(&mut self) -> Result<(), Wrong> {
        for _ in 0..SETTLING_TICKS {
            if self.state.next_due_in_ms() != Some(0) {
                return Ok(());
            }
            let tick = self.player.tick(0);
            self.step(tick)?;
        }
        let what = format!("work is left over after {SETTLING_TICKS} entries");
        Err(Wrong { check: "settles", what })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Step { proposal, taken, effects }) in self.steps.iter().enumerate() {
            let tick = matches!(proposal.command, Command::Tick(tick) if tick.elapsed_ms == 0);
            if tick && effects.is_empty() && number + 1 < self.steps.len() {
                continue;
            }
            writeln!(f, "{number:>3} {}", brief(&format!("{proposal:?}")))?;
            writeln!(f, "      {}", brief(&format!("{taken:?}")))?;
            for effect in effects {
                writeln!(f, "      ! {}", brief(&format!("{effect:?}")))?;
            }
        }
        write!(f, "check \"{}\": {}", self.wrong.check, self.wrong.what)
    }
}

/// Removes fields without information.
fn brief(text: &str) -> String {
    let fields = ["from", "request", "session", "label", "note", "secret", "after", "forced"];
    let mut text = text.to_owned();
    for field in fields {
        text =
            text.replace(&format!("{field}: None, "), "").replace(&format!(", {field}: None"), "");
    }
    for nothing in ["claims: [], ", "lock_delay_ms: 0, ", "delayed_until_ms: None, "] {
        text = text.replace(nothing, "");
    }
    text.replace("Secret(..)", "..")
}
