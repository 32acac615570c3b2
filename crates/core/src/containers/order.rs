//! All lock names in byte order, for listing.
//!
//! Most locks exist only briefly and are never listed. So a new name first goes into a short queue,
//! and only a name that outlives the queue is inserted into the ordered set.

use super::Slot;
use crate::text::LockName;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;

/// How many new names are queued. A listing sorts them, which takes about 50us.
const FRESH_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct NameOrder {
    settled: BTreeSet<LockName>,
    fresh: VecDeque<Fresh>,
    /// By slot: the birth of the lock that is there now, while its name is in the queue. Births
    /// wrap around: in a queue of a thousand, two that are four billion apart can't be confused.
    births: Vec<Option<NonZeroU32>>,
    last_birth: u32,
}

#[derive(Debug)]
struct Fresh {
    birth: NonZeroU32,
    slot: Slot,
    name: LockName,
}

impl NameOrder {
    /// The order of all these names. Sorting them together is far cheaper than inserting them one
    /// by one.
    pub(crate) fn of<'a>(names: impl Iterator<Item = (Slot, &'a LockName)>) -> Self {
        let mut order = Self::default();
        let mut settled = Vec::new();
        for (slot, name) in names {
            order.make_place(slot);
            settled.push(name);
        }
        order.settled = sorted(settled).collect();
        order
    }

    pub(crate) fn insert(&mut self, slot: Slot, name: &LockName) {
        let birth = NonZeroU32::new(self.last_birth.wrapping_add(1)).unwrap_or(NonZeroU32::MIN);
        self.last_birth = birth.get();
        self.make_place(slot);
        self.set(slot, Some(birth));
        self.fresh.push_back(Fresh { birth, slot, name: name.clone() });
        if self.fresh.len() > FRESH_MAX {
            self.settle_oldest();
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot, name: &LockName) {
        if self.births.get(slot.index()) == Some(&None) {
            self.settled.remove(name);
        }
        self.set(slot, None);
    }

    /// Up to `limit` names that start with `prefix` and come after `after`.
    pub(crate) fn page(
        &self,
        prefix: &[u8],
        after: Option<&LockName>,
        limit: usize,
    ) -> Vec<LockName> {
        let comes_after = |name: &LockName| after.is_none_or(|after| name > after);
        let matches = |name: &&LockName| name.as_bytes().starts_with(prefix);
        let fresh =
            self.fresh.iter().filter(|fresh| self.is_current(fresh)).map(|fresh| &fresh.name);
        let mut page: Vec<LockName> =
            fresh.filter(matches).filter(|name| comes_after(name)).cloned().collect();
        let start = LockName::parse(prefix).ok();
        let start = start.as_ref().max(after);
        let settled: Box<dyn Iterator<Item = &LockName>> = match start {
            Some(start) => Box::new(self.settled.range(start.clone()..)),
            None => Box::new(self.settled.iter()),
        };
        page.extend(
            settled.filter(|name| comes_after(name)).take_while(matches).take(limit).cloned(),
        );
        page.sort_unstable();
        page.truncate(limit);
        page
    }

    fn make_place(&mut self, slot: Slot) {
        if self.births.len() <= slot.index() {
            self.births.resize(slot.index().saturating_add(1), None);
        }
    }

    fn settle_oldest(&mut self) {
        let Some(oldest) = self.fresh.pop_front() else { return };
        if self.is_current(&oldest) {
            self.set(oldest.slot, None);
            self.settled.insert(oldest.name);
        }
    }

    fn is_current(&self, fresh: &Fresh) -> bool {
        self.births.get(fresh.slot.index()) == Some(&Some(fresh.birth))
    }

    fn set(&mut self, slot: Slot, birth: Option<NonZeroU32>) {
        if let Some(known) = self.births.get_mut(slot.index()) {
            *known = birth;
        }
    }
}

/// Sorts names. A million of them are scattered across memory, so they are compared by a few bytes
/// each that are copied together first: those after the prefix that all names share. The names
/// themselves are compared only where these bytes are equal.
fn sorted(names: Vec<&LockName>) -> impl Iterator<Item = LockName> {
    let first = names.first().map_or(&[][..], |name| name.as_bytes());
    let alike =
        |name: &LockName| first.iter().zip(name.as_bytes()).take_while(|(a, b)| a == b).count();
    let common = names.iter().map(|name| alike(name)).min().unwrap_or(0);
    let key = |name: &LockName| {
        let mut key = [0; 16];
        for (place, byte) in key.iter_mut().zip(name.as_bytes().iter().skip(common)) {
            *place = *byte;
        }
        u128::from_be_bytes(key)
    };
    let mut keyed: Vec<(u128, LockName)> =
        names.into_iter().map(|name| (key(name), name.clone())).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::Slab;
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    #[test]
    fn recent_and_settled_names_are_listed_in_order() {
        let (mut slab, mut order) = (Slab::default(), NameOrder::default());
        let mut slots = Vec::new();
        for n in 0..3000 {
            let slot = slab.insert(());
            order.insert(slot, &name(&format!("job/{n:04}")));
            slots.push(slot);
        }
        for n in (0..3000).filter(|n| n % 10 != 0) {
            order.remove(slots[n], &name(&format!("job/{n:04}")));
        }
        order.insert(slab.insert(()), &name("zebra"));
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = order.page(b"job/", after.as_ref(), 7);
            let Some(last) = page.last().cloned() else { break };
            seen.extend(page);
            after = Some(last);
        }
        let expected: Vec<_> =
            (0..3000).step_by(10).map(|n| name(&format!("job/{n:04}"))).collect();
        assert_eq!(seen, expected);
        assert_eq!(order.page(b"", None, 10_000).len(), 301);
    }

    #[test]
    fn names_are_sorted_bytewise() {
        let texts = ["job/", "job/1", "job/1\0", "job/10", "job/2", "job/a-long-one/1"];
        let more = ["job/a-long-one/", "job/a-long-one/10", "job/a-long-one/9", "job/\u{ff}"];
        let mut names: Vec<LockName> = texts.iter().chain(&more).map(|text| name(text)).collect();
        for _ in 0..2 {
            let found: Vec<LockName> = sorted(names.iter().rev().collect()).collect();
            let mut expected = names.clone();
            expected.sort();
            assert_eq!(found, expected);
            names.push(name("nothing in common"));
        }
        assert_eq!(sorted(Vec::new()).count(), 0);
    }
}
