//! What a real driver does for each node and the gateway in front of it: turns, messages, disk,
//! snapshots.

use super::{Event, World};
use crate::checks::{Applied, damage_is_found, let_go, readable};
use crate::host::{Host, SnapshotInTransit, Written};
use holdfast_core::{Effect, EndReason, SessionId};
use holdfast_node::{Input, LEVEL, NodeId, Output, PeerMessage, Position};
use holdfast_storage::{Fault, WriteError};
use std::time::Duration;

/// A write that found no room is tried again so often.
const DISK_RETRY_US: u64 = 20_000;
/// A write to a slow disk takes at least this long.
const SLOW_US_MIN: u64 = 50_000;
/// A turn that is due at once comes after this.
const TURN_US_MIN: u64 = 10;
/// How likely a node is upgraded when it is started again.
const UPGRADED_PER_MILLE: u64 = 500;
/// A node that did not start is started again so often.
const START_RETRY_US: u64 = 500_000;

impl World {
    pub(super) fn start(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.is_up() || host.damaged || host.removed {
            return;
        }
        // A restart is an opportunity to upgrade.
        if host.level < LEVEL && host.epoch > 0 && self.rng.per_mille(UPGRADED_PER_MILLE) {
            host.level = LEVEL;
            self.trace.say(self.now_us, || format!("node {id} is upgraded"));
        }
        let started = host.start(&mut self.rng);
        let judged = damage_is_found::started(id, started.as_ref().err(), host.flipped.as_deref());
        if let Err(violation) = judged {
            return self.fail(violation);
        }
        match started {
            Ok(()) => {
                let now = host.now(self.now_us);
                host.open_zookeeper(now);
                self.trace.say(self.now_us, || format!("node {id} starts"));
                self.wake(id);
                self.resume_wires();
            }
            Err(fault) => {
                self.trace.say(self.now_us, || format!("node {id} does not start: {fault}"));
                if fault.is_damage() {
                    self.replace(id);
                } else {
                    self.schedule(START_RETRY_US, Event::Restart(id));
                }
            }
        }
    }

    /// Gives a node a turn soon.
    pub(super) fn wake(&mut self, id: NodeId) {
        let in_us = self.rng.range(10, 120);
        self.wake_in(id, in_us);
    }

    fn wake_in(&mut self, id: NodeId, in_us: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.is_up()) else { return };
        let at_us = (self.now_us + in_us).max(host.paused_until_us);
        match host.turn {
            Some((turn_us, _)) if turn_us <= at_us => return,
            Some(later) => {
                self.queue.remove(&later);
            }
            None => {}
        }
        let epoch = host.epoch;
        let key = self.schedule_keyed(at_us - self.now_us, Event::Turn(id, epoch));
        if let Some(host) = self.hosts.get_mut(&id) {
            host.turn = Some(key);
        }
    }

    pub(super) fn turn(&mut self, id: NodeId, epoch: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) else { return };
        host.turn = None;
        if self.now_us < host.paused_until_us {
            return self.wake_in(id, 0);
        }
        let now = host.now(self.now_us);
        if let Host { gateway, node: Some(node), .. } = host {
            gateway.begin_turn(now, node);
        }
        self.take_inbox(id, now);
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let outputs = host.turn(self.now_us);
        let leads = host.node.as_ref().filter(|node| node.is_leader()).map(|node| node.term());
        if let Some(term) = leads {
            self.leads(id, term);
        }
        for output in outputs {
            // What comes after a crash does not happen.
            if self.hosts.get(&id).is_none_or(|host| host.epoch != epoch) {
                return;
            }
            self.output(id, output, now);
        }
        // As in the server: what entries did is told before tasks go on that see it.
        self.deliver_outputs(id, now);
        if let Some(Host { gateway, node: Some(node), .. }) = self.hosts.get_mut(&id) {
            gateway.finish_turn(now, node);
        }
        self.deliver_outputs(id, now);
        self.tick_zookeeper(id, now);
        let cost_us = self.rng.range(1_000, 300_000);
        if let Some(host) = self.hosts.get_mut(&id).filter(|host| self.now_us < host.busy_until_us)
        {
            host.paused_until_us = host.paused_until_us.max(self.now_us + cost_us);
        }
        if let Some(Host { gateway, node: Some(node), .. }) = self.hosts.get_mut(&id) {
            let pause = gateway.pause(now, node);
            let due = self.hosts.get(&id).and_then(|host| host.zookeeper.next_due());
            let pause = due.map_or(pause, |due| pause.min(due.saturating_sub(now)));
            self.wake_in(id, (pause.as_micros() as u64 + 1).max(TURN_US_MIN));
        }
    }

    fn leads(&mut self, id: NodeId, term: u64) {
        match self.checks.leads(id, term, self.now_us) {
            Ok(true) => {
                self.trace.say(self.now_us, || format!("node {id} leads term {term}"));
                self.crash_the_voter(id);
            }
            Ok(false) => {}
            Err(violation) => self.fail(violation),
        }
    }

    fn output(&mut self, id: NodeId, output: Output, now: Duration) {
        match output {
            Output::Send { to, message } => self.send(id, to, &message),
            Output::Persist(persist) => {
                let level = self.hosts.get(&id).map_or(LEVEL, |host| host.level);
                if let Err(violation) = readable::written(id, level, &persist.entries) {
                    return self.fail(violation);
                }
                let idle = self.hosts.get_mut(&id).is_some_and(|host| host.persist(persist));
                if idle {
                    self.begin_persist(id);
                }
            }
            Output::WriteSnapshot(task) => {
                let in_us = self.rng.range(5_000, 200_000);
                let Some(host) = self.hosts.get_mut(&id) else { return };
                host.snapshot = Some(task);
                let epoch = host.epoch;
                self.schedule(in_us, Event::SnapshotDone(id, epoch));
            }
            Output::OfferSnapshot { to, message } => {
                let parcel = self.hosts.get(&id).and_then(|host| host.parcel(message));
                let arrives = parcel.filter(|_| self.network.reaches(id, to));
                match arrives {
                    Some(parcel) => {
                        let in_us = self.rng.range(2_000, 300_000);
                        let parcel = Box::new(parcel);
                        self.schedule(in_us, Event::ParcelArrives { from: id, to, parcel });
                    }
                    None => self.parcel_result(id, to, false),
                }
            }
            Output::Compact(at) => {
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.compact(at);
                    self.stop_if_broken(id);
                }
            }
            Output::Reply { ask, reply } => {
                if let Some(Host { gateway, node: Some(node), .. }) = self.hosts.get_mut(&id) {
                    gateway.reply(ask, reply, now, node);
                }
            }
            Output::Applied { at, effects, digest } => {
                self.applied(id, at, &effects, digest);
                if let Some(Host { gateway, node: Some(node), .. }) = self.hosts.get_mut(&id) {
                    gateway.applied(effects, now, node);
                }
            }
            Output::LostTrack => {
                self.trace.say(self.now_us, || format!("node {id} jumped by snapshot"));
                if let Some(Host { gateway, node: Some(node), .. }) = self.hosts.get_mut(&id) {
                    gateway.lost_track(now, node);
                }
            }
            Output::Stop(why) | Output::Lost(why) => self.stopped(id, &why),
        }
    }

    fn stopped(&mut self, id: NodeId, why: &str) {
        self.trace.say(self.now_us, || format!("node {id} stops: {why}"));
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if why.contains("removed") {
            host.removed = true;
            self.crash(id, false);
        } else {
            self.fail(format!("replicas agree: node {id} stopped: {why}"));
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &PeerMessage) {
        if self.network.holds(from, to) {
            let bytes = message.encode(Vec::new());
            return self.held.push(Event::Deliver { from, to, bytes });
        }
        for in_us in self.network.arrivals_us(&mut self.rng, from, to) {
            self.schedule(in_us, Event::Deliver { from, to, bytes: message.encode(Vec::new()) });
        }
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        // A partition that came meanwhile swallows what is on its way.
        if !self.network.reaches(from, to) {
            return;
        }
        let Some(message) = PeerMessage::decode(bytes) else {
            return self.fail("a message can't be read".to_owned());
        };
        if let Some(host) = self.hosts.get_mut(&to).filter(|host| host.is_up()) {
            host.inputs.push(Input::Peer { from, message });
            self.wake(to);
        }
    }

    /// The connections of a process end with it, and sometimes without; most nodes notice.
    pub(super) fn hang_up(&mut self, from: NodeId) {
        let others: Vec<NodeId> = self.up().into_iter().filter(|id| *id != from).collect();
        for to in others {
            if self.rng.per_mille(800) {
                let in_us = self.rng.range(50, 20_000);
                self.schedule(in_us, Event::HungUp { from, to });
            }
        }
    }

    pub(super) fn peer_hung_up(&mut self, from: NodeId, to: NodeId) {
        if let Some(host) = self.hosts.get_mut(&to).filter(|host| host.is_up()) {
            host.inputs.push(Input::HungUp(from));
            self.wake(to);
        }
    }

    pub(super) fn begin_persist(&mut self, id: NodeId) {
        let slow = self.hosts.get(&id).filter(|host| self.now_us < host.slow_until_us);
        let in_us = match slow.map(|host| host.slow_us_max) {
            Some(slow_us_max) => self.rng.range(SLOW_US_MIN, slow_us_max),
            None => self.rng.range(80, 600),
        };
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let epoch = host.epoch;
        match host.begin_persist() {
            Written::Something => self.schedule(in_us, Event::DiskDone(id, epoch)),
            Written::NoRoom if !std::mem::replace(&mut host.retrying, true) => {
                self.schedule(DISK_RETRY_US, Event::DiskRetry(id, epoch));
                self.wake(id);
            }
            Written::NoRoom | Written::Nothing => {}
        }
        self.stop_if_broken(id);
    }

    pub(super) fn disk_done(&mut self, id: NodeId, epoch: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) else { return };
        host.end_persist();
        self.wake(id);
        self.begin_persist(id);
    }

    pub(super) fn disk_retry(&mut self, id: NodeId, epoch: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) else { return };
        host.retrying = false;
        self.begin_persist(id);
    }

    /// A process whose disk failed stops; what is on disk is known only to the next start.
    pub(super) fn stop_if_broken(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let Some(error) = host.broken.take() else { return };
        self.trace.say(self.now_us, || format!("node {id} stops: {error}"));
        if !host.sync_fails {
            return self.fail(format!("node {id} can't use its disk: {error}"));
        }
        host.sync_fails = false;
        // A file system that can't write its names down goes offline until it is mounted again, and
        // then only what is on disk is there.
        let names =
            matches!(&error, WriteError::Fault(Fault::SyncFailed { file, .. }) if file == ".");
        let power = self.rng.per_mille(500) || names;
        self.crash(id, power);
        let in_us = self.rng.range(5_000, 3_000_000);
        self.schedule(in_us, Event::Restart(id));
    }

    pub(super) fn parcel_arrives(&mut self, from: NodeId, to: NodeId, parcel: SnapshotInTransit) {
        let reaches = self.network.reaches(from, to);
        let host = self.hosts.get_mut(&to).filter(|_| reaches);
        let arrived = host.is_some_and(|host| host.receive(parcel, &mut self.rng));
        self.wake(to);
        self.stop_if_broken(to);
        self.parcel_result(from, to, arrived);
    }

    fn parcel_result(&mut self, from: NodeId, to: NodeId, arrived: bool) {
        if let Some(host) = self.hosts.get_mut(&from).filter(|host| host.is_up()) {
            host.inputs.push(Input::SnapshotSent { to, arrived });
            self.wake(from);
        }
    }

    fn applied(&mut self, id: NodeId, at: Position, effects: &[Effect], digest: u64) {
        self.trace.mix(at.index ^ digest);
        match self.checks.is_news(id, at, digest) {
            Ok(true) => {}
            Ok(false) => return,
            Err(violation) => return self.fail(violation),
        }
        let matters = |effect: &Effect| matches!(effect, Effect::Granted(_) | Effect::Ended(_));
        let beliefs = if effects.iter().any(matters) { self.beliefs() } else { Vec::new() };
        let living: Vec<SessionId> = self.own_sessions().collect();
        let Some(node) = self.hosts.get(&id).and_then(|host| host.node.as_ref()) else { return };
        let state = node.state();
        let (living, now_us) = (living.as_slice(), self.now_us);
        let is_last = node.applied().index == at.index;
        let applied = Applied { at, effects, state, is_last, living, now_us };
        let checked = self.checks.applied(&applied, &beliefs);
        let sound = if at.index.is_multiple_of(64) { state.check() } else { Ok(()) };
        for effect in effects {
            self.trace.note_effect(self.now_us, || {
                format!("node {id} entry {}: {}", at.index, words(effect))
            });
        }
        let closed = effects.iter().filter_map(|effect| match effect {
            Effect::SessionEnded { session, how: EndReason::Closed } => Some(*session),
            _ => None,
        });
        let closer = |session: SessionId| {
            // One that still asks for something closes a session that it had lost.
            let mut closing = self.clients.iter().filter(|client| client.has_closed());
            closing.find(|client| client.opened.values().any(|id| *id == session))
        };
        let left = closed.filter_map(|session| Some((session, closer(session)?.number)));
        let left = left.map(|(session, client)| let_go::closed(state, session, client));
        let left = left.collect::<Result<(), _>>();
        if let Err(violation) = checked.and(sound).and(left) {
            self.fail(violation);
        }
    }

    /// The sessions of the node processes that run.
    fn own_sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        let nodes = self.hosts.values().filter_map(|host| host.node.as_ref());
        nodes.filter_map(|node| Some(node.own_session()?.id))
    }
}

fn words(effect: &Effect) -> String {
    match effect {
        Effect::Granted(grant) => {
            format!("granted {:?} token {}", grant.names.as_slice(), grant.token)
        }
        Effect::Ended(ended) => {
            format!("ended {:?} token {} ({})", ended.names.as_slice(), ended.token, ended.how)
        }
        Effect::SessionEnded { session, how } => format!("session {session} {how}"),
        other => format!("{other:?}"),
    }
}
