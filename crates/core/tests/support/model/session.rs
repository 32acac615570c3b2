//! Sessions: opened, closed, expired; and the numbered proposals of nodes.

use super::Model;
use super::records::Session;
use holdfast_core::{
    Answer, Bound, Effect, EndReason, InvalidField, Numbered, OpenSession, ProposalOutcome,
    Refusal, RequestId, SessionId, SessionKind, SessionRef, Term, Token,
};
use std::num::NonZeroU64;

impl Model {
    pub(super) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// The session, if it is alive and the secret is right.
    pub(super) fn owned_session(&mut self, owner: SessionRef) -> Result<&mut Session, Refusal> {
        let living = |session: &&mut Session| session.id == owner.id && session.ended.is_none();
        match self.sessions.iter_mut().find(living) {
            None => Err(Refusal::NoSession(owner.id)),
            Some(session) if session.secret != owner.secret => Err(Refusal::NotOwner),
            Some(session) => Ok(session),
        }
    }

    /// Accepts a node's proposal once and in order, or says why not.
    pub(super) fn not_taken(&mut self, from: Numbered) -> Option<ProposalOutcome> {
        let node = |session: &&mut Session| {
            session.id == from.session
                && session.kind != SessionKind::Client
                && session.ended.is_none()
        };
        let Some(node) = self.sessions.iter_mut().find(node) else {
            return Some(ProposalOutcome::NodeGone);
        };
        if from.number <= node.number {
            return Some(ProposalOutcome::Seen);
        }
        if from.number > node.number + 1 {
            return Some(ProposalOutcome::TooSoon);
        }
        node.number = from.number;
        None
    }

    pub(super) fn open_session(&mut self, open: OpenSession) -> Result<Answer, Refusal> {
        let ttls = self.limits.session_ttl_ms_min..=self.limits.session_ttl_ms_max;
        if !ttls.contains(&open.ttl_ms) {
            return Err(Refusal::BadRequest(InvalidField::SessionTtl));
        }
        let of_a_node = matches!(open.kind, SessionKind::NodeOf { .. });
        let earlier = self.sessions.iter().find(|session| of_a_node && session.kind == open.kind);
        let earlier = earlier.map(|session| (session.id, session.secret));
        if let Some((id, _)) = earlier.filter(|(_, secret)| *secret == open.secret) {
            return Ok(Answer::SessionOpened(id));
        }
        if !of_a_node && self.sessions.len() >= self.limits.sessions_max {
            return Err(Refusal::Full(Bound::Sessions));
        }
        if let Some((id, _)) = earlier {
            self.end_session(id, EndReason::Closed);
        }
        self.sessions_drawn += 1;
        let id = SessionId(NonZeroU64::MIN.saturating_add(self.sessions_drawn - 1));
        self.sessions.push(Session {
            id,
            secret: open.secret,
            ttl_ms: open.ttl_ms,
            label: open.label,
            kind: open.kind,
            opened_ms: self.now_ms,
            number: 0,
            lowest: RequestId::FIRST,
            requests: Vec::new(),
            ended: None,
        });
        Ok(Answer::SessionOpened(id))
    }

    pub(super) fn close_session(&mut self, owner: SessionRef) -> Result<Answer, Refusal> {
        self.owned_session(owner)?;
        Ok(self.end_session(owner.id, EndReason::Closed))
    }

    pub(super) fn expire_session(
        &mut self,
        id: SessionId,
        decided_in: Term,
    ) -> Result<Answer, Refusal> {
        if decided_in != self.term {
            return Err(Refusal::OtherTerm);
        }
        if self.session(id).is_none_or(|session| session.ended.is_some()) {
            return Err(Refusal::NoSession(id));
        }
        Ok(self.end_session(id, EndReason::Expired))
    }

    fn end_session(&mut self, id: SessionId, how: EndReason) -> Answer {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.ended = Some(how);
        }
        self.effects.push(Effect::SessionEnded { session: id, how });
        for token in self.tickets_of(id) {
            self.end(token, how, None);
        }
        self.sessions.retain(|session| session.id != id);
        Answer::SessionEnded(id)
    }

    /// The tickets that end with a session.
    pub(super) fn tickets_of(&self, id: SessionId) -> Vec<Token> {
        let own = self.tickets.iter().filter(|ticket| ticket.bound_to() == Some(id));
        own.map(|ticket| ticket.token).collect()
    }
}
