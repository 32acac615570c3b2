//! Makes calls without a session, and judges what comes of them.

use super::wires::{Down, End, Up, WireId};
use super::{CLIENTS, Event, World};
use crate::checks::{Belief, DOOR};
use crate::raw::{Proof, Raw, RawAnswer, RawCall, RawHolder, RawKind, RawSession};
use crate::redis;
use bytes::Bytes;
use holdfast_core::{Label, LockName, Mode, Secret, SessionRef, Token};
use holdfast_node::NodeId;
use holdfast_proto::v1::{self as proto, outcome_reply, ticket_status};

/// How long a caller holds what it got without a session.
const DOOR_TTL_MS: u64 = 30_000;

const REDIS_TTL_MS: u64 = 5_000;

/// How often a session that is kept alive by hand gets a heartbeat.
pub(super) const HEARTBEATS: u32 = 6;

/// A secret that nobody has.
const WRONG: [u8; 16] = [0xEE; 16];

impl World {
    /// Some caller makes some call.
    pub(super) fn raw(&mut self) {
        let in_us = self.rng.range(50_000, 1_300_000);
        self.schedule(in_us, Event::Raw);
        if self.now_us < self.idle_until_us {
            return;
        }
        match self.rng.range(0, 100) {
            0..28 => self.ask_at_door(None),
            28..38 => self.set_over_redis(),
            38..48 => self.ask_in_pairs(None),
            48..60 => self.ask_with_id(),
            60..68 => self.open_by_hand(HEARTBEATS),
            68..80 => {
                self.raw_call(RawKind::Read, RawCall::Read);
            }
            80..92 => self.show_a_wrong_secret(),
            92..95 => self.revoke(),
            _ => {
                let name = Bytes::from(format!("lock-{}", self.rng.range(0, 4)));
                self.force(name);
            }
        }
    }

    /// Makes a call at any node.
    fn raw_call(&mut self, kind: RawKind, call: RawCall) -> Option<WireId> {
        let nodes = self.known_nodes();
        let node = self.rng.pick(&nodes).copied()?;
        Some(self.raw_call_at(node, kind, call))
    }

    /// Makes a call at that node; some callers hang up soon.
    pub(super) fn raw_call_at(&mut self, node: NodeId, kind: RawKind, call: RawCall) -> WireId {
        self.next_raw += 1;
        let number = self.next_raw;
        let wire = self.connect(End::Raw(number), node);
        let (asked_us, floor) = (self.now_us, self.checks.floor());
        self.raws.insert(number, Raw { kind, wire, asked_us, floor });
        self.send_up(wire, Up::Call(0, call));
        let timeout_us = match self.rng.range(0, 6) {
            0 => self.rng.range(0, 3_000),
            1 => self.rng.range(0, 4_000_000),
            _ => 40_000_000,
        };
        self.schedule(timeout_us, Event::HangUp(number));
        wire
    }

    pub(super) fn raw_hangs_up(&mut self, number: u64) {
        if let Some(raw) = self.raws.remove(&number) {
            self.hang_up_wire(raw.wire);
        }
    }

    fn label(&mut self, kind: &str) -> Option<Label> {
        Label::parse(format!("raw-{kind}-{}", self.next_raw)).ok()
    }

    /// A lock for which only its node's process knows that somebody waits.
    pub(super) fn ask_at_door(&mut self, at: Option<NodeId>) {
        let Ok(name) = LockName::parse(format!("{DOOR}{}", self.rng.range(0, 3))) else { return };
        let Some(label) = self.label("door") else { return };
        let acquire = proto::Acquire {
            names: vec![Bytes::copy_from_slice(name.as_bytes())],
            ttl_ms: Some(DOOR_TTL_MS),
            wait_ms: self.rng.per_mille(700).then(|| self.rng.range(100, 20_000)),
            label: Some(Bytes::copy_from_slice(label.as_bytes())),
            ..proto::Acquire::default()
        };
        let call = proto::AcquireAlone { acquire: Some(acquire), request_id: None };
        let (kind, call) = (RawKind::Door { name, label }, RawCall::Acquire(call));
        match at {
            Some(node) => drop(self.raw_call_at(node, kind, call)),
            None => drop(self.raw_call(kind, call)),
        }
    }

    /// The owner of a session that it keeps alive by hand sends the next heartbeat some time later, often
    /// just as the session runs out.
    fn beat_later(&mut self, session: RawSession, sent_us: u64) {
        let Some(left) = session.left.checked_sub(1) else { return };
        let ttl_us = session.ttl_ms * 1_000;
        let at_us = match self.rng.per_mille(700) {
            true => sent_us + ttl_us + self.rng.range(0, 300_000),
            false => self.now_us + self.rng.range(ttl_us / 5, ttl_us),
        };
        let in_us = at_us.saturating_sub(self.now_us);
        self.schedule(in_us, Event::Heartbeat(Box::new(RawSession { left, ..session })));
    }

    pub(super) fn open_by_hand(&mut self, left: u32) {
        let ttl_ms = self.rng.range(2_000, 3_000);
        self.raw_call(RawKind::Open { ttl_ms, left }, RawCall::Open { ttl_ms });
    }

    /// One of the sessions whose owners send no heartbeat by themselves gets one, at this node.
    pub(super) fn heartbeat_at(&mut self, node: NodeId) {
        if let Some(session) = self.silent_sessions.pop() {
            let call = RawCall::Heartbeat(session.session);
            self.raw_call_at(node, RawKind::Heartbeat(session), call);
        }
    }

    pub(super) fn raw_heartbeat(&mut self, session: RawSession) {
        self.raw_call(RawKind::Heartbeat(session), RawCall::Heartbeat(session.session));
    }

    /// A lock of the Redis door: the same locks as everywhere.
    fn set_over_redis(&mut self) {
        let Ok(name) = LockName::parse(format!("{DOOR}{}", self.rng.range(0, 3))) else { return };
        let value = format!("raw-redis-{}", self.next_raw);
        let request = redis::set(&name, &value, REDIS_TTL_MS);
        let kind = RawKind::RedisSet { name: name.clone(), value: value.clone() };
        self.raw_call(kind, RawCall::Redis { request, name, value });
    }

    /// Two on one connection: what is sent first is taken first.
    pub(super) fn ask_in_pairs(&mut self, at: Option<NodeId>) {
        let acquire = proto::Acquire {
            names: vec![Bytes::from(format!("pair-{}", self.rng.range(0, 3)))],
            mode: proto::Mode::Shared.into(),
            ttl_ms: Some(500),
            ..proto::Acquire::default()
        };
        let call = proto::AcquireAlone { acquire: Some(acquire), request_id: None };
        let first = RawCall::Acquire(call.clone());
        let first = match at {
            Some(node) => Some(self.raw_call_at(node, RawKind::Pair, first)),
            None => self.raw_call(RawKind::Pair, first),
        };
        if let Some(wire) = first {
            self.send_up(wire, Up::Call(1, RawCall::Acquire(call)));
        }
    }

    fn ask_with_id(&mut self) {
        let Some(label) = self.label("id") else { return };
        let key = Bytes::from(format!("request-id-number-{}", self.next_raw));
        let acquire = proto::Acquire {
            names: vec![Bytes::from(format!("id-{}", self.rng.range(0, 3)))],
            ttl_ms: Some(self.rng.range(500, 4_000)),
            wait_ms: self.rng.per_mille(700).then(|| self.rng.range(100, 6_000)),
            label: Some(Bytes::copy_from_slice(label.as_bytes())),
            ..proto::Acquire::default()
        };
        let acquire = proto::AcquireAlone { acquire: Some(acquire), request_id: Some(key.clone()) };
        self.ask_under_id(key, label, acquire);
    }

    fn ask_under_id(&mut self, key: Bytes, label: Label, acquire: proto::AcquireAlone) {
        let kind = RawKind::WithId { key, label, acquire: Box::new(acquire.clone()) };
        self.raw_call(kind.clone(), RawCall::Acquire(acquire));
        let in_us = match self.rng.range(0, 3) {
            0 => self.rng.range(0, 3_000),
            _ => self.rng.range(1_000, 8_000_000),
        };
        self.schedule(in_us, Event::RawAgain(Box::new(kind)));
    }

    /// Something more under the same id, at any node: the same again, something else, or what became of
    /// it.
    pub(super) fn raw_again(&mut self, kind: RawKind) {
        let RawKind::WithId { key, label, acquire } = kind else { return };
        match self.rng.range(0, 4) {
            0 => self.ask_under_id(key, label, *acquire),
            1 => {
                let mut other = *acquire;
                if let Some(acquire) = &mut other.acquire {
                    acquire.names = vec![Bytes::from_static(b"id-other")];
                    acquire.label = None;
                }
                self.raw_call(RawKind::SameId { key }, RawCall::Acquire(other));
            }
            _ => {
                let outcome = proto::OutcomeAlone { request_id: key };
                self.raw_call(RawKind::Outcome { label }, RawCall::Outcome(outcome));
            }
        }
    }

    fn show_a_wrong_secret(&mut self) {
        let number = self.rng.range(0, CLIENTS as u64) as usize;
        let Some(client) = self.clients.get(number) else { return };
        let session = client.opened.last_key_value().map(|(_, id)| *id);
        let guard = client.app.guards.values().next();
        let call = match (session, guard) {
            (_, Some(guard)) if self.rng.per_mille(500) => {
                let secret = Bytes::copy_from_slice(&WRONG);
                RawCall::Release(proto::TicketRef { secret, ..guard.ticket.clone() })
            }
            (Some(id), _) => RawCall::Heartbeat(SessionRef { id, secret: Secret(WRONG) }),
            _ => return,
        };
        self.raw_call(RawKind::WrongSecret, call);
    }

    fn revoke(&mut self) {
        let revoke = proto::RevokeRequest {
            name: Bytes::from(format!("lock-{}", self.rng.range(0, 4))),
            token: None,
            by: Bytes::from_static(b"operator"),
            reason: Bytes::from_static(b"maintenance"),
            within_ms: self.rng.range(100, 3_000),
            force: self.rng.per_mille(500),
        };
        self.raw_call(RawKind::Other, RawCall::Revoke(revoke));
    }

    pub(super) fn force(&mut self, name: Bytes) {
        let force = proto::ForceRequest {
            name,
            token: None,
            by: Bytes::from_static(b"operator"),
            reason: Bytes::from_static(b"stuck"),
        };
        self.raw_call(RawKind::Other, RawCall::Force(force));
    }

    /// Something arrives at such a caller.
    pub(super) fn raw_received(&mut self, number: u64, wire: WireId, frame: Down) {
        let (which, answer) = match frame {
            Down::Answered(which, answer) => (which, answer),
            Down::Connected => return,
            // It may be done or not.
            _ => {
                self.raws.remove(&number);
                return;
            }
        };
        let Some(raw) = self.raws.get(&number) else { return };
        let (kind, asked_us, floor) = (raw.kind.clone(), raw.asked_us, raw.floor);
        self.operations += 1;
        let judged = match (kind, answer) {
            (RawKind::Door { name, .. }, RawAnswer::TicketStatus(now)) => {
                self.door_replied(name, now, asked_us, floor)
            }
            // "Nothing was done", and it never will be.
            (RawKind::Door { label, .. }, RawAnswer::Failed((_, why)))
                if why.starts_with("no_leader:") =>
            {
                self.checks.withdrawn(label)
            }
            (RawKind::Pair, RawAnswer::TicketStatus(now)) => {
                let token = token(&now);
                let drew = |token| self.checks.drew(CLIENTS, token, floor);
                let judged = token.map_or(Ok(()), drew);
                let judged = judged.and_then(|()| self.checks.pair(number, which == 1, token));
                if let Err(violation) = judged {
                    self.fail(violation);
                }
                // It hangs up when it has waited long enough for the other one.
                return;
            }
            (RawKind::WithId { key, .. }, RawAnswer::TicketStatus(now)) => {
                let held = match &now.what {
                    Some(ticket_status::What::Held(grant)) => {
                        self.checks.told_held(Token(grant.token), asked_us)
                    }
                    _ => Ok(()),
                };
                held.and_then(|()| self.checks.under_id(&key, false, token(&now)))
            }
            (RawKind::SameId { key }, RawAnswer::TicketStatus(now)) => {
                self.checks.under_id(&key, true, token(&now))
            }
            (RawKind::Outcome { label }, RawAnswer::Outcome(outcome)) => match outcome.what {
                Some(outcome_reply::What::Never(_)) => self.checks.withdrawn(label),
                _ => Ok(()),
            },
            (
                RawKind::RedisSet { name, value },
                RawAnswer::Redis { done: true, token: Some(token) },
            ) => {
                let until_us = asked_us + REDIS_TTL_MS * 900;
                let (proof, ttl_ms) = (Proof::Value(value), REDIS_TTL_MS);
                self.holds(RawHolder { name, token, proof, until_us, ttl_ms }, floor)
            }
            (RawKind::Open { ttl_ms, left }, RawAnswer::Opened(session)) => {
                let session = RawSession { session, ttl_ms, left };
                match left {
                    0 => self.silent_sessions.push(session),
                    _ => self.beat_later(session, asked_us),
                }
                let session = session.session;
                self.checks.beat(session.id, asked_us, ttl_ms)
            }
            (RawKind::Heartbeat(session), RawAnswer::Alive) => {
                self.beat_later(session, asked_us);
                self.checks.beat(session.session.id, asked_us, session.ttl_ms)
            }
            (RawKind::Read, RawAnswer::Read { counter }) => self.checks.read(counter, floor),
            // A release of what is over is answered alike whatever the secret; that of a held ticket shows
            // in what the guards say.
            (RawKind::WrongSecret, RawAnswer::Alive) => {
                Err("only the owner: a heartbeat with a wrong secret was confirmed".to_owned())
            }
            _ => Ok(()),
        };
        if let Err(violation) = judged {
            return self.fail(violation);
        }
        self.raws.remove(&number);
        self.hang_up_wire(wire);
    }

    /// A caller without a session learns how its ticket stands; if it holds the lock, it lets go some
    /// time later.
    fn door_replied(
        &mut self,
        name: LockName,
        now: proto::TicketStatus,
        asked_us: u64,
        floor: u64,
    ) -> Result<(), String> {
        let Some(ticket_status::What::Held(grant)) = now.what else { return Ok(()) };
        let token = Token(grant.token);
        let waited_us = grant.waited_ms * 990;
        let until_us = asked_us + waited_us + DOOR_TTL_MS * 900;
        let (proof, ttl_ms) = (Proof::Secret(grant.secret), DOOR_TTL_MS);
        self.holds(RawHolder { name, token, proof, until_us, ttl_ms }, floor)
    }

    /// A caller without a session believes that it holds a lock.
    fn holds(&mut self, raw_holder: RawHolder, floor: u64) -> Result<(), String> {
        let token = raw_holder.token;
        // Some hold it for nearly as long as it lasts, and longer than the session of a dead node does.
        let long = raw_holder.ttl_ms == DOOR_TTL_MS && self.rng.per_mille(300);
        let most_us = if long { DOOR_TTL_MS * 850 } else { 4_000_000 };
        let in_us = self.rng.range(1_000, most_us);
        self.raw_holders.insert(token, raw_holder);
        self.schedule(in_us, Event::DoorReleases(token));
        self.checks.drew(CLIENTS, token, floor)?;
        let beliefs = self.beliefs();
        self.checks.guards(&beliefs, self.now_us)
    }

    pub(super) fn door_releases(&mut self, token: Token) {
        let Some(raw_holder) = self.raw_holders.remove(&token) else { return };
        let call = match raw_holder.proof {
            Proof::Secret(secret) => {
                let name = Bytes::copy_from_slice(raw_holder.name.as_bytes());
                RawCall::Release(proto::TicketRef { name, token: token.0, secret })
            }
            Proof::Value(value) => {
                let (name, request) =
                    (raw_holder.name.clone(), redis::release(&raw_holder.name, &value));
                RawCall::Redis { request, name, value }
            }
        };
        self.raw_call(RawKind::Other, call);
    }

    /// Callers without a session that believe now that they hold something.
    pub(super) fn raw_beliefs(&self) -> impl Iterator<Item = Belief> + '_ {
        let now_us = self.now_us;
        self.raw_holders.values().filter(move |raw_holder| now_us < raw_holder.until_us).map(
            |raw_holder| Belief {
                client: CLIENTS,
                name: raw_holder.name.clone(),
                token: raw_holder.token,
                mode: Mode::Exclusive,
                ttl_ms: raw_holder.ttl_ms,
            },
        )
    }
}

fn token(status: &proto::TicketStatus) -> Option<Token> {
    match &status.what {
        Some(ticket_status::What::Held(grant)) => Some(Token(grant.token)),
        Some(ticket_status::What::Waiting(waiting)) => Some(Token(waiting.token)),
        Some(ticket_status::What::Over(over)) => Some(Token(over.token)),
        None => None,
    }
}
