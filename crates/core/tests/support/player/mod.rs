//! Turns moves into commands, using what it has learned so far.
//!
//! It knows only what clients and nodes could know, the answers and the effects, and queries the
//! core for views. So it can also play against a core with a planted mistake, or with tiny limits.

mod commands;
mod requests;
mod transact;
mod tree;

use super::moves::{Move, Verb};
use holdfast_core::{
    Answer, Command, Effect, LockName, NodeResult, Numbered, Proposal, ProposalOutcome, Secret,
    SessionId, SessionKind, SessionRef, Stamp, State, Term, Tick, TicketStatus, TicketView, Token,
};

/// Mostly exclusive and shared.
const LOCKS: [&str; 3] = ["a", "a/b", "b"];
/// Mostly permits.
const PERMITS: [&str; 2] = ["p", "p/q"];
/// Mostly keys of doors with keys.
const KEYS: [&str; 2] = ["k", "k/l"];
const FENCES: [&str; 3] = ["x", "y", "z"];

/// The lock names that are used.
pub(crate) fn lock_names() -> Vec<LockName> {
    parsed(LOCKS.into_iter().chain(PERMITS).chain(KEYS))
}

/// The register keys that are used.
pub(crate) fn fence_keys() -> Vec<LockName> {
    parsed(FENCES.into_iter())
}

fn parsed<'a>(names: impl Iterator<Item = &'a str>) -> Vec<LockName> {
    names.filter_map(|name| LockName::parse(name).ok()).collect()
}

#[derive(Debug, Clone)]
struct KnownSession {
    owner: SessionRef,
    kind: SessionKind,
    ended: bool,
    /// The number of its last request.
    requested: u64,
    /// The number of its last accepted proposal.
    number: u64,
}

#[derive(Debug, Clone)]
struct KnownTicket {
    token: Token,
    names: Vec<LockName>,
    secret: Option<Secret>,
}

/// Plays all clients and nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Player {
    sessions: Vec<KnownSession>,
    /// Every ticket that it has learned of.
    tickets: Vec<KnownTicket>,
    /// What was sent with a request id.
    requests: Vec<Proposal>,
    /// Keys that were read, latest last.
    read: Vec<(LockName, Stamp)>,
    /// The change number of all keys when they were read.
    read_all: Vec<u64>,
    secrets_drawn: u128,
    keys_drawn: u64,
    term: Term,
    wall_ms: u64,
}

impl Player {
    /// The command for a move.
    pub(crate) fn play(&mut self, a_move: &Move, state: &State) -> Proposal {
        let from = self.numbered(a_move.from);
        let again = match &a_move.verb {
            Verb::Again { request, forget, changed } => self.again(*request, *forget, *changed),
            _ => None,
        };
        if let Some(again) = again {
            return Proposal { from, ..again };
        }
        let command = self.command(&a_move.verb, state);
        let request = self.request(a_move.request, &command, state);
        let proposal = Proposal { from, request, command };
        if proposal.request.is_some() {
            self.requests.push(proposal.clone());
        }
        proposal
    }

    /// A command that advances time.
    pub(crate) fn tick(&mut self, elapsed_ms: u64) -> Command {
        self.wall_ms = self.wall_ms.wrapping_mul(3).wrapping_add(elapsed_ms) % 1_000_003;
        Command::Tick(Tick { elapsed_ms, wall_ms: self.wall_ms, term: self.term })
    }

    /// Records the result of a command.
    pub(crate) fn hear(
        &mut self,
        proposal: &Proposal,
        taken: &ProposalOutcome,
        effects: &[Effect],
        state: &State,
    ) {
        let ProposalOutcome::Answered(answer) = taken else { return };
        if let Some(Numbered { session, number }) = proposal.from
            && let Some(node) = self.sessions.iter_mut().find(|known| known.owner.id == session)
        {
            node.number = number;
        }
        match (answer, &proposal.command) {
            (Ok(Answer::SessionOpened(id)), Command::OpenSession(open))
                if self.sessions.iter().all(|known| known.owner.id != *id) =>
            {
                let owner = SessionRef { id: *id, secret: open.secret };
                let (kind, ended) = (open.kind, false);
                self.sessions.push(KnownSession { owner, kind, ended, requested: 0, number: 0 });
            }
            (Ok(Answer::TicketStatus(TicketStatus::Waiting { token, secret, .. })), _) => {
                self.meet(*token, *secret, state);
            }
            (Ok(Answer::TicketStatus(TicketStatus::Held(grant))), _) => {
                self.meet(grant.token, grant.secret, state);
            }
            (Ok(Answer::Written(results)), _) => {
                for result in results {
                    if let NodeResult::Created { stat, .. } = result {
                        self.meet(Token(stat.czxid), None, state);
                    }
                }
            }
            (Ok(Answer::Transacted(tokens)), _) => {
                for token in tokens.iter().flatten() {
                    self.meet(*token, None, state);
                }
            }
            _ => {}
        }
        for effect in effects {
            if let Effect::SessionEnded { session, .. } = effect {
                for known in self.sessions.iter_mut().filter(|s| s.owner.id == *session) {
                    known.ended = true;
                }
            }
        }
    }

    fn meet(&mut self, token: Token, secret: Option<Secret>, state: &State) {
        if self.tickets.iter().any(|known| known.token == token) {
            return;
        }
        if let Some(view) = state.ticket_view(token) {
            let names = view.names.as_slice().to_vec();
            self.tickets.push(KnownTicket { token, names, secret });
        }
    }

    /// The sessions that are alive, as far as anyone knows.
    pub(crate) fn living_sessions(&self) -> Vec<SessionRef> {
        self.living().map(|session| session.owner).collect()
    }

    fn living(&self) -> impl Iterator<Item = &KnownSession> {
        self.sessions.iter().filter(|session| !session.ended)
    }

    fn session_secret(&self, id: SessionId) -> Option<Secret> {
        let known = self.sessions.iter().find(|known| known.owner.id == id)?;
        Some(known.owner.secret)
    }

    /// The tickets that are in a line now.
    pub(crate) fn standing(&self, state: &State) -> Vec<TicketView> {
        self.tickets.iter().filter_map(|known| state.ticket_view(known.token)).collect()
    }

    fn draw_secret(&mut self) -> Secret {
        self.secrets_drawn += 1;
        Secret(self.secrets_drawn.to_be_bytes())
    }
}
