//! Faults that are short stories: several things that must happen within milliseconds of one another
//! before a bug shows.

use super::{Event, World};
use crate::client::Client;
use bytes::Bytes;
use holdfast_client::session::CallId;
use holdfast_core::LockName;
use holdfast_node::NodeId;

/// A write that takes longer than an election timeout makes a leader step down; this one does not.
const SLOW_LEADER_US_MAX: u64 = 400_000;
/// How long a leader's disk is slow for one entry.
const BRIEFLY_SLOW_US_MAX: u64 = 90_000;

impl World {
    /// The leader's disk is slow, and those of others: what it says can be confirmed long before anything
    /// is committed. Sessions run out just then.
    pub(super) fn slow_down_some(&mut self) {
        let (leader, until_us) =
            (self.leader(), self.now_us + self.rng.range(4_000_000, 7_000_000));
        for id in self.up() {
            if Some(id) == leader || self.rng.per_mille(500) {
                self.slow_down(id, until_us, SLOW_LEADER_US_MAX);
            }
        }
        for _ in 0..6 {
            let in_us = self.rng.range(0, 1_500_000);
            self.schedule(in_us, Event::OpenByHand(super::raw::HEARTBEATS));
        }
    }

    /// Power fails while followers write what they received; the leader, which may have it all, comes
    /// back last.
    pub(super) fn cut_power_while_writing(&mut self) {
        let (leader, until_us) = (self.leader(), self.now_us + 3_000_000);
        for id in self.up() {
            if self.rng.per_mille(if Some(id) == leader { 300 } else { 900 }) {
                self.slow_down(id, until_us, SLOW_LEADER_US_MAX);
            }
        }
        let in_us = self.rng.range(300_000, 2_000_000);
        self.schedule(in_us, Event::PowerFails);
    }

    pub(super) fn power_fails(&mut self) {
        let leader = self.leader();
        for id in self.up() {
            self.crash(id, true);
            let least_us = if Some(id) == leader { 2_000_000 } else { 5_000 };
            let in_us = self.rng.range(least_us, least_us + 500_000);
            self.schedule(in_us, Event::Restart(id));
        }
    }

    /// So many nodes are down that nothing can be committed, for longer than a gateway waits. The leader
    /// is still up: what it is asked for at first is in its log, and comes into effect when the others
    /// are back.
    pub(super) fn begin_long_outage(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let others: Vec<NodeId> = self.up().into_iter().filter(|id| *id != leader).collect();
        if others.is_empty() {
            return false;
        }
        for id in others {
            self.crash(id, false);
            let in_us = self.rng.range(10_500_000, 14_000_000);
            self.schedule(in_us, Event::Restart(id));
        }
        for _ in 0..6 {
            let in_us = self.rng.range(1_000, 400_000);
            self.schedule(in_us, Event::AskAtDoor(leader));
        }
        self.undisturbed_until_us = self.now_us + 14_500_000;
        true
    }

    /// A client is told late that its session lives, and then stops: it must have counted from before it
    /// asked.
    pub(super) fn delay_answers(&mut self) -> bool {
        let holds =
            |client: &&Client| client.app.guards.values().any(|guard| guard.lease.is_none());
        let holders: Vec<usize> = self.clients.iter().filter(holds).map(|c| c.number).collect();
        let Some(number) = self.rng.pick(&holders).copied() else { return false };
        let Some(client) = self.clients.get(number) else { return false };
        let (ttl_us, nodes) = (client.ttl_ms * 1_000, client.servers.clone());
        for node in nodes {
            self.network.hold_client(number, node, false, true);
        }
        let late_us = self.rng.range(ttl_us / 8, ttl_us / 3);
        self.schedule(late_us, Event::LetClientsGo);
        self.schedule(late_us + 2_000, Event::PauseClient(number));
        true
    }

    /// A client stops in the moment that suits it least, perhaps for longer than its leases last.
    pub(super) fn pause_client(&mut self, number: usize) {
        let lasting_us = self.rng.range(300_000, 10_000_000);
        if let Some(client) = self.clients.get_mut(number) {
            client.paused_until_us = client.paused_until_us.max(self.now_us + lasting_us);
        }
    }

    /// What is sent to a leader is held back, first only by half of the others, so that it leads on. Then
    /// it is cut off, and while the others have a new leader, it hears what they answered long ago. Some
    /// callers reach the new leader, and then some still reach the old one.
    pub(super) fn hold_back_from_leader(&mut self, victim: NodeId, mut others: Vec<NodeId>) {
        self.silent_sessions.clear();
        let first = self.rng.range(0, others.len() as u64) as usize;
        others.rotate_left(first);
        for slow in others.iter().take(others.len() / 2) {
            self.network.hold_link(*slow, victim);
        }
        let cut_us = self.rng.range(600_000, 1_500_000);
        self.schedule(cut_us, Event::CutOff(victim));
        let late_us = cut_us + self.rng.range(450_000, 850_000);
        self.schedule(late_us, Event::LetGo);
        for _ in 0..4 {
            let other = self.rng.pick(&others).copied().unwrap_or(victim);
            let asked_us = self.rng.range(cut_us + 100_000, cut_us + 350_000);
            self.schedule(asked_us, Event::PairAt(other));
            let asked_us = self.rng.range(cut_us + 280_000, late_us - 60_000);
            self.schedule(asked_us, Event::ReadAt(victim));
            let opened_us = self.rng.range(0, 300_000);
            self.schedule(opened_us, Event::OpenByHand(0));
            let asked_us = self.rng.range(cut_us + 350_000, late_us);
            self.schedule(asked_us, Event::HeartbeatAt(victim));
        }
        let healed_us = late_us + self.rng.range(1_000, 2_000_000);
        self.schedule(healed_us, Event::Heal);
        self.undisturbed_until_us = self.now_us + late_us;
    }

    /// A node is cut off; the others notice that it has hung up.
    pub(super) fn cut_off(&mut self, victim: NodeId) {
        let all: Vec<NodeId> = self.hosts.keys().copied().collect();
        self.network.cut_off_but_for_held(victim, &all);
        for to in self.up().into_iter().filter(|id| *id != victim) {
            let in_us = self.rng.range(50, 20_000);
            self.schedule(in_us, Event::HungUp { from: victim, to });
        }
    }

    /// What comes in the next moment waits for the next entry: the leader's disk is slow for this one.
    fn gather_at_the_leader(&mut self) {
        let until_us = self.now_us + 10_000;
        if let Some(leader) = self.leader() {
            self.slow_down(leader, until_us, BRIEFLY_SLOW_US_MAX);
        }
        self.force(Bytes::from_static(b"nobody"));
    }

    /// An operator breaks a lock in the entry that grants it.
    pub(super) fn break_as_granted(&mut self, name: Bytes) {
        self.gather_at_the_leader();
        let in_us = self.rng.range(3_000, 45_000);
        self.schedule(in_us, Event::Force(name));
    }

    /// A reader leaves: somebody who waits to become the writer gives up in the entry that would serve it.
    pub(super) fn abandon_upgrades(&mut self, name: &LockName) {
        let upgrades = self.clients.iter().flat_map(|client| {
            let calls = client.app.upgrades_of(name);
            calls.map(move |call| (client.number, client.life, call))
        });
        let upgrades: Vec<(usize, u64, CallId)> = upgrades.collect();
        if upgrades.is_empty() || self.rng.per_mille(500) {
            return;
        }
        self.gather_at_the_leader();
        for (client, life, call) in upgrades {
            let in_us = self.rng.range(3_000, 45_000);
            self.schedule(in_us, Event::Abandon { client, life, call });
        }
    }

    pub(super) fn abandon(&mut self, number: usize, life: u64, call: CallId) {
        let Some(client) = self.clients.get_mut(number).filter(|client| client.life == life) else {
            return;
        };
        if let Some(input) = client.app.abandon_if_there(call) {
            client.inputs.push((None, input));
            self.wake_client(number);
        }
    }
}
