//! Sessions: opened, closed, expired; and the numbering of nodes' proposals.

use super::records::{DyingSession, Session};
use super::{Lines, StepBudget};
use crate::command::{Numbered, OpenSession, SessionKind, SessionRef};
use crate::containers::Slot;
use crate::effect::{Answer, Effect, EndReason, ProposalOutcome};
use crate::ids::{RequestId, SessionId, Term, Token};
use crate::level::NODE_SESSIONS_LEVEL;
use crate::limits::Limits;
use crate::refusal::{Bound, InvalidField, Refusal};
use crate::weight::Weight;
use std::num::NonZeroU64;

impl Lines {
    /// A node has one session at a time. A repeated request for the same session returns its id; a
    /// different one comes from a new process of the node, and ends the session of the previous
    /// one.
    pub(crate) fn open_session(
        &mut self,
        open: OpenSession,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let OpenSession { secret, ttl_ms, label, kind } = open;
        let Limits { session_ttl_ms_min, session_ttl_ms_max, sessions_max, .. } = self.limits;
        if !(session_ttl_ms_min..=session_ttl_ms_max).contains(&ttl_ms) {
            return Err(Refusal::BadRequest(InvalidField::SessionTtl));
        }
        let earlier = self.earlier_session(kind);
        if let Some(session) = earlier.and_then(|slot| self.data.sessions.get(slot))
            && session.secret == secret
        {
            return Ok(Answer::SessionOpened(session.id));
        }
        // A member has one such session, so they are few.
        let unbounded =
            self.level >= NODE_SESSIONS_LEVEL && matches!(kind, SessionKind::NodeOf { .. });
        if !unbounded {
            if self.data.sessions.len() >= sessions_max {
                return Err(Refusal::Full(Bound::Sessions));
            }
            let label_len = label.as_ref().map_or(0, |label| label.as_bytes().len());
            self.check_bytes(Weight::texts(label_len))?;
        }
        if let Some(slot) = earlier
            && let Some(id) = self.data.sessions.get(slot).map(|session| session.id)
        {
            self.end_session(slot, id, EndReason::Closed, effects);
        }
        self.data.sessions_drawn = self.data.sessions_drawn.saturating_add(1);
        let id = SessionId(NonZeroU64::new(self.data.sessions_drawn).unwrap_or(NonZeroU64::MIN));
        let session = Session {
            id,
            secret,
            ttl_ms,
            label,
            kind,
            opened_ms: self.data.clock.now_ms,
            next_number: 1,
            lowest: RequestId::FIRST,
            requests: Vec::new(),
            memory_bytes: 0,
            dying: None,
        };
        self.weigh_change(Weight::NONE, session.weight());
        let slot = self.data.sessions.insert(session);
        self.index.sessions.insert(&self.data.sessions, slot);
        self.index.sets.session_ids.insert(id);
        if let SessionKind::NodeOf { node } = kind {
            self.index.sets.node_sessions.insert(node, id);
        }
        Ok(Answer::SessionOpened(id))
    }

    /// The living session of the node that a new session is for.
    fn earlier_session(&self, kind: SessionKind) -> Option<Slot> {
        let SessionKind::NodeOf { node } = kind else { return None };
        self.session_slot(*self.index.sets.node_sessions.get(&node)?)
    }

    /// The session, if it is alive and the secret is right.
    pub(super) fn check_session(&self, session: &SessionRef) -> Result<Slot, Refusal> {
        let slot = self.session_slot(session.id).ok_or(Refusal::NoSession(session.id))?;
        match self.data.sessions.get(slot) {
            Some(known) if known.dying.is_none() && known.secret == session.secret => Ok(slot),
            Some(known) if known.dying.is_none() => Err(Refusal::NotOwner),
            _ => Err(Refusal::NoSession(session.id)),
        }
    }

    pub(crate) fn close_session(
        &mut self,
        session: SessionRef,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let slot = self.check_session(&session)?;
        Ok(self.end_session(slot, session.id, EndReason::Closed, effects))
    }

    pub(crate) fn expire_session(
        &mut self,
        session: SessionId,
        decided_in: Term,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        if decided_in != self.data.clock.term {
            return Err(Refusal::OtherTerm);
        }
        let alive = |slot: &Slot| self.data.sessions.get(*slot).is_some_and(|s| s.dying.is_none());
        let slot = self.session_slot(session).filter(alive).ok_or(Refusal::NoSession(session))?;
        Ok(self.end_session(slot, session, EndReason::Expired, effects))
    }

    /// From now on the session accepts no requests. Its tickets end now as far as one command may
    /// go, the rest at the start of the next entries.
    fn end_session(
        &mut self,
        slot: Slot,
        id: SessionId,
        how: EndReason,
        effects: &mut Vec<Effect>,
    ) -> Answer {
        let number = self.next_in_sequence();
        self.change_session(slot, |session| {
            session.dying = Some(DyingSession { how, number });
            session.requests = Vec::new();
            session.memory_bytes = 0;
        });
        self.index.sets.dying.insert(number, id);
        self.forget_node_session(slot);
        effects.push(Effect::SessionEnded { session: id, how });
        self.sweep(&mut StepBudget(self.limits.steps_max), effects);
        Answer::SessionEnded(id)
    }

    /// Ends tickets of dead sessions, and forgets the sessions that have none left.
    pub(super) fn sweep(&mut self, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        while let Some((number, id)) = self.index.sets.dying.first_key_value() {
            let (number, id) = (*number, *id);
            let how = self.session(id).and_then(|session| session.dying);
            let how = how.map_or(EndReason::Expired, |dying| dying.how);
            while let Some(token) = self.first_ticket_of(id) {
                if !steps.take() {
                    return;
                }
                self.end_ticket(token, how, None, steps, effects);
            }
            self.index.sets.dying.remove(&number);
            self.forget_session(id);
        }
    }

    fn first_ticket_of(&self, session: SessionId) -> Option<Token> {
        let of_session = (session, Token(0))..=(session, Token(u64::MAX));
        self.index.sets.by_session.range(of_session).next().map(|(_, token)| *token)
    }

    pub(super) fn forget_session(&mut self, id: SessionId) {
        let Some(slot) = self.session_slot(id) else { return };
        self.forget_node_session(slot);
        self.index.sessions.remove(&self.data.sessions, slot);
        self.index.sets.session_ids.remove(&id);
        if let Some(session) = self.data.sessions.remove(slot) {
            self.weigh_change(session.weight(), Weight::NONE);
        }
    }

    fn forget_node_session(&mut self, slot: Slot) {
        let Some(Session { id, kind: SessionKind::NodeOf { node }, .. }) =
            self.data.sessions.get(slot)
        else {
            return;
        };
        if self.index.sets.node_sessions.get(node) == Some(id) {
            self.index.sets.node_sessions.remove(node);
        }
    }

    /// Why a node's proposal is not applied: it is not the next one of its session.
    pub(crate) fn not_taken(&mut self, from: Numbered) -> Option<ProposalOutcome> {
        let slot = self.session_slot(from.session);
        let session = slot.and_then(|slot| self.data.sessions.get_mut(slot));
        let lives = |s: &&mut Session| s.dying.is_none() && s.kind.is_node();
        let Some(session) = session.filter(lives) else { return Some(ProposalOutcome::NodeGone) };
        if from.number < session.next_number {
            return Some(ProposalOutcome::Seen);
        }
        if from.number > session.next_number {
            return Some(ProposalOutcome::TooSoon);
        }
        session.next_number = from.number.saturating_add(1);
        None
    }
}
