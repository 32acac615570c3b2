//! The invariants that must hold after every command. Tests and the simulator check them; this is
//! far too slow for production.

use super::State;
use crate::lines::ensure;

impl State {
    /// Checks everything; returns the first violation.
    pub fn check(&self) -> Result<(), String> {
        self.lines.check()?;
        self.keys.check(&self.lines)?;
        self.tree.check(&self.lines)?;
        let changes = self.keys.data().changes;
        for (_, ticket) in self.lines.data().tickets.iter() {
            ensure(ticket.relabelled() <= changes, || {
                format!("ticket {}: relabelled too late", ticket.number)
            })?;
        }
        let (weight, counted) = (
            self.lines.weight(),
            self.lines.weigh_all().and(self.keys.weigh_all()).and(self.tree.weigh_all()),
        );
        ensure(weight == counted, || format!("weight {weight:?}, not {counted:?}"))
    }
}
