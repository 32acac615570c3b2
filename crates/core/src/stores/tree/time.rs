//! Znodes that expire: containers without children, and those with a TTL.

use super::Tree;
use crate::effect::Effect;
use crate::lines::StoreAccess;

impl Tree {
    /// When the next one expires, in logical time.
    pub(crate) fn first_due_ms(&self) -> Option<u64> {
        self.index.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Removes the one that expires first.
    pub(crate) fn end_first_due(
        &mut self,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((_, path)) = self.index.due.pop_first() {
            let zxid = lines.next_number();
            self.remove(&path, zxid, lines, effects);
        }
    }
}
