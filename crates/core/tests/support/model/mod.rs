//! The naive lock: the promises written in the plainest way that works.
//!
//! All tickets are in one list, in the order of their numbers. A line is the part of that list with
//! the name. Nothing is stored that can be computed, and everything is found by searching the whole
//! list. It is slow, and meant to be obviously right.
//!
//! Its only promise about cost is that a test can afford it.

mod acquire;
mod claims;
mod end;
mod holder;
mod keys;
mod line;
mod records;
mod register;
mod request;
mod revoke;
mod session;
mod time;
mod transact;
mod tree;
mod view;

pub(crate) use records::{Happened, Ticket};
use records::{Kept, Known, OverTicket, Past, Session};
pub(crate) use tree::Znode;

use holdfast_core::{
    Answer, Command, Effect, EventKind, Fence, Limits, LockName, Proposal, ProposalOutcome,
    Refusal, RequestKey, RequestRef, SessionId, Term,
};

/// The state of the naive lock.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) now_ms: u64,
    wall_ms: u64,
    term: Term,
    /// The last number drawn.
    pub(crate) counter: u64,
    sessions_drawn: u64,
    /// Waiting and held, in the order of their numbers.
    pub(crate) tickets: Vec<Ticket>,
    /// Every ticket that is over.
    over: Vec<OverTicket>,
    /// Living sessions.
    sessions: Vec<Session>,
    /// What is remembered about names, besides their lines.
    pasts: Vec<Past>,
    /// Requests without a session, with the time since when they may be forgotten.
    alone: Vec<(RequestKey, Known, Option<u64>)>,
    pub(crate) register: Vec<(LockName, Fence)>,
    objects: Vec<Kept>,
    pub(crate) nodes: Vec<Znode>,
    /// Sessions that were attached again, and the number of the last attachment.
    attachments: Vec<(SessionId, u64)>,
    /// Orders changes of objects and labels.
    changes: u64,
    /// Everything that ever happened.
    pub(crate) events: Vec<Happened>,
    /// How many of the first events are no longer known.
    events_forgotten: usize,
    /// Orders deaths by age.
    deaths_drawn: u64,
    effects: Vec<Effect>,
    /// The ticket that the last command was refused for because of a cycle, as if it had been
    /// drawn.
    pub(crate) deadlocked: Option<Ticket>,
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            now_ms: 0,
            wall_ms: 0,
            term: Term::default(),
            counter: 0,
            sessions_drawn: 0,
            tickets: Vec::new(),
            over: Vec::new(),
            sessions: Vec::new(),
            pasts: Vec::new(),
            alone: Vec::new(),
            register: Vec::new(),
            objects: Vec::new(),
            nodes: tree::built_in(),
            attachments: Vec::new(),
            changes: 0,
            events: Vec::new(),
            events_forgotten: 0,
            deaths_drawn: 0,
            effects: Vec::new(),
            deadlocked: None,
        }
    }

    pub(crate) fn apply(&mut self, proposal: Proposal) -> (ProposalOutcome, Vec<Effect>) {
        self.deadlocked = None;
        let Proposal { from, request, command } = proposal;
        if let Some(not_taken) = from.and_then(|from| self.not_taken(from)) {
            return (not_taken, Vec::new());
        }
        let answer = match request {
            None => self.decide(command, None),
            Some(request) => self.decide_once(request, command),
        };
        if answer.is_ok() {
            self.follow();
        }
        (ProposalOutcome::Answered(answer), std::mem::take(&mut self.effects))
    }

    fn decide(
        &mut self,
        command: Command,
        request: Option<&RequestRef>,
    ) -> Result<Answer, Refusal> {
        match command {
            Command::Tick(tick) => Ok(self.tick(tick)),
            Command::OpenSession(open) => self.open_session(open),
            Command::CloseSession(session) => self.close_session(session),
            Command::ExpireSession { session, decided_in } => {
                self.expire_session(session, decided_in)
            }
            Command::Acquire(acquire) => self.acquire(acquire, request),
            Command::Upgrade { target, proof, wait, claims } => {
                self.upgrade(&target, &proof, wait, claims, request)
            }
            Command::Downgrade { target, proof } => self.downgrade(&target, &proof),
            Command::Cancel { target, proof } => self.cancel(&target, &proof),
            Command::Release { target, proof } => self.release(&target, &proof),
            Command::Renew { target, proof, ttl_ms } => self.renew(&target, &proof, ttl_ms),
            Command::Persist { target, proof } => self.persist(&target, &proof),
            Command::Note { target, proof, note } => self.note(&target, &proof, note),
            Command::Recovered { target, proof } => self.recovered(&target, &proof),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Force { name, token, by, reason } => self.force(&name, token, by, reason),
            Command::Outcome(request) => self.outcome(&request),
            Command::Put { key, value, token, mode } => self.show(key, Some(value), token, mode),
            Command::Raise { key, token, mode } => self.show(key, None, token, mode),
            Command::Transact(transaction) => self.transact(transaction),
            Command::Tree(command) => self.tree(command),
            Command::Operate { .. } => panic!("the player gives none of these: see access.rs"),
        }
    }

    /// The core's history is a ring; the model does not say how far back it goes.
    pub(crate) fn forget_events(&mut self, first_kept: Option<u64>) {
        let first_kept = first_kept.and_then(|number| usize::try_from(number).ok());
        self.events_forgotten = first_kept.unwrap_or(0);
    }

    /// Adds an event about a ticket to the history of each of its names.
    fn happened(&mut self, ticket: &Ticket, what: &EventKind) {
        for name in &ticket.names {
            self.happened_to(name, ticket, what.clone());
        }
    }

    fn happened_to(&mut self, name: &LockName, ticket: &Ticket, what: EventKind) {
        self.events.push(Happened {
            at_ms: self.now_ms,
            wall_ms: self.wall_ms,
            name: name.clone(),
            token: ticket.token,
            label: self.label_of(ticket),
            what,
        });
    }
}
