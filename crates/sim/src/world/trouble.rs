//! Makes trouble, and ends it.

use super::{CLIENTS, Event, World};
use crate::client::Client;
use crate::faults::Fault;
use crate::host::Host;
use crate::network::Weather;
use holdfast_node::{Change, Input, NodeId};
use holdfast_sim_disk::SimFaults;

/// Members at most.
const MEMBERS_MAX: usize = 5;
/// How long a write to a slow disk takes at most: one that takes longer than an election timeout makes a
/// leader step down.
const SLOW_US_MAX: u64 = 1_500_000;
const SLOW_LEADER_US_MAX: u64 = 400_000;

impl World {
    pub(super) fn trouble(&mut self) {
        if self.now_us < self.undisturbed_until_us {
            let in_us = self.undisturbed_until_us - self.now_us;
            return self.schedule(in_us, Event::Trouble);
        }
        let fault = Fault::draw(&mut self.rng);
        let victim = match self.rng.per_mille(400).then(|| self.leader()).flatten() {
            Some(leader) => Some(leader),
            None => {
                let up = self.up();
                self.rng.pick(&up).copied()
            }
        };
        if let Some(victim) = victim
            && self.cause(fault, victim)
        {
            self.faults.count(fault);
            self.trace.say(self.now_us, || format!("FAULT {} at node {victim}", fault.name()));
        }
        let in_us = self.rng.range(200_000, 6_000_000);
        self.schedule(in_us, Event::Trouble);
    }

    /// Makes trouble; false if there is none to be made now.
    fn cause(&mut self, fault: Fault, victim: NodeId) -> bool {
        let all: Vec<NodeId> = self.hosts.keys().copied().collect();
        let until_us = self.now_us + self.rng.range(500_000, 8_000_000);
        let lasting = until_us - self.now_us;
        match fault {
            Fault::Crash | Fault::PowerCut => {
                self.crash(victim, fault == Fault::PowerCut);
                // A machine without power says nothing any more.
                if fault == Fault::Crash {
                    self.hang_up(victim);
                }
                // Some come back within the same election.
                let quick = self.rng.per_mille(400);
                let in_us = if quick { self.rng.range(5_000, 400_000) } else { lasting };
                self.schedule(in_us, Event::Restart(victim));
            }
            Fault::Blackout => self.black_out(),
            Fault::PartitionFull | Fault::PartitionOneWay => {
                self.network.cut_off(&[victim], &all, fault == Fault::PartitionOneWay);
                self.schedule(lasting, Event::Heal);
            }
            Fault::PartitionBridge => {
                self.network.bridge(victim, &all);
                self.schedule(lasting, Event::Heal);
            }
            Fault::HeldBack => self.hold_back(victim, &all),
            Fault::VoterCrash => return self.doom_a_voter(victim, lasting),
            Fault::Storm => {
                self.hang_up(victim);
                self.network.weather = Weather {
                    lost_per_mille: self.rng.range(0, 200),
                    doubled_per_mille: self.rng.range(0, 200),
                    late_per_mille: self.rng.range(0, 300),
                    late_ms_max: self.rng.range(1, 2_000),
                };
                self.schedule(lasting, Event::Heal);
            }
            Fault::SlowDisk => {
                self.slow_down(victim, until_us, SLOW_US_MAX);
                // Clients of the others come to a node that lags.
                for id in all.iter().filter(|id| **id != victim) {
                    let in_us = self.rng.range(200_000, 3_000_000);
                    self.schedule(in_us, Event::LoseConnections(*id));
                }
            }
            Fault::SlowDisks => self.slow_down_some(),
            Fault::PowerCutWhileWriting => self.cut_power_while_writing(),
            Fault::LongOutage => return self.begin_long_outage(),
            Fault::FullDisk => {
                // Some file systems need room even where it was taken beforehand.
                let (free, written) = (self.rng.range(0, 6_000), self.rng.range(0, 3_000));
                let anywhere = self.rng.per_mille(500);
                let Some(host) = self.hosts.get_mut(&victim) else { return false };
                host.disk.inject(|faults| {
                    faults.free_bytes = Some(free);
                    faults.write_full_after_bytes = anywhere.then_some(written);
                });
                self.schedule(lasting, Event::HasRoom(victim));
            }
            Fault::SyncError => {
                let after = self.rng.range(0, 5);
                let Some(host) = self.hosts.get_mut(&victim) else { return false };
                host.disk.inject(|faults| faults.sync_error_after = Some(after));
                host.sync_fails = true;
            }
            Fault::PauseNode => {
                if let Some(host) = self.hosts.get_mut(&victim) {
                    host.paused_until_us = until_us;
                }
            }
            Fault::BusyNode => {
                if let Some(host) = self.hosts.get_mut(&victim) {
                    host.busy_until_us = until_us;
                }
            }
            Fault::Idle => {
                if self.now_us < self.idle_until_us {
                    return false;
                }
                self.idle_until_us = self.now_us + self.rng.range(5_000_000, 60_000_000);
            }
            Fault::PauseClient => {
                let number = self.rng.range(0, CLIENTS as u64) as usize;
                if let Some(client) = self.clients.get_mut(number) {
                    client.paused_until_us = until_us;
                }
            }
            Fault::KillClient => {
                let number = self.rng.range(0, CLIENTS as u64) as usize;
                self.restart_client(number);
            }
            Fault::LostConnections => return self.lose_connections(victim),
            Fault::HeldClients => {
                for client in 0..CLIENTS {
                    if self.rng.per_mille(400) {
                        let way = self.rng.range(0, 3);
                        self.network.hold_client(client, victim, way != 1, way != 0);
                    }
                }
                let in_us = self.rng.range(100_000, 15_000_000);
                self.schedule(in_us, Event::LetClientsGo);
            }
            Fault::LateAnswers => return self.delay_answers(),
            Fault::BitFlip => return self.flip_a_bit(victim),
            Fault::TransferLeader => {
                let Some(leader) = self.leader() else { return false };
                if let Some(host) = self.hosts.get_mut(&leader) {
                    host.inputs.push(Input::Transfer(victim));
                    self.wake(leader);
                }
            }
            Fault::AddMember => {
                if self.members() >= MEMBERS_MAX || !self.changes.is_empty() {
                    return false;
                }
                let new = self.new_host();
                self.changes.push(Change::AddLearner { node: new, address: format!("node-{new}") });
                self.changes.push(Change::Promote(new));
                self.start(new);
            }
            Fault::RemoveMember => {
                if self.members() <= 3 || !self.changes.is_empty() {
                    return false;
                }
                self.changes.push(Change::Remove(victim));
            }
            Fault::Snapshot => {
                if let Some(host) = self.hosts.get_mut(&victim).filter(|host| host.is_up()) {
                    host.inputs.push(Input::TakeSnapshot);
                    self.wake(victim);
                }
            }
        }
        true
    }

    pub(super) fn black_out(&mut self) {
        for id in self.up() {
            self.crash(id, true);
            let in_us = self.rng.range(5_000, 2_000_000);
            self.schedule(in_us, Event::Restart(id));
        }
    }

    /// The leader's disk is slow, and those of others: what it says can be confirmed long before anything
    /// is committed. Sessions run out just then.
    fn slow_down_some(&mut self) {
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
    fn cut_power_while_writing(&mut self) {
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

    pub(super) fn slow_down(&mut self, id: NodeId, until_us: u64, slow_us_max: u64) {
        if let Some(host) = self.hosts.get_mut(&id) {
            (host.slow_until_us, host.slow_us_max) = (until_us, slow_us_max);
        }
    }

    /// So many nodes are down that nothing can be committed, for longer than a gateway waits. The leader
    /// is still up: what it is asked for at first is in its log, and comes into effect when the others
    /// are back.
    fn begin_long_outage(&mut self) -> bool {
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
    fn delay_answers(&mut self) -> bool {
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

    /// What is sent to a node is held back, as TCP does, and comes late.
    fn hold_back(&mut self, victim: NodeId, all: &[NodeId]) {
        let others: Vec<NodeId> = self.up().into_iter().filter(|id| *id != victim).collect();
        if self.leader() == Some(victim) && others.len() > 1 {
            return self.hold_back_from_leader(victim, others);
        }
        let both_ways = self.rng.per_mille(500);
        self.network.hold(victim, all, both_ways);
        let in_us = self.rng.range(100_000, 1_300_000);
        self.schedule(in_us, Event::LetGo);
    }

    /// What is sent to a leader is held back, first only by half of the others, so that it leads on. Then
    /// it is cut off, and while the others have a new leader, it hears what they answered long ago. Some
    /// callers reach the new leader, and then some still reach the old one.
    fn hold_back_from_leader(&mut self, victim: NodeId, mut others: Vec<NodeId>) {
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

    /// Two sides that only one node reaches both of, and no leader: whoever wins needs that node's
    /// vote.
    fn doom_a_voter(&mut self, voter: NodeId, lasting_us: u64) -> bool {
        let leader = self.leader().filter(|leader| *leader != voter);
        let Some(leader) = leader else { return false };
        self.crash(leader, false);
        let in_us = self.rng.range(5_000, 400_000);
        self.hang_up(leader);
        self.schedule(in_us, Event::Restart(leader));
        let here = |host: &&Host| !host.removed && !host.damaged;
        let members: Vec<NodeId> = self.hosts.values().filter(here).map(|host| host.id).collect();
        self.network.bridge(voter, &members);
        self.doomed_voter = Some(voter);
        self.schedule(lasting_us.max(4_000_000), Event::Heal);
        true
    }

    /// The voter crashes before it hears of the leader that it made, and wakes up beside another
    /// candidate of the same term: it must remember its vote.
    pub(super) fn crash_the_voter(&mut self, leader: NodeId) {
        let Some(voter) = self.doomed_voter.take_if(|voter| *voter != leader) else { return };
        let all: Vec<NodeId> = self.hosts.keys().copied().collect();
        self.network.cut_off(&[leader], &all, false);
        if self.hosts.get(&voter).is_none_or(|host| !host.is_up()) {
            return;
        }
        let power = self.rng.per_mille(500);
        self.crash(voter, power);
        let in_us = self.rng.range(2_000, 200_000);
        self.schedule(in_us, Event::Restart(voter));
    }

    /// Flips a bit at rest where the log or a snapshot vouches for it: the node must not start,
    /// and comes back as a new member.
    fn flip_a_bit(&mut self, victim: NodeId) -> bool {
        // A majority must stay whole, or nothing could be promised: no other member may be lost
        // or about to find that it is.
        let unnoticed = |host: &Host| host.flipped.is_some() && !host.damaged && !host.removed;
        let lost = self.hosts.values().any(unnoticed) || !self.changes.is_empty();
        if self.members() < 3 || lost {
            return false;
        }
        self.crash(victim, false);
        let Some(host) = self.hosts.get_mut(&victim) else { return false };
        host.flipped = crate::flip::flip(&host.disk, &mut self.rng);
        let flipped = host.flipped.clone();
        self.schedule(1_000_000, Event::Restart(victim));
        self.trace.say(self.now_us, || format!("node {victim}: a bit is flipped in {flipped:?}"));
        flipped.is_some()
    }

    pub(super) fn make_room(&mut self, id: NodeId) {
        if let Some(host) = self.hosts.get(&id) {
            host.disk.inject(|faults| {
                (faults.free_bytes, faults.write_full_after_bytes) = (None, None);
            });
        }
    }

    /// What was held back arrives, late and in order.
    pub(super) fn let_go(&mut self) {
        self.network.let_go();
        for (held, in_us) in std::mem::take(&mut self.held).into_iter().zip(100..) {
            self.schedule(in_us, held);
        }
    }

    /// The ways of clients are open again.
    pub(super) fn let_clients_go(&mut self) {
        self.network.let_clients_go();
        self.resume_wires();
    }

    pub(super) fn heal(&mut self) {
        self.network.heal();
        self.doomed_voter = None;
        self.network.weather = Weather::FINE;
    }

    /// Faults are over: everybody comes back.
    pub(super) fn calm(&mut self) {
        self.heal();
        self.let_go();
        self.let_clients_go();
        self.idle_until_us = 0;
        let over = |event: &Event| {
            matches!(event, Event::Trouble | Event::PowerFails | Event::PauseClient(_))
        };
        self.queue.retain(|_, event| !over(event));
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            if let Some(host) = self.hosts.get_mut(&id) {
                (host.paused_until_us, host.slow_until_us, host.busy_until_us) = (0, 0, 0);
                host.disk.inject(|faults| *faults = SimFaults::default());
            }
            self.start(id);
            self.wake(id);
        }
        for client in &mut self.clients {
            client.paused_until_us = 0;
            client.done = 0;
        }
        let up = self.up();
        for client in 0..CLIENTS {
            // One that knows only nodes that are gone could never come back.
            let known = self.clients.get(client).map(|client| client.servers.clone());
            if !known.is_some_and(|known| known.iter().any(|id| up.contains(id))) {
                self.restart_client(client);
            }
            self.wake_client(client);
        }
    }
}
