//! Request ids, and the sequence numbers of nodes.

use super::super::moves::{Changed, FromPick, Pick, RequestFault, RequestPick};
use super::commands::WRONG;
use super::{KnownSession, Player};
use holdfast_core::{
    Command, Label, Lease, Mode, Numbered, Proof, Proposal, RequestId, RequestKey, RequestRef,
    SessionId, SessionRef, State, Target, Wait,
};

impl Player {
    /// The sequence number of a node, right or wrong.
    pub(super) fn numbered(&self, pick: FromPick) -> Option<Numbered> {
        let of_node = |pick: Pick| {
            let nodes: Vec<&KnownSession> =
                self.living().filter(|session| session.kind.is_node()).collect();
            pick.of(&nodes).map(|node| (node.owner.id, node.number))
        };
        let (session, number) = match pick {
            FromPick::None => return None,
            FromPick::Next(pick) => of_node(pick).map(|(id, last)| (id, last + 1))?,
            FromPick::Again(pick) => of_node(pick)?,
            FromPick::Gap(pick) => of_node(pick).map(|(id, last)| (id, last + 2))?,
            FromPick::Any(pick) => {
                pick.of(&self.sessions).map(|known| (known.owner.id, known.number + 1))?
            }
        };
        Some(Numbered { session, number })
    }

    pub(super) fn request(
        &mut self,
        pick: RequestPick,
        command: &Command,
        state: &State,
    ) -> Option<RequestRef> {
        match pick {
            RequestPick::None => None,
            RequestPick::Usual { needed } => self.usual_request(needed, command, state),
            RequestPick::InSession { session, fault } => {
                let id = session.of(&self.sessions)?.owner.id;
                self.in_session(id, 2, fault)
            }
            RequestPick::Alone => Some(self.alone()),
        }
    }

    /// The kind of request id that goes with a command.
    fn usual_request(
        &mut self,
        needed: u8,
        command: &Command,
        state: &State,
    ) -> Option<RequestRef> {
        let session_of = |target: &Target| state.ticket_view(target.token?)?.session;
        let (session, draws) = match command {
            Command::Tick(_)
            | Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::ExpireSession { .. }
            | Command::Outcome(_)
            | Command::Transact(_)
            | Command::Tree(_)
            | Command::Operate { .. } => return None,
            Command::Acquire(acquire) => (acquire.session.map(|session| session.id), true),
            Command::Upgrade { target, .. } => (session_of(target), true),
            Command::Release { target, .. }
            | Command::Cancel { target, .. }
            | Command::Renew { target, .. }
            | Command::Persist { target, .. }
            | Command::Note { target, .. }
            | Command::Recovered { target, .. }
            | Command::Downgrade { target, .. } => (session_of(target), false),
            Command::Revoke(_)
            | Command::Force { .. }
            | Command::Put { .. }
            | Command::Raise { .. } => (None, false),
        };
        let living = |id: &SessionId| self.living().any(|known| known.owner.id == *id);
        match session.filter(living) {
            None if draws => Some(self.alone()),
            None => {
                let any = self.living().next()?.owner.id;
                self.in_session(any, needed, RequestFault::None)
            }
            Some(session) => self.in_session(session, needed, RequestFault::None),
        }
    }

    fn in_session(&mut self, id: SessionId, needed: u8, fault: RequestFault) -> Option<RequestRef> {
        let known = self.sessions.iter_mut().find(|known| known.owner.id == id)?;
        known.requested += 1;
        let lowest = match fault {
            RequestFault::BelowLowest => known.requested + 1,
            _ => known.requested.saturating_sub(u64::from(needed)).max(1),
        };
        let secret = match fault {
            RequestFault::WrongSecret => WRONG,
            _ => known.owner.secret,
        };
        Some(RequestRef::InSession {
            session: SessionRef { id, secret },
            id: RequestId::new(known.requested)?,
            lowest: RequestId::new(lowest)?,
        })
    }

    /// An unused request id without a session.
    fn alone(&mut self) -> RequestRef {
        self.keys_drawn += 1;
        RequestRef::Alone(key(self.keys_drawn))
    }

    /// Repeats an earlier request, with or without forgetting those before it.
    pub(super) fn again(&mut self, pick: Pick, forget: bool, changed: Changed) -> Option<Proposal> {
        let mut again = pick.of(&self.requests)?.clone();
        match changed {
            Changed::Nothing => {}
            Changed::Reworded => self.reword(&mut again.command),
            Changed::Other(pick) => again.command = pick.of(&self.requests)?.command.clone(),
            Changed::Slightly(how) => change_slightly(&mut again.command, how),
        }
        if let Some(RequestRef::InSession { id, lowest, .. }) = &mut again.request
            && forget
        {
            *lowest = *id;
        }
        Some(again)
    }

    /// Changes what a retry may change.
    fn reword(&mut self, command: &mut Command) {
        match command {
            Command::Acquire(acquire) => {
                acquire.names.reverse();
                acquire.claims.reverse();
                acquire.secret = acquire.secret.map(|_| self.draw_secret());
                acquire.wait = Wait::For { ms: 7 };
                (acquire.label, acquire.note) = (Label::parse("again").ok(), None);
            }
            Command::Upgrade { proof, wait, claims, .. } => {
                claims.reverse();
                (*proof, *wait) = (Proof::Secret(WRONG), Wait::Try);
            }
            Command::Release { proof, .. } | Command::Renew { proof, .. } => {
                *proof = Proof::Secret(WRONG);
            }
            _ => {}
        }
    }

    /// A request that was sent, or the one that will be next.
    pub(super) fn known_request(&self, pick: Pick, unseen: bool) -> Option<RequestRef> {
        if !unseen {
            return pick.of(&self.requests)?.request.clone();
        }
        let living: Vec<&KnownSession> = self.living().collect();
        match pick.of(&living) {
            Some(known) if pick.0.is_multiple_of(2) => Some(RequestRef::InSession {
                session: known.owner,
                id: RequestId::new(known.requested + 1)?,
                lowest: RequestId::new(known.requested.max(1))?,
            }),
            _ => Some(RequestRef::Alone(key(self.keys_drawn + 1))),
        }
    }
}

/// Makes it a different request, if only slightly.
fn change_slightly(command: &mut Command, how: u8) {
    match command {
        Command::Acquire(acquire) => match how % 3 {
            0 => acquire.lease = Lease::Deadline { ttl_ms: 1_234 },
            1 => acquire.mode = Mode::Permit { of: 77 },
            _ => acquire.names.truncate(1),
        },
        Command::Release { target, proof } => {
            *command = Command::Persist { target: target.clone(), proof: proof.clone() };
        }
        Command::Renew { ttl_ms, .. } => *ttl_ms = ttl_ms.saturating_add(1),
        Command::Put { token, .. } | Command::Raise { token, .. } => token.0 += 1,
        _ => {}
    }
}

fn key(number: u64) -> RequestKey {
    RequestKey::parse(format!("request-key-{number:08}")).expect("long enough")
}
