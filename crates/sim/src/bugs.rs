//! Planted bugs that the checkers must catch, each within a bounded number of seeds.

use crate::host::Host;
use crate::world::{Plan, run};
use holdfast_core::Mistake;
use holdfast_node::NodeMistake;

/// A bug to be planted in every node of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// In the core.
    Core(Mistake),
    /// In the node.
    Node(NodeMistake),
    /// In the driver: it says that something is on disk before it is.
    ReplyBeforeFsync,
    /// In the driver: it tells a caller of its grant before that is confirmed.
    TellUnconfirmed,
}

impl Bug {
    /// Mistakes of the core that show in what clients of a cluster do; its own tests catch more.
    const IN_CORE: [Mistake; 10] = [
        Mistake::ServeTheDead,
        Mistake::TakeNumberTwice,
        Mistake::TakeNumberEarly,
        Mistake::ForgetRequestId,
        Mistake::ReplayGrant,
        Mistake::ReuseToken,
        Mistake::ServeOutOfOrder,
        Mistake::SkipLeaseCheckOnGrant,
        Mistake::LoseCounter,
        Mistake::LoseRequests,
    ];

    pub(crate) fn all() -> Vec<Self> {
        let core = Self::IN_CORE.into_iter().map(Self::Core);
        let node = NodeMistake::ALL.into_iter().map(Self::Node);
        core.chain(node).chain([Self::ReplyBeforeFsync, Self::TellUnconfirmed]).collect()
    }
}

impl Plan {
    pub(crate) fn plant(&self, host: &mut Host) {
        let Some(node) = &mut host.node else { return };
        match self.bug {
            Some(Bug::Core(mistake)) => node.plant_in_core(mistake),
            Some(Bug::Node(mistake)) => node.plant(mistake),
            Some(Bug::ReplyBeforeFsync | Bug::TellUnconfirmed) | None => {}
        }
    }

    pub(crate) fn tells_unconfirmed(&self) -> bool {
        self.bug == Some(Bug::TellUnconfirmed)
    }

    pub(crate) fn replies_before_fsync(&self) -> bool {
        self.bug == Some(Bug::ReplyBeforeFsync)
    }
}

/// Seeds tried for each bug.
const SEEDS_MAX: u64 = 240;

/// The first seed that catches a bug, and how.
pub(crate) fn hunt(bug: Bug) -> Option<(u64, String)> {
    let broken = |seed| run(Plan { seed, bug: Some(bug), ..Plan::default() }).violation;
    (0..SEEDS_MAX).find_map(|seed| broken(seed).map(|violation| (seed, violation)))
}

/// Hunts all bugs, two at a time; returns those that got away.
pub(crate) fn hunt_all(tell: impl Fn(String) + Sync) -> Vec<Bug> {
    let (left, right): (Vec<_>, Vec<_>) =
        Bug::all().into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let hunt_some = |bugs: Vec<(usize, Bug)>| {
        let mut uncaught = Vec::new();
        for (_, bug) in bugs {
            match hunt(bug) {
                Some((seed, violation)) => {
                    tell(format!("{bug:?}: caught at seed {seed}: {violation}"))
                }
                None => uncaught.push(bug),
            }
        }
        uncaught
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| hunt_some(right));
        let mut uncaught = hunt_some(left);
        uncaught.extend(other.join().unwrap_or_default());
        uncaught
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_is_caught() {
        let uncaught = hunt_all(|line| eprintln!("{line}"));
        assert!(uncaught.is_empty(), "not caught within {SEEDS_MAX} seeds: {uncaught:?}");
    }
}
