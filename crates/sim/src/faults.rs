//! What goes wrong, when.

use crate::rng::Rng;
use std::collections::BTreeMap;

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Crash,
    PowerCut,
    Blackout,
    PartitionFull,
    PartitionOneWay,
    PartitionBridge,
    HeldBack,
    VoterCrash,
    Storm,
    SlowDisk,
    SlowDisks,
    PowerCutWhileWriting,
    LongOutage,
    FullDisk,
    SyncError,
    PauseNode,
    BusyNode,
    Idle,
    PauseClient,
    KillClient,
    LostConnections,
    HeldClients,
    LateAnswers,
    BitFlip,
    TransferLeader,
    AddMember,
    RemoveMember,
    Snapshot,
}

impl Fault {
    const ALL: [(Self, u64); 28] = [
        (Self::Crash, 12),
        (Self::PowerCut, 12),
        (Self::Blackout, 8),
        (Self::PartitionFull, 10),
        (Self::PartitionOneWay, 8),
        (Self::PartitionBridge, 5),
        (Self::HeldBack, 10),
        (Self::VoterCrash, 6),
        (Self::Storm, 10),
        (Self::SlowDisk, 8),
        (Self::SlowDisks, 8),
        (Self::PowerCutWhileWriting, 6),
        (Self::LongOutage, 6),
        (Self::FullDisk, 6),
        (Self::SyncError, 5),
        (Self::PauseNode, 10),
        (Self::BusyNode, 6),
        (Self::Idle, 12),
        (Self::PauseClient, 10),
        (Self::KillClient, 6),
        (Self::LostConnections, 10),
        (Self::HeldClients, 12),
        (Self::LateAnswers, 10),
        (Self::BitFlip, 2),
        (Self::TransferLeader, 6),
        (Self::AddMember, 3),
        (Self::RemoveMember, 3),
        (Self::Snapshot, 4),
    ];

    /// Draws one, the common ones more often.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let weights: u64 = Self::ALL.iter().map(|(_, weight)| weight).sum();
        let mut left = rng.range(0, weights);
        for (fault, weight) in Self::ALL {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        Self::Crash
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::PowerCut => "power-cut",
            Self::Blackout => "blackout",
            Self::PartitionFull => "partition",
            Self::PartitionOneWay => "one-way-partition",
            Self::PartitionBridge => "bridge-partition",
            Self::HeldBack => "held-back",
            Self::VoterCrash => "voter-crash",
            Self::Storm => "storm",
            Self::SlowDisk => "slow-disk",
            Self::SlowDisks => "slow-disks",
            Self::PowerCutWhileWriting => "power-cut-while-writing",
            Self::LongOutage => "long-outage",
            Self::FullDisk => "full-disk",
            Self::SyncError => "sync-error",
            Self::PauseNode => "paused-node",
            Self::BusyNode => "busy-node",
            Self::Idle => "idle-spell",
            Self::PauseClient => "paused-client",
            Self::KillClient => "killed-client",
            Self::LostConnections => "lost-connections",
            Self::HeldClients => "held-back-clients",
            Self::LateAnswers => "late-answers",
            Self::BitFlip => "bit-flip",
            Self::TransferLeader => "leader-transfer",
            Self::AddMember => "member-added",
            Self::RemoveMember => "member-removed",
            Self::Snapshot => "snapshot",
        }
    }
}

/// How often each kind happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn count(&mut self, fault: Fault) {
        *self.0.entry(fault.name()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
