//! Heartbeats of sessions: gathered at every node, confirmed by the leader, never logged.

use crate::io::{Ask, Output, Reply};
use crate::message::{PeerMessage, Say};
use crate::mistakes::NodeMistake;
use crate::node::Node;
use crate::own::NODE_TTL_MS;
use crate::rounds::Waiter;
use crate::types::NodeId;
use holdfast_core::{SessionId, SessionRef};
use std::collections::BTreeSet;

/// Beats that were not confirmed for so long are sent again with the next ones.
const RETRY_MS: u64 = 500;

/// How often a node's own session beats.
const OWN_BEAT_MS: u64 = NODE_TTL_MS / 5;

#[derive(Debug, Default)]
pub(crate) struct Beats {
    gathered: Vec<(Ask, SessionRef)>,
    running: Option<Running>,
    last_round: u64,
    own_beat_ms: Option<u64>,
}

#[derive(Debug)]
struct Running {
    round: u64,
    sent_ms: u64,
    beats: Vec<(Ask, SessionRef)>,
}

impl Beats {
    pub(crate) fn len(&self) -> usize {
        self.gathered.len() + self.running.as_ref().map_or(0, |running| running.beats.len())
    }

    pub(crate) fn add(&mut self, ask: Ask, session: SessionRef) {
        self.gathered.push((ask, session));
    }

    /// The next round of beats, if one is due.
    fn begin(&mut self, own: Option<SessionRef>, now_ms: u64) -> Option<(u64, Vec<SessionRef>)> {
        if self.running.as_ref().is_some_and(|running| now_ms < running.sent_ms + RETRY_MS) {
            return None;
        }
        let own =
            own.filter(|_| self.own_beat_ms.is_none_or(|at_ms| now_ms >= at_ms + OWN_BEAT_MS));
        let mut beats = self.running.take().map_or(Vec::new(), |running| running.beats);
        beats.append(&mut self.gathered);
        if beats.is_empty() && own.is_none() {
            return None;
        }
        if own.is_some() {
            self.own_beat_ms = Some(now_ms);
        }
        self.last_round += 1;
        let sessions = beats.iter().map(|(_, session)| *session).chain(own).collect();
        self.running = Some(Running { round: self.last_round, sent_ms: now_ms, beats });
        Some((self.last_round, sessions))
    }
}

impl Node {
    pub(crate) fn send_beats(&mut self, out: &mut Vec<Output>) {
        let Some(leader) = self.consensus.leader() else { return };
        let own = self.own.may_beat(self.seen_ms);
        let Some((round, sessions)) = self.beats.begin(own, self.seen_ms) else { return };
        if leader == self.id {
            self.hear_beats(self.id, round, sessions, out);
        } else {
            let message = PeerMessage(Say::Beats { round, sessions });
            out.push(Output::Send { to: leader, message });
        }
    }

    /// The leader notes that sessions live. It says so only once a majority has confirmed it as
    /// leader, in a round begun after this.
    pub(crate) fn hear_beats(
        &mut self,
        from: NodeId,
        round: u64,
        sessions: Vec<SessionRef>,
        out: &mut Vec<Output>,
    ) {
        let now_ms = self.seen_ms;
        let Some(leading) = &mut self.leading else { return };
        for session in &sessions {
            leading.pulse.beat(session.id, now_ms);
        }
        if self.mistakes.makes(NodeMistake::ConfirmAlone) {
            return self.confirm_beats(from, round, &sessions, out);
        }
        self.rounds.add(Waiter::Beats { from, round, sessions });
    }

    /// The round that these beats waited for is confirmed, and applied up to there.
    pub(crate) fn confirm_beats(
        &mut self,
        from: NodeId,
        round: u64,
        sessions: &[SessionRef],
        out: &mut Vec<Output>,
    ) {
        let Some(leading) = &self.leading else { return };
        let lives = |session: &SessionRef| self.state.session_lives(session);
        let (alive, gone): (Vec<SessionRef>, Vec<SessionRef>) =
            sessions.iter().partition(|s| lives(s));
        // Once its end is proposed, a session hears nothing more until that is decided.
        let tells = |id: &SessionId| {
            !leading.pulse.is_ending(*id) || self.mistakes.makes(NodeMistake::ConfirmEnding)
        };
        let alive = alive.iter().map(|session| session.id).filter(tells);
        let alive: Vec<SessionId> = alive.collect();
        let gone: Vec<SessionId> = gone.iter().map(|session| session.id).collect();
        if from == self.id {
            self.beats_confirmed(round, &alive, &gone, out);
        } else {
            let message = PeerMessage(Say::BeatsConfirmed { round, alive, gone });
            out.push(Output::Send { to: from, message });
        }
    }

    pub(crate) fn beats_confirmed(
        &mut self,
        round: u64,
        alive: &[SessionId],
        gone: &[SessionId],
        out: &mut Vec<Output>,
    ) {
        let Some(running) = self.beats.running.take_if(|running| running.round == round) else {
            return;
        };
        let alive: BTreeSet<&SessionId> = alive.iter().collect();
        let gone: BTreeSet<&SessionId> = gone.iter().collect();
        for (ask, session) in running.beats {
            let reply = if alive.contains(&session.id) {
                Reply::Beat(true)
            } else if gone.contains(&session.id) {
                Reply::Beat(false)
            } else {
                // Its end is being decided: nobody can say yet.
                Reply::Unknown
            };
            out.push(Output::Reply { ask, reply });
        }
    }
}
