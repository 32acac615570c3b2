//! The virtual network: who reaches whom, how late, how often, how surely.

use crate::rng::Rng;
use holdfast_node::NodeId;
use std::collections::BTreeSet;

/// How a link behaves when nothing else is said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkQuality {
    pub(crate) lost_per_mille: u64,
    pub(crate) doubled_per_mille: u64,
    /// So often a message takes up to `late_ms_max` instead of the usual half millisecond: later
    /// ones overtake it.
    pub(crate) late_per_mille: u64,
    pub(crate) late_ms_max: u64,
}

impl LinkQuality {
    pub(crate) const FINE: Self =
        Self { lost_per_mille: 0, doubled_per_mille: 0, late_per_mille: 0, late_ms_max: 0 };
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) weather: LinkQuality,
    /// Links that carry nothing, each in one direction.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Links that keep what is sent until they go on, as TCP does, each in one direction.
    held: BTreeSet<(NodeId, NodeId)>,
    /// Ways between clients and nodes that keep what is sent, each in one direction: true is to the
    /// node.
    held_clients: BTreeSet<(usize, NodeId, bool)>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let (cut, held, held_clients) = Default::default();
        Self { weather: LinkQuality::FINE, cut, held, held_clients }
    }

    /// After how many microseconds each copy of a message arrives.
    pub(crate) fn arrivals_us(&self, rng: &mut Rng, from: NodeId, to: NodeId) -> Vec<u64> {
        if self.cut.contains(&(from, to)) || rng.per_mille(self.weather.lost_per_mille) {
            return Vec::new();
        }
        let copies = if rng.per_mille(self.weather.doubled_per_mille) { 2 } else { 1 };
        (0..copies).map(|_| self.delay_us(rng)).collect()
    }

    pub(crate) fn delay_us(&self, rng: &mut Rng) -> u64 {
        if rng.per_mille(self.weather.late_per_mille) {
            rng.range(1_000, self.weather.late_ms_max * 1_000 + 2_000)
        } else {
            rng.range(100, 600)
        }
    }

    pub(crate) fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to))
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(crate) fn holds(&self, from: NodeId, to: NodeId) -> bool {
        self.held.contains(&(from, to))
    }

    pub(crate) fn holds_client(&self, client: usize, node: NodeId, up: bool) -> bool {
        self.held_clients.contains(&(client, node, up))
    }

    /// Holds back what a client and a node send to each other, or only one of them.
    pub(crate) fn hold_client(&mut self, client: usize, node: NodeId, up: bool, down: bool) {
        self.held_clients.extend(up.then_some((client, node, true)));
        self.held_clients.extend(down.then_some((client, node, false)));
    }

    pub(crate) fn let_clients_go(&mut self) {
        self.held_clients.clear();
    }

    /// Holds back what one node sends to another.
    pub(crate) fn hold_link(&mut self, from: NodeId, to: NodeId) {
        self.held.insert((from, to));
    }

    /// Cuts a node off from all others; what is held back on its way to it is not lost.
    pub(crate) fn cut_off_but_for_held(&mut self, node: NodeId, all: &[NodeId]) {
        self.cut_off(&[node], all, false);
        self.cut.retain(|link| !self.held.contains(link));
    }

    /// Holds back what is sent to a node, and perhaps what it sends.
    pub(crate) fn hold(&mut self, node: NodeId, all: &[NodeId], both_ways: bool) {
        for other in all.iter().filter(|id| **id != node) {
            self.held.insert((*other, node));
            if both_ways {
                self.held.insert((node, *other));
            }
        }
    }

    pub(crate) fn let_go(&mut self) {
        self.held.clear();
    }

    /// Cuts some off from all others, in both directions or only one.
    pub(crate) fn cut_off(&mut self, some: &[NodeId], all: &[NodeId], one_way: bool) {
        for inside in some {
            for outside in all.iter().filter(|id| !some.contains(id)) {
                self.cut.insert((*inside, *outside));
                if !one_way {
                    self.cut.insert((*outside, *inside));
                }
            }
        }
    }

    /// Two sides that only one node reaches both of.
    pub(crate) fn bridge(&mut self, bridge: NodeId, all: &[NodeId]) {
        let others: Vec<NodeId> = all.iter().copied().filter(|id| *id != bridge).collect();
        let (left, right) = others.split_at(others.len() / 2);
        for a in left {
            for b in right {
                self.cut.insert((*a, *b));
                self.cut.insert((*b, *a));
            }
        }
    }
}
