//! Makes trouble, and ends it.

use super::{CLIENTS, Event, World, ZOOKEEPER_CLIENTS};
use crate::faults::Fault;
use crate::host::Host;
use crate::network::LinkQuality;
use crate::zookeeper::Client as ZooKeeperClient;
use holdfast_node::{Change, Input, NodeId};
use holdfast_sim_disk::SimFaults;

/// Members at most.
const MEMBERS_MAX: usize = 5;
/// How long a write to a slow disk takes at most.
const SLOW_US_MAX: u64 = 1_500_000;

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
                self.network.weather = LinkQuality {
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
                let number = self.rng.range(0, (CLIENTS + ZOOKEEPER_CLIENTS) as u64) as usize;
                if let Some(client) = self.clients.get_mut(number) {
                    client.paused_until_us = until_us;
                } else if let Some(client) = self.zookeeper_clients.get_mut(number - CLIENTS) {
                    client.paused_until_us = until_us;
                }
            }
            Fault::KillClient => {
                let number = self.rng.range(0, (CLIENTS + ZOOKEEPER_CLIENTS) as u64) as usize;
                match number.checked_sub(CLIENTS) {
                    Some(number) => self.restart_zookeeper_client(number),
                    None => self.restart_client(number),
                }
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

    pub(super) fn slow_down(&mut self, id: NodeId, until_us: u64, slow_us_max: u64) {
        if let Some(host) = self.hosts.get_mut(&id) {
            (host.slow_until_us, host.slow_us_max) = (until_us, slow_us_max);
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

    /// Whether a majority is left without this node, as each node knows the members: one that has not heard
    /// yet that a removal is committed still counts who was removed.
    fn can_do_without(&self, victim: NodeId) -> bool {
        let is_whole = |id: NodeId| {
            let host = self.hosts.get(&id).filter(|_| id != victim);
            host.is_some_and(|host| host.is_up() && !host.removed && !host.damaged)
        };
        let mut nodes = self.hosts.values().filter_map(|host| host.node.as_ref());
        nodes.all(|node| {
            let members = node.cluster().members().iter();
            let voters: Vec<NodeId> = members.filter(|(_, m)| m.votes).map(|(id, _)| *id).collect();
            let whole = voters.iter().filter(|id| is_whole(**id)).count();
            voters.is_empty() || whole * 2 > voters.len()
        })
    }

    /// Flips a bit at rest where the log or a snapshot vouches for it: the node must not start,
    /// and comes back as a new member.
    fn flip_a_bit(&mut self, victim: NodeId) -> bool {
        // A majority must stay whole, or nothing could be promised: no other member may be lost
        // or about to find that it is.
        let unnoticed = |host: &Host| host.flipped.is_some() && !host.damaged && !host.removed;
        let lost = self.hosts.values().any(unnoticed) || !self.changes.is_empty();
        if self.members() < 3 || lost || !self.can_do_without(victim) {
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
        self.network.weather = LinkQuality::FINE;
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
            self.upgrade(id);
            self.start(id);
            self.wake(id);
        }
        for client in &mut self.clients {
            client.paused_until_us = 0;
            client.done = 0;
            // A spell of up to a minute may just have begun: its clients would have nothing to show
            // for the minute in which they are watched.
            client.app.go_on(self.now_us);
        }
        for client in &mut self.zookeeper_clients {
            client.paused_until_us = 0;
            client.done = 0;
        }
        let up = self.up();
        for number in 0..ZOOKEEPER_CLIENTS {
            let knows = |client: &ZooKeeperClient| client.servers.iter().any(|id| up.contains(id));
            if !self.zookeeper_clients.get(number).is_some_and(knows) {
                self.restart_zookeeper_client(number);
            }
            self.wake_zookeeper_client(number);
        }
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
