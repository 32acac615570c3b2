//! The operator: changes the membership, one step at a time, and replaces what is damaged.

use super::{Event, World};
use crate::host::Host;
use holdfast_node::{Change, LEVEL, NodeId, NotChanged};

impl World {
    /// The operator changes the membership, one step at a time.
    pub(super) fn operate(&mut self) {
        if let Some(change) = self.changes.first().cloned()
            && let Some(leader) = self.leader()
            && let Some(host) = self.hosts.get_mut(&leader)
        {
            host.change(change);
            self.wake(leader);
        }
        self.schedule(700_000, Event::Operate);
    }

    pub(super) fn changed(&mut self, change: &Change, result: &Result<(), NotChanged>) {
        // The word that it was done may have been lost. A new leader that has not applied yet that
        // somebody joined can't promote it, but the next try will.
        let done = match (result, change) {
            (Ok(()), _) => true,
            (Err(NotChanged::Refused(why)), Change::AddLearner { .. } | Change::Promote(_)) => {
                why.contains("already")
            }
            (Err(NotChanged::Refused(_)), Change::Remove(_)) => true,
            (Err(_), _) => false,
        };
        if done && self.changes.first() == Some(change) {
            self.changes.remove(0);
            self.trace.say(self.now_us, || format!("operator: {change:?} {result:?}"));
        }
        let gone = match result {
            Ok(()) => true,
            Err(NotChanged::Refused(why)) => why.contains("no member"),
            Err(_) => false,
        };
        if let Change::Remove(id) = change
            && gone
            && let Some(host) = self.hosts.get_mut(id)
        {
            host.removed = true;
            self.crash(*id, false);
        }
    }

    /// A node that can't be trusted comes back as a new member.
    pub(super) fn replace(&mut self, id: NodeId) {
        let new = self.new_host();
        self.changes.push(Change::AddLearner { node: new, address: format!("node-{new}") });
        self.changes.push(Change::Promote(new));
        self.changes.push(Change::Remove(id));
        self.start(new);
    }

    /// Stops a node whose program is old, so that its next start is with the newest.
    pub(super) fn upgrade(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.level < LEVEL {
            host.level = LEVEL;
            self.crash(id, false);
        }
    }

    /// A node's process ends, or its machine loses its power.
    pub(super) fn crash(&mut self, id: NodeId, power: bool) {
        if let Some(host) = self.hosts.get_mut(&id) {
            host.crash(power, &mut self.rng);
            self.drop_wires_of(id);
        }
    }

    pub(super) fn new_host(&mut self) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.hosts.insert(id, Host::new(id, None, &mut self.rng));
        id
    }

    pub(super) fn members(&self) -> usize {
        self.hosts.values().filter(|host| !host.removed && !host.damaged).count()
    }
}
