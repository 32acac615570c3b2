//! Shared by the benchmarks: names, commands, and states of a given size.

#![allow(dead_code, reason = "each program makes use of a part of it")]

pub(crate) mod cases;

use holdfast_core::{
    Acquire, Answer, Command, Door, Effect, Grant, Label, Lease, Limits, LockName, Mode,
    OpenSession, Proof, Proposal, ProposalOutcome, Refusal, RequestId, RequestRef, Secret,
    SessionKind, SessionRef, State, Target, Term, Tick, TicketStatus, Token, Wait,
};

/// The secret of everything here: comparing takes the same time for all bytes.
pub(crate) const SECRET: Secret = Secret(*b"measured tickets");

/// The lease of the plain pair.
pub(crate) const TTL_MS: u64 = 30_000;

/// Longer than any benchmark runs, so that background locks stay held.
pub(crate) const LONG_MS: u64 = 24 * 60 * 60 * 1000;

/// The million in the targets.
pub(crate) const MILLION: usize = 1_000_000;

/// How many pairs fill the history, so that from then on each new event drops an old one.
const WARM_UP_PAIRS: usize = 40_000;

/// A state, and what is needed to make more commands for it.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) effects: Vec<Effect>,
    names_drawn: u32,
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { state: State::new(limits, 0x5eed), effects: Vec::new(), names_drawn: 0 }
    }

    /// A state that has been running for a while: the history is full.
    pub(crate) fn warm(limits: Limits) -> Self {
        let mut world = Self::new(limits);
        for _ in 0..WARM_UP_PAIRS {
            let name = world.fresh_name();
            let token = world.grant(acquire(name.clone())).token;
            world.run(release(name, token, SECRET));
        }
        world
    }

    /// A state that has been running for a while, with this many held locks.
    pub(crate) fn with_held(locks: usize) -> Self {
        let mut world = Self::warm(Limits::DEFAULT);
        world.hold(locks);
        world
    }

    /// Acquires this many more locks, with deadlines spread over time.
    pub(crate) fn hold(&mut self, locks: usize) -> Vec<(LockName, Token)> {
        let hold = |n: usize| {
            let name = self.fresh_name();
            if n.is_multiple_of(1_000) {
                self.tick(1);
            }
            let lease = Lease::Deadline { ttl_ms: LONG_MS };
            let token = self.grant(Acquire { lease, ..acquire(name.clone()) }).token;
            (name, token)
        };
        (0..locks).map(hold).collect()
    }

    /// A name that was never used before, in no particular order.
    pub(crate) fn fresh_name(&mut self) -> LockName {
        let name = format!("shop/seat-{:08x}", scramble(self.names_drawn));
        self.names_drawn += 1;
        LockName::parse(name).unwrap()
    }

    /// A unique text of 16 bytes.
    pub(crate) fn fresh_label(&mut self) -> Label {
        let label = format!("host-{:011x}", scramble(self.names_drawn));
        self.names_drawn += 1;
        Label::parse(label).unwrap()
    }

    pub(crate) fn apply(&mut self, proposal: Proposal) -> ProposalOutcome {
        self.state.apply(proposal, &mut self.effects)
    }

    /// Applies a command and drops its effects, as if they had been sent.
    pub(crate) fn run(&mut self, command: Command) -> Answer {
        let taken = self.apply(command.into());
        self.effects.clear();
        answer(taken)
    }

    pub(crate) fn grant(&mut self, acquire: Acquire) -> Grant {
        granted(self.run(Command::Acquire(acquire)))
    }

    /// Joins the end of a line.
    pub(crate) fn wait(&mut self, acquire: Acquire) -> Token {
        match self.run(Command::Acquire(acquire)) {
            Answer::TicketStatus(TicketStatus::Waiting { token, .. }) => token,
            other => panic!("must wait: {other:?}"),
        }
    }

    pub(crate) fn tick(&mut self, elapsed_ms: u64) {
        self.run(tick(elapsed_ms));
    }

    pub(crate) fn open_session(&mut self, label: Option<Label>) -> SessionRef {
        let kind = SessionKind::Client;
        let open = OpenSession { secret: SECRET, ttl_ms: TTL_MS, label, kind };
        match self.run(Command::OpenSession(open)) {
            Answer::SessionOpened(id) => SessionRef { id, secret: SECRET },
            other => panic!("must open: {other:?}"),
        }
    }

    pub(crate) fn open_sessions(&mut self, sessions: usize) -> Vec<SessionRef> {
        (0..sessions).map(|_| self.open_session(None)).collect()
    }
}

/// The answer to a proposal; panics at a refusal, which is not worth measuring.
pub(crate) fn answer(taken: ProposalOutcome) -> Answer {
    match taken {
        ProposalOutcome::Answered(Ok(answer)) => answer,
        ProposalOutcome::Answered(Err(refusal)) => refused(&refusal),
        other => panic!("not applied: {other:?}"),
    }
}

fn refused(refusal: &Refusal) -> ! {
    panic!("refused: {refusal:?}")
}

pub(crate) fn granted(answer: Answer) -> Grant {
    match answer {
        Answer::TicketStatus(TicketStatus::Held(grant)) => grant,
        other => panic!("must be served at once: {other:?}"),
    }
}

/// The plain acquire: one name, exclusive, with a deadline.
pub(crate) fn acquire(name: LockName) -> Acquire {
    Acquire {
        names: vec![name],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Deadline { ttl_ms: TTL_MS },
        wait: Wait::Try,
        label: None,
        note: None,
        secret: Some(SECRET),
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    }
}

/// An acquire that waits in line for as long as its session lives.
pub(crate) fn acquire_in(session: SessionRef, name: LockName) -> Acquire {
    let session = Some(session);
    Acquire { session, lease: Lease::Session, wait: Wait::Forever, ..acquire(name) }
}

pub(crate) fn release(name: LockName, token: Token, secret: Secret) -> Command {
    let target = Target { name, token: Some(token) };
    Command::Release { target, proof: Proof::Secret(secret) }
}

pub(crate) fn tick(elapsed_ms: u64) -> Command {
    Command::Tick(Tick { elapsed_ms, wall_ms: 0, term: Term(1) })
}

/// A command with a request id, from a client that has all earlier answers.
pub(crate) fn in_session(session: SessionRef, id: u64, command: Command) -> Proposal {
    let id = RequestId::new(id).unwrap();
    let request = RequestRef::InSession { session, id, lowest: id };
    Proposal { from: None, request: Some(request), command }
}

/// Mixes the bits of a number; every input has its own output, so that names are unordered and
/// unique, and the same in every run.
pub(crate) fn scramble(n: u32) -> u32 {
    let n = (n ^ (n >> 16)).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ (n >> 13)).wrapping_mul(0xc2b2_ae35);
    n ^ (n >> 16)
}
