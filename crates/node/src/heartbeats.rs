//! Session heartbeats: gathered at every node, confirmed by the leader, never logged.

use crate::io::{Busy, Output, Reply, RequestTag};
use crate::message::{Body, PeerMessage};
use crate::node::{Node, ROUND_WAITERS_MAX};
use crate::proposals::NODE_TTL_MS;
use crate::read_index::Waiter;
use crate::types::NodeId;
use holdfast_core::{Secret, SessionId, SessionRef};
use std::collections::{BTreeMap, BTreeSet};

/// Heartbeats that have not been confirmed for this long are sent again with the next ones.
const RETRY_MS: u64 = 500;

/// How often a node's own session sends a heartbeat.
const OWN_HEARTBEAT_MS: u64 = NODE_TTL_MS / 5;

#[derive(Debug)]
pub(crate) struct Heartbeats {
    gathered: Vec<(RequestTag, SessionRef)>,
    running: Option<Running>,
    /// Starts at a random number: a late reply to an earlier process of this node matches no round.
    last_round: u64,
    own_heartbeat_ms: Option<u64>,
}

#[derive(Debug)]
struct Running {
    round: u64,
    sent_ms: u64,
    beats: Vec<(RequestTag, SessionRef)>,
}

impl Heartbeats {
    pub(crate) fn new(nonce: u64) -> Self {
        Self { gathered: Vec::new(), running: None, last_round: nonce, own_heartbeat_ms: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.gathered.len() + self.running.as_ref().map_or(0, |running| running.beats.len())
    }

    pub(crate) fn add(&mut self, ask: RequestTag, session: SessionRef) {
        self.gathered.push((ask, session));
    }

    /// Drops heartbeats that nobody waits for any more, and returns them. One that was sent still
    /// counts.
    pub(crate) fn withdraw(&mut self, asks: &BTreeSet<RequestTag>) -> Vec<RequestTag> {
        let mut withdrawn = Vec::new();
        let running = self.running.iter_mut().map(|running| &mut running.beats);
        for beats in running.chain([&mut self.gathered]) {
            beats.retain(|(ask, _)| {
                let goes = asks.contains(ask);
                withdrawn.extend(goes.then_some(*ask));
                !goes
            });
        }
        withdrawn
    }

    /// The next round of heartbeats, if one is due.
    fn begin(&mut self, own: Option<SessionRef>, now_ms: u64) -> Option<(u64, Vec<SessionRef>)> {
        if self.running.as_ref().is_some_and(|running| now_ms < running.sent_ms + RETRY_MS) {
            return None;
        }
        let own = own.filter(|_| {
            self.own_heartbeat_ms.is_none_or(|at_ms| now_ms >= at_ms + OWN_HEARTBEAT_MS)
        });
        let mut beats = self.running.take().map_or(Vec::new(), |running| running.beats);
        beats.append(&mut self.gathered);
        if beats.is_empty() && own.is_none() {
            return None;
        }
        if own.is_some() {
            self.own_heartbeat_ms = Some(now_ms);
        }
        self.last_round = self.last_round.wrapping_add(1);
        let sessions = beats.iter().map(|(_, session)| *session).chain(own).collect();
        self.running = Some(Running { round: self.last_round, sent_ms: now_ms, beats });
        Some((self.last_round, sessions))
    }
}

impl Node {
    /// Handles a client's heartbeat. Secrets never change, so one that is known to be wrong is
    /// answered here, and can't delay the owner's own heartbeats.
    pub(crate) fn beat(&mut self, ask: RequestTag, session: SessionRef, out: &mut Vec<Output>) {
        if self.heartbeats.len() >= ROUND_WAITERS_MAX {
            out.push(Output::Reply { ask, reply: Reply::Busy(Busy::QueueFull) });
        } else if self.knows_another_secret(&session) {
            out.push(Output::Reply { ask, reply: Reply::Beat(false) });
        } else {
            self.heartbeats.add(ask, session);
        }
    }

    fn knows_another_secret(&self, session: &SessionRef) -> bool {
        self.state.session_owner(session) == Some(false)
    }

    pub(crate) fn send_heartbeats(&mut self, out: &mut Vec<Output>) {
        let Some(leader) = self.consensus.leader() else { return };
        let own = self.proposals.may_beat(self.seen_ms);
        let Some((round, sessions)) = self.heartbeats.begin(own, self.seen_ms) else { return };
        if leader == self.id {
            self.receive_heartbeats(self.id, round, sessions);
        } else {
            let message = PeerMessage(Body::Heartbeats { round, sessions });
            out.push(Output::Send { to: leader, message });
        }
    }

    /// At the leader: records that sessions are alive. They are acknowledged only once a majority
    /// has confirmed it as leader, in a round started after this.
    pub(crate) fn receive_heartbeats(
        &mut self,
        from: NodeId,
        round: u64,
        sessions: Vec<SessionRef>,
    ) {
        let now_ms = self.seen_ms;
        let Some(leading) = &mut self.leading else { return };
        // A session that is not applied here yet gets a full TTL when it is.
        let owned = |session: &&SessionRef| self.state.session_lives(session);
        for session in sessions.iter().filter(owned) {
            leading.liveness.beat(session.id, now_ms);
        }
        self.read_index.add(Waiter::Heartbeats { from, round, sessions });
    }

    /// The round that these heartbeats waited for is confirmed, and everything up to its index
    /// applied.
    pub(crate) fn confirm_heartbeats(
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
        // Once its end is proposed, a session's heartbeats go unacknowledged until that is decided.
        let tells = |id: &SessionId| !leading.liveness.is_ending(*id);
        let alive = alive.iter().map(|session| session.id).filter(tells);
        let alive: Vec<SessionId> = alive.collect();
        let gone: Vec<SessionId> = gone.iter().map(|session| session.id).collect();
        if from == self.id {
            self.heartbeats_confirmed(round, &alive, &gone, out);
        } else {
            let message = PeerMessage(Body::HeartbeatsConfirmed { round, alive, gone });
            out.push(Output::Send { to: from, message });
        }
    }

    pub(crate) fn heartbeats_confirmed(
        &mut self,
        round: u64,
        alive: &[SessionId],
        gone: &[SessionId],
        out: &mut Vec<Output>,
    ) {
        let Some(running) = self.heartbeats.running.take_if(|running| running.round == round)
        else {
            return;
        };
        let alive: BTreeSet<&SessionId> = alive.iter().collect();
        let gone: BTreeSet<&SessionId> = gone.iter().collect();
        // A session is alive if one of the secrets in its heartbeats is its own.
        let secrets = secrets_by_session(&running.beats);
        for (ask, session) in running.beats {
            let reply = if alive.contains(&session.id) {
                let only_one = secrets.get(&session.id).is_some_and(Option::is_some);
                match self.state.session_owner(&session) {
                    Some(owner) => Reply::Beat(owner),
                    None if only_one => Reply::Beat(true),
                    // This node lags: it can't tell which of them is right.
                    None => Reply::Unknown,
                }
            } else if gone.contains(&session.id) {
                Reply::Beat(false)
            } else {
                // Its end is being decided: the outcome is unknown.
                Reply::Unknown
            };
            out.push(Output::Reply { ask, reply });
        }
    }
}

/// The secret in each session's heartbeats; `None` if there were several.
fn secrets_by_session(beats: &[(RequestTag, SessionRef)]) -> BTreeMap<SessionId, Option<Secret>> {
    let mut secrets = BTreeMap::new();
    for (_, SessionRef { id, secret }) in beats {
        let known = secrets.entry(*id).or_insert(Some(*secret));
        *known = known.filter(|known| known == secret);
    }
    secrets
}
