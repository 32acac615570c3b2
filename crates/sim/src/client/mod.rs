//! Simulated clients: they take locks, hold them, let go, time out, retry, pause and die.
//!
//! A client believes that it holds a lock exactly as long as the Rust client does: from before
//! its first send, less a tenth of the TTL, on a clock of its own.

mod answers;

use crate::checks::DOOR;
use crate::rng::Rng;
use holdfast_core::{
    Acquire, Command, Door, Label, Lease, LockName, Mode, OpenSession, Proof, Refusal, Request,
    RequestId, Secret, SessionKind, SessionRef, Target, Token, Wait,
};
use holdfast_node::NodeId;
use std::num::NonZeroU64;

/// Names in play: few, so that clients meet.
const NAMES: u64 = 4;

/// What was not answered for so long is sent again.
const RESEND_US: u64 = 700_000;

/// What a client sends to a node.
#[derive(Debug, Clone)]
pub(crate) enum Sent {
    Ask {
        request: Option<Request>,
        command: Command,
    },
    Beat(SessionRef),
    /// With a secret that is not the session's.
    WrongBeat(SessionRef),
    Read,
    /// A read beside everything else.
    Look,
    /// Without a request id; the caller may give up soon.
    Once {
        label: Label,
        command: Box<Command>,
    },
    /// A wait without a session and without a request id, as over HTTP or Redis.
    Door {
        name: LockName,
        secret: Secret,
        command: Box<Command>,
    },
    /// Two acquires on one connection, without request ids: they must be taken in order.
    Pair {
        pair: u64,
        first: Box<Command>,
        second: Box<Command>,
    },
}

/// What a client is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Doing {
    /// It has no session, or its session is gone.
    Opening,
    Idle,
    Acquiring(Wish),
    Releasing(Wish, Token),
    Reading,
}

/// A lock that a client wants or has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    wait: Wait,
}

/// A lock that a client holds.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) wish: Wish,
    pub(crate) token: Token,
    /// By its own clock; for a session lease the session's.
    believed_until_ms: Option<u64>,
    release_at_us: u64,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) home: NodeId,
    pub(crate) session: Option<SessionRef>,
    pub(crate) doing: Doing,
    pub(crate) hold: Option<Hold>,
    /// How long it would believe to hold what it is letting go, by its own clock.
    let_go_until_ms: u64,
    pub(crate) paused_until_us: u64,
    pub(crate) wake_at_us: Option<u64>,
    /// Its clock runs so many parts in a thousand of the true one.
    rate: u64,
    ttl_ms: u64,
    /// The session lives at least until then, by the client's clock.
    session_until_ms: u64,
    next_request: u64,
    /// Counts sends, so that a late reply is told from the current one.
    pub(crate) attempt: u64,
    first_attempt: u64,
    first_sent_us: u64,
    sent_us: u64,
    next_beat_us: u64,
    idle_until_us: u64,
    /// The highest token that any client had seen when this request was first sent.
    pub(crate) floor: u64,
    pub(crate) done: u64,
    opened: u64,
    pairs: u64,
    next_pair_us: u64,
    onces: u64,
}

/// What a client's step leads to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a handful exist at a time")]
pub(crate) enum Act {
    Send(NodeId, Sent),
    /// It got what it asked for, or an answer that ends the matter.
    Finished,
    Drew(Token),
    LetGo(LetGo),
}

/// What a client heard about its release.
#[derive(Debug)]
pub(crate) struct LetGo {
    pub(crate) token: Token,
    /// Whether the client would still believe to hold the lock, had it not let go.
    pub(crate) in_time: bool,
    pub(crate) refused: Option<Refusal>,
}

impl Client {
    pub(crate) fn new(number: usize, rng: &mut Rng, nodes: &[NodeId]) -> Self {
        Self {
            number,
            home: rng.pick(nodes).copied().unwrap_or(NodeId(1)),
            session: None,
            doing: Doing::Opening,
            hold: None,
            let_go_until_ms: 0,
            paused_until_us: 0,
            wake_at_us: None,
            rate: rng.range(995, 1_006),
            ttl_ms: rng.range(2_000, 8_000),
            session_until_ms: 0,
            next_request: 1,
            attempt: 0,
            first_attempt: 0,
            first_sent_us: 0,
            sent_us: 0,
            next_beat_us: 0,
            idle_until_us: rng.range(0, 1_000_000),
            floor: 0,
            done: 0,
            opened: 0,
            pairs: 0,
            next_pair_us: rng.range(0, 4_000_000),
            onces: 0,
        }
    }

    /// The client's own clock.
    fn clock_ms(&self, at_us: u64) -> u64 {
        at_us * self.rate / 1_000_000
    }

    fn secret(&self) -> Secret {
        let mut secret = [0; 16];
        secret[0] = self.number as u8 + 1;
        secret[1..9].copy_from_slice(&self.opened.to_le_bytes());
        Secret(secret)
    }

    /// Whether it believes now that it holds this lock, and not only for reading.
    pub(crate) fn believes(&self, now_us: u64, name: &LockName) -> Option<(Token, Mode)> {
        let hold = self.hold.as_ref().filter(|hold| hold.wish.name == *name)?;
        let until_ms = hold.believed_until_ms.unwrap_or(self.session_until_ms);
        (self.clock_ms(now_us) < until_ms).then_some((hold.token, hold.wish.mode))
    }

    fn request(&self) -> Option<Request> {
        let id = |number: u64| NonZeroU64::new(number).map(RequestId);
        let (session, id) = (self.session?, id(self.next_request)?);
        Some(Request::InSession { session, id, lowest: id })
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Answers to sends before this one belong to an earlier request.
    pub(crate) fn first_attempt(&self) -> u64 {
        self.first_attempt
    }

    /// What the client would send for what it is about.
    fn message(&self) -> Option<Sent> {
        let proof = || Proof::Secret(self.secret());
        match &self.doing {
            Doing::Idle => None,
            Doing::Reading => Some(Sent::Read),
            Doing::Opening => {
                let (secret, ttl_ms, kind) = (self.secret(), self.ttl_ms, SessionKind::Client);
                let command =
                    Command::OpenSession(OpenSession { secret, ttl_ms, label: None, kind });
                Some(Sent::Ask { request: None, command })
            }
            Doing::Acquiring(wish) => {
                let label = format!("c{}-s{}-r{}", self.number, self.opened, self.next_request);
                let command = self.acquire(wish, self.session?, Label::parse(label).ok());
                Some(Sent::Ask { request: self.request(), command })
            }
            Doing::Releasing(wish, token) => {
                let target = Target { name: wish.name.clone(), token: Some(*token) };
                let command = Command::Release { target, proof: proof() };
                Some(Sent::Ask { request: self.request(), command })
            }
        }
    }

    /// When there is something to do next.
    pub(crate) fn next_wake_us(&self) -> u64 {
        let at_us = |ms: u64| ms * 1_000_000 / self.rate + 1_000;
        let sending = match self.doing {
            Doing::Idle => self.idle_until_us,
            _ if self.first_sent_us == 0 => 0,
            _ => self.sent_us + RESEND_US,
        };
        let believed = self.hold.as_ref().and_then(|hold| hold.believed_until_ms).map(at_us);
        let session = self
            .session
            .map(|_| at_us(self.session_until_ms).min(self.next_beat_us).min(self.next_pair_us));
        let next = [Some(sending), believed, session].into_iter().flatten().min();
        next.unwrap_or(sending).max(self.paused_until_us)
    }

    /// Something to do, if anything is due now.
    pub(crate) fn wake(
        &mut self,
        now_us: u64,
        rng: &mut Rng,
        nodes: &[NodeId],
        floor: u64,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        if now_us < self.paused_until_us {
            return acts;
        }
        self.lose_what_ran_out(now_us);
        if self.doing == Doing::Idle && now_us >= self.idle_until_us {
            self.begin(now_us, rng, floor);
        }
        if let Some(sent) = self.send_due(now_us, rng, nodes, floor) {
            acts.push(Act::Send(self.home, sent));
        }
        if let Some(session) = self.session
            && now_us >= self.next_beat_us
        {
            self.next_beat_us = now_us + self.ttl_ms * 1_000 / 4;
            acts.push(Act::Send(self.home, Sent::Beat(session)));
            acts.push(Act::Send(self.home, Sent::Look));
            if rng.per_mille(300) {
                let secret = Secret([0xEE; 16]);
                acts.push(Act::Send(self.home, Sent::WrongBeat(SessionRef { secret, ..session })));
            }
        }
        if now_us >= self.next_pair_us
            && let Some(session) = self.session
        {
            self.next_pair_us = now_us + rng.range(500_000, 6_000_000);
            acts.extend(self.pair(session).map(|pair| Act::Send(self.home, pair)));
            acts.extend(self.once(session).map(|once| Act::Send(self.home, once)));
            acts.extend(self.door().map(|door| Act::Send(self.home, door)));
        }
        acts
    }

    /// Two waits that nobody follows up: they end with the session. Sent once, and labelled so
    /// that a second effect of one of them would show.
    fn pair(&mut self, session: SessionRef) -> Option<Sent> {
        self.pairs += 1;
        let pair = self.pairs;
        let name = LockName::parse(format!("pair-{}", self.number % 3)).ok()?;
        let command = |which: u64| {
            let label = Label::parse(format!("c{}-p{pair}-{which}", self.number)).ok();
            let wish = Wish {
                name: name.clone(),
                mode: Mode::Exclusive,
                lease: Lease::Session,
                wait: Wait::For { ms: 3_000 },
            };
            Box::new(self.acquire(&wish, session, label))
        };
        Some(Sent::Pair { pair, first: command(1), second: command(2) })
    }

    /// A lock that nobody else wants: if it is ever taken, its label shows.
    fn once(&mut self, session: SessionRef) -> Option<Sent> {
        self.onces += 1;
        let label =
            Label::parse(format!("c{}-s{}-o{}", self.number, self.opened, self.onces)).ok()?;
        let wish = Wish {
            name: LockName::parse(format!("once-{}-{}", self.number, self.onces)).ok()?,
            mode: Mode::Exclusive,
            lease: Lease::Deadline { ttl_ms: 1_000 },
            wait: Wait::Try,
        };
        let command = Box::new(self.acquire(&wish, session, Some(label.clone())));
        Some(Sent::Once { label, command })
    }

    /// A lock for which only its node's process knows that somebody waits.
    fn door(&self) -> Option<Sent> {
        let name = LockName::parse(format!("{DOOR}{}", self.number % 3)).ok()?;
        let mut secret = [0xD0; 16];
        secret[1] = self.number as u8;
        secret[2..10].copy_from_slice(&self.onces.to_le_bytes());
        let secret = Secret(secret);
        let command = Command::Acquire(Acquire {
            names: vec![name.clone()],
            mode: Mode::Exclusive,
            session: None,
            lease: Lease::Deadline { ttl_ms: 30_000 },
            wait: Wait::For { ms: 20_000 },
            label: Label::parse(format!("c{}-s{}-d{}", self.number, self.opened, self.onces)).ok(),
            note: None,
            secret: Some(secret),
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Native,
        });
        Some(Sent::Door { name, secret, command: Box::new(command) })
    }

    fn acquire(&self, wish: &Wish, session: SessionRef, label: Option<Label>) -> Command {
        Command::Acquire(Acquire {
            names: vec![wish.name.clone()],
            mode: wish.mode,
            session: Some(session),
            lease: wish.lease,
            wait: wish.wait,
            label,
            note: None,
            secret: None,
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Native,
        })
    }

    fn lose_what_ran_out(&mut self, now_us: u64) {
        let clock_ms = self.clock_ms(now_us);
        let session_over = clock_ms >= self.session_until_ms;
        let until_ms = |hold: &Hold| hold.believed_until_ms.unwrap_or(self.session_until_ms);
        if self.hold.as_ref().is_some_and(|hold| clock_ms >= until_ms(hold)) {
            self.hold = None;
        }
        // A client that can't be sure of its session starts over with a new one.
        if self.session.is_some() && session_over && self.doing != Doing::Opening {
            self.start_over(now_us);
        }
    }

    fn start_over(&mut self, now_us: u64) {
        self.session = None;
        self.hold = None;
        self.opened += 1;
        self.next_request = 1;
        self.doing = Doing::Opening;
        (self.first_sent_us, self.sent_us) = (0, 0);
        self.idle_until_us = now_us;
    }

    /// Takes up something new.
    fn begin(&mut self, now_us: u64, rng: &mut Rng, floor: u64) {
        (self.first_sent_us, self.sent_us, self.floor) = (0, 0, floor);
        if let Some(hold) = &self.hold {
            if now_us >= hold.release_at_us {
                // From the moment it lets go it no longer believes.
                self.let_go_until_ms = hold.believed_until_ms.unwrap_or(u64::MAX);
                self.doing = Doing::Releasing(hold.wish.clone(), hold.token);
                self.hold = None;
            }
            return;
        }
        if rng.per_mille(100) {
            self.doing = Doing::Reading;
            return;
        }
        let name = format!("lock-{}", rng.range(0, NAMES));
        let Ok(name) = LockName::parse(name) else { return };
        let mode = if rng.per_mille(200) { Mode::Shared } else { Mode::Exclusive };
        let lease = if rng.per_mille(500) {
            Lease::Session
        } else {
            Lease::Deadline { ttl_ms: rng.range(1_000, 6_000) }
        };
        let wait = match rng.range(0, 4) {
            0 => Wait::Try,
            1 => Wait::Forever,
            _ => Wait::For { ms: rng.range(100, 10_000) },
        };
        self.doing = Doing::Acquiring(Wish { name, mode, lease, wait });
    }

    /// Sends what it is about, or sends it again, perhaps to another node.
    fn send_due(
        &mut self,
        now_us: u64,
        rng: &mut Rng,
        nodes: &[NodeId],
        floor: u64,
    ) -> Option<Sent> {
        let message = self.message()?;
        let first = self.first_sent_us == 0;
        if !first && now_us < self.sent_us + RESEND_US {
            return None;
        }
        if first {
            self.first_sent_us = now_us;
            self.floor = floor;
        } else if rng.per_mille(500) {
            self.home = rng.pick(nodes).copied().unwrap_or(self.home);
        }
        self.sent_us = now_us;
        self.attempt += 1;
        if first {
            self.first_attempt = self.attempt;
        }
        Some(message)
    }
}
