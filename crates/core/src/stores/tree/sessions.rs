//! Sessions of the ZooKeeper door: one connection at a time, and ephemeral znodes.

use super::Tree;
use crate::command::SessionRef;
use crate::effect::{Answer, Effect};
use crate::ids::SessionId;
use crate::lines::{StepBudget, StoreAccess};
use crate::refusal::Refusal;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

impl Tree {
    /// Attaches another connection to a session. Requests that are still in flight from the
    /// previous one must not take effect after those of this one.
    pub(super) fn attach(
        &mut self,
        session: &SessionRef,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        lines.check_session(session)?;
        let attachment = lines.next_number();
        self.data.attachments.insert(session.id, attachment);
        effects.push(Effect::SessionAttached { session: session.id, attachment });
        Ok(Answer::SessionAttached { attachment })
    }

    /// Which attachment of a session may make changes: 0 until another connection has attached.
    pub(crate) fn attachment(&self, session: SessionId) -> u64 {
        self.data.attachments.get(&session).copied().unwrap_or(0)
    }

    pub(super) fn check_attachment(
        &self,
        session: SessionId,
        attachment: u64,
    ) -> Result<(), Refusal> {
        if attachment == self.attachment(session) {
            Ok(())
        } else {
            Err(Refusal::SessionMoved(session))
        }
    }

    /// How many ephemeral znodes a session has.
    pub(super) fn ephemerals_len(&self, session: SessionId) -> usize {
        self.index.ephemerals_len.get(&session).copied().unwrap_or(0)
    }

    pub(super) fn ephemerals_of(&self, session: SessionId) -> impl Iterator<Item = &Arc<str>> {
        let first = (session, false, 0, Arc::from(""));
        let next = SessionId(session.0.saturating_add(1));
        let range = (Included(first), Excluded((next, false, 0, Arc::from(""))));
        self.index.ephemerals.range(range).map(|(_, _, _, path)| path)
    }

    /// The first ephemeral znode of a session that has no ticket. Those with tickets are removed
    /// when the lines end the tickets.
    fn first_plain(&self, session: SessionId) -> Option<Arc<str>> {
        let range = (session, false, 0, Arc::from(""))..(session, true, 0, Arc::from(""));
        self.index.ephemerals.range(range).next().map(|(_, _, _, path)| path.clone())
    }

    /// After loading a snapshot: finds ended sessions that still have znodes.
    pub(super) fn find_dying(&mut self, lines: &impl StoreAccess) {
        let sessions = self.index.ephemerals.iter().filter(|(_, ticket, ..)| !ticket);
        let dead = sessions.map(|(id, ..)| *id).filter(|id| !lines.session_lives(*id));
        self.index.dying = dead.collect();
    }

    /// Whether there are znodes left to remove.
    pub(crate) fn is_behind(&self) -> bool {
        !self.index.dying.is_empty()
    }

    /// Removes the ephemeral znodes of ended sessions, in order of creation: as many as one command
    /// may remove, the rest at the start of the next entries.
    pub(super) fn follow_sessions(
        &mut self,
        from: usize,
        ticked: bool,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let mut ended = false;
        for effect in effects.get(from..).unwrap_or_default() {
            if let Effect::SessionEnded { session, .. } = effect {
                ended = true;
                self.data.attachments.remove(session);
                if self.first_plain(*session).is_some() {
                    self.index.dying.insert(*session);
                }
            }
        }
        if !ended && !ticked {
            return;
        }
        let mut steps = StepBudget::new(lines.limits().steps_max);
        while let Some(session) = self.index.dying.first().copied() {
            while let Some(path) = self.first_plain(session) {
                if !steps.take() {
                    return;
                }
                let zxid = lines.next_number();
                self.remove(&path, zxid, lines, effects);
            }
            self.index.dying.remove(&session);
        }
    }
}
