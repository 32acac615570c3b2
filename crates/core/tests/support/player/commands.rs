//! A command for each verb.

use super::super::moves::{
    AcquireMove, ClaimPick, Elapsed, FencePick, ModePick, OwnerMove, Pick, ProofPick, TicketPick,
    Verb,
};
use super::{KEYS, LOCKS, PERMITS, Player, fence_keys, lock_names, parsed};
use holdfast_core::{
    Acquire, Command, Door, Label, Lease, LockName, Mode, Note, OpenSession, Proof, Reason, Revoke,
    Secret, SessionId, SessionKind, SessionRef, State, Target, Term, TicketView, Token, Value,
    Wait,
};
use std::num::NonZeroU64;

/// The usual number of permits.
const PERMITS_OF: u32 = 2;
/// A secret that is never drawn.
pub(super) const WRONG: Secret = Secret([0; 16]);
/// The longest step towards the next due time.
const ELAPSED_MS_MAX: u64 = 2_000;

impl Player {
    pub(super) fn command(&mut self, verb: &Verb, state: &State) -> Command {
        let command = match verb {
            Verb::Tick { elapsed, next_term } => {
                self.term.0 += u64::from(*next_term);
                let elapsed_ms = match elapsed {
                    Elapsed::Ms(ms) => *ms,
                    Elapsed::NextDue(beside) => {
                        let due_ms = state.next_due_in_ms().unwrap_or(5).min(ELAPSED_MS_MAX);
                        due_ms.saturating_add_signed(i64::from(*beside))
                    }
                };
                Some(self.tick(elapsed_ms))
            }
            Verb::Open { node, again, label, ttl_ms } => {
                Some(self.open(*node, *again, *label, *ttl_ms))
            }
            Verb::Close { session, right } => self.close(*session, *right),
            Verb::Expire { session, right_term } => self.expire(*session, *right_term),
            Verb::Acquire(acquire) => Some(self.acquire(acquire, state)),
            Verb::Upgrade { ticket, proof, wait, claims } => {
                let fits = |ticket: &TicketView| ticket.held && ticket.mode == Mode::Shared;
                self.target(*ticket, fits, state).map(|target| Command::Upgrade {
                    proof: self.proof(*proof, &target, state),
                    target,
                    wait: *wait,
                    claims: self.claims(claims, state),
                })
            }
            Verb::OwnerMove { what, ticket, proof } => self.own(*what, *ticket, *proof, state),
            Verb::Revoke { ticket, within_ms, force } => {
                self.target(*ticket, |ticket| ticket.held, state).map(|target| {
                    Command::Revoke(Revoke {
                        name: target.name,
                        token: target.token,
                        by: label(9),
                        reason: reason(),
                        within_ms: *within_ms,
                        force: *force,
                    })
                })
            }
            Verb::Force { ticket } => self.target(*ticket, |_| true, state).map(|target| {
                let Target { name, token } = target;
                Command::Force { name, token, by: label(9), reason: reason() }
            }),
            Verb::Outcome { request, unseen } => {
                self.known_request(*request, *unseen).map(Command::Outcome)
            }
            Verb::Fence { key, value, token, mode } => {
                self.fence(*key, *value, *token, *mode, state)
            }
            Verb::Transact(transact) => Some(self.transact(transact, state)),
            Verb::Tree(tree) => self.tree(tree, state),
            Verb::Again { .. } => None,
        };
        command.unwrap_or_else(|| self.tick(1))
    }

    fn open(
        &mut self,
        node: Option<u8>,
        again: bool,
        request_text: Option<u8>,
        ttl_ms: u64,
    ) -> Command {
        let kind = match node {
            None => SessionKind::Client,
            Some(0) => SessionKind::Node,
            Some(node) => SessionKind::NodeOf { node: u64::from(node) },
        };
        let earlier = self.living().find(|known| again && known.kind == kind);
        let secret = earlier.map(|known| known.owner.secret);
        let secret = secret.unwrap_or_else(|| self.draw_secret());
        Command::OpenSession(OpenSession { secret, ttl_ms, label: request_text.map(label), kind })
    }

    fn close(&self, session: Pick, right: bool) -> Option<Command> {
        let owners: Vec<SessionRef> = match right {
            true => self.living_sessions(),
            false => self.sessions.iter().map(|known| known.owner).collect(),
        };
        let owner = session.of(&owners)?;
        let secret = if right || session.0.is_multiple_of(2) { owner.secret } else { WRONG };
        Some(Command::CloseSession(SessionRef { id: owner.id, secret }))
    }

    fn expire(&self, session: Pick, right_term: bool) -> Option<Command> {
        let living = self.living_sessions();
        let never_was = SessionId(NonZeroU64::MAX);
        let session = session.of(&living).map_or(never_was, |owner| owner.id);
        let decided_in = if right_term { self.term } else { Term(self.term.0.wrapping_sub(1)) };
        Some(Command::ExpireSession { session, decided_in })
    }

    fn acquire(&mut self, acquire: &AcquireMove, state: &State) -> Command {
        let AcquireMove { lease, wait, odd, .. } = *acquire;
        let owner = match acquire.session {
            None => None,
            Some(session) => match session.of(&self.living_sessions()) {
                Some(owner) if acquire.wrong => Some(SessionRef { id: owner.id, secret: WRONG }),
                Some(owner) => Some(*owner),
                None => return self.open(None, false, acquire.label, 1_000),
            },
        };
        let names = names_of(acquire);
        let ownerless = owner.is_none() && !odd;
        // As a door with keys would do it.
        let keys = parsed(KEYS.into_iter());
        let as_key = acquire.door == Door::Redis && names.iter().all(|name| keys.contains(name));
        Command::Acquire(Acquire {
            mode: mode_of(acquire.mode, &names),
            names,
            session: owner,
            lease: match lease {
                Lease::Session | Lease::Unconfirmed { .. } if ownerless => {
                    Lease::Deadline { ttl_ms: 60 }
                }
                other => other,
            },
            wait: match wait {
                Wait::Forever if ownerless => Wait::For { ms: 80 },
                other => other,
            },
            label: acquire.label.map(label),
            note: acquire.note.map(note),
            secret: (acquire.secret && !as_key).then(|| self.draw_secret()),
            claims: self.claims(&acquire.claims, state),
            lock_delay_ms: acquire.lock_delay_ms,
            door: acquire.door,
        })
    }

    fn claims(&self, picks: &[ClaimPick], state: &State) -> Vec<Token> {
        let standing = self.standing(state);
        let held: Vec<Token> = standing.iter().filter(|t| t.held).map(|t| t.token).collect();
        let mut claims: Vec<Token> = Vec::new();
        for pick in picks {
            let claim = match pick {
                ClaimPick::Held(pick) => pick.of(&held).copied(),
                ClaimPick::Any(number) => Some(Token(u64::from(*number))),
            };
            claims.extend(claim.filter(|claim| !claims.contains(claim)));
        }
        claims
    }

    fn own(
        &self,
        what: OwnerMove,
        ticket: TicketPick,
        proof: ProofPick,
        state: &State,
    ) -> Option<Command> {
        let fits = |ticket: &TicketView| match what {
            OwnerMove::Release => ticket.held,
            OwnerMove::Cancel => !ticket.held,
            OwnerMove::Renew { .. } | OwnerMove::Persist => {
                ticket.held && ticket.lease != Lease::Session
            }
            OwnerMove::Note(_) => true,
            OwnerMove::Recovered => ticket.held && marked(ticket, state).is_some(),
            OwnerMove::Downgrade => ticket.held && ticket.mode == Mode::Exclusive,
        };
        let mut target = self.target(ticket, fits, state)?;
        let proof = self.proof(proof, &target, state);
        Some(match what {
            OwnerMove::Release => Command::Release { target, proof },
            OwnerMove::Cancel => Command::Cancel { target, proof },
            OwnerMove::Renew { ttl_ms } => Command::Renew { target, proof, ttl_ms },
            OwnerMove::Persist => Command::Persist { target, proof },
            OwnerMove::Note(text) => Command::Note { target, proof, note: text.map(note) },
            OwnerMove::Recovered => {
                let view = target.token.and_then(|token| state.ticket_view(token));
                if let Some(name) = view.and_then(|view| marked(&view, state)) {
                    target.name = name;
                }
                Command::Recovered { target, proof }
            }
            OwnerMove::Downgrade => Command::Downgrade { target, proof },
        })
    }

    fn target(
        &self,
        pick: TicketPick,
        fits: impl Fn(&TicketView) -> bool,
        state: &State,
    ) -> Option<Target> {
        let fitting = |pick: Pick| -> Option<(LockName, Token)> {
            let standing = self.standing(state);
            let fit: Vec<&TicketView> = standing.iter().filter(|ticket| fits(ticket)).collect();
            let view = pick.of(&fit).copied().or_else(|| pick.of(&standing))?;
            Some((pick.of(view.names.as_slice())?.clone(), view.token))
        };
        let (name, token) = match pick {
            TicketPick::Fit(pick) => fitting(pick).map(|(name, token)| (name, Some(token)))?,
            TicketPick::ByName(pick) => fitting(pick).map(|(name, _)| (name, None))?,
            TicketPick::Any(pick) => {
                let known = pick.of(&self.tickets)?;
                (pick.of(&known.names)?.clone(), Some(known.token))
            }
            TicketPick::OtherName(pick, name) => {
                (name.of(&lock_names())?.clone(), Some(fitting(pick)?.1))
            }
        };
        Some(Target { name, token })
    }

    fn proof(&self, pick: ProofPick, target: &Target, state: &State) -> Proof {
        let only_holder = || Some(state.lock_view(&target.name, 1)?.holders.first()?.token);
        let token = target.token.or_else(only_holder);
        let known = self.tickets.iter().find(|known| Some(known.token) == token);
        let view = token.and_then(|token| state.ticket_view(token));
        let own = known.and_then(|known| known.secret);
        let of_session = view.as_ref().and_then(|view| self.session_secret(view.session?));
        let request_text = view.and_then(|view| view.label);
        match pick {
            ProofPick::Right => match (own.or(of_session), request_text) {
                (None, Some(request_text)) => Proof::Label(request_text),
                (secret, _) => Proof::Secret(secret.unwrap_or(WRONG)),
            },
            ProofPick::OfSession => Proof::Secret(of_session.unwrap_or(WRONG)),
            ProofPick::Wrong => Proof::Secret(WRONG),
            ProofPick::Label => Proof::Label(request_text.unwrap_or_else(|| label(8))),
        }
    }

    fn fence(
        &self,
        key: Pick,
        value: Option<u8>,
        token: FencePick,
        mode: ModePick,
        state: &State,
    ) -> Option<Command> {
        let newest = Token(state.counts().counter);
        let token = match token {
            FencePick::Drawn(pick) => pick.of(&self.tickets).map_or(newest, |known| known.token),
            FencePick::Newest => newest,
            FencePick::Never(0) => Token(0),
            FencePick::Never(above) => Token(newest.0 + u64::from(above)),
        };
        let key = key.of(&fence_keys())?.clone();
        let mode = mode_of(mode, &[]);
        Some(match value {
            Some(value) => Command::Put { key, value: Value::parse([value]).ok()?, token, mode },
            None => Command::Raise { key, token, mode },
        })
    }
}

/// The first name of a holder that needs recovery.
fn marked(ticket: &TicketView, state: &State) -> Option<LockName> {
    let marked = |name: &&LockName| {
        state.lock_view(name, 0).is_some_and(|view| view.needs_recovery.is_some())
    };
    ticket.names.as_slice().iter().find(marked).cloned()
}

fn names_of(acquire: &AcquireMove) -> Vec<LockName> {
    let all = lock_names();
    let usual = matches!(acquire.mode, ModePick::Usual { .. });
    let Some(first) = acquire.names.first().and_then(|pick| pick.of(&all)) else {
        return Vec::new();
    };
    // Names of one kind go together, unless something unusual is requested anyway.
    let group = match PERMITS.iter().any(|name| name.as_bytes() == first.as_bytes()) {
        _ if !usual => all.clone(),
        true => parsed(PERMITS.into_iter()),
        false => parsed(LOCKS.into_iter().chain(KEYS)),
    };
    let mut names = vec![first.clone()];
    for name in acquire.names.iter().skip(1).filter_map(|pick| pick.of(&group)) {
        if acquire.odd || !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn mode_of(pick: ModePick, names: &[LockName]) -> Mode {
    let permits = || parsed(PERMITS.into_iter());
    match pick {
        ModePick::Usual { .. } if names.first().is_some_and(|name| permits().contains(name)) => {
            Mode::Permit { of: PERMITS_OF }
        }
        ModePick::Exclusive | ModePick::Usual { shared: false } => Mode::Exclusive,
        ModePick::Shared | ModePick::Usual { shared: true } => Mode::Shared,
        ModePick::Permit => Mode::Permit { of: PERMITS_OF },
        ModePick::OddPermit(of) => Mode::Permit { of },
    }
}

pub(super) fn label(number: u8) -> Label {
    Label::parse(format!("label-{number}")).expect("short")
}

fn note(number: u8) -> Note {
    Note::parse(format!("note-{number}")).expect("short")
}

fn reason() -> Reason {
    Reason::parse("stuck").expect("short")
}
