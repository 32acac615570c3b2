//! Records in numbered slots, in chunks that snapshots share.
//!
//! A clone copies one pointer per chunk. The first write to a chunk after that copies the chunk. So
//! a snapshot of a million records takes milliseconds, and a later command pays only for the few
//! chunks that it touches.

use std::sync::Arc;

/// Records per chunk. More make the clone cheaper and the first write after it more expensive: 68
/// tickets of 120 bytes just fit into 8 KiB, and a million records are 15,000 pointers to clone.
const CHUNK_LEN: usize = 68;

/// The position of a record. It implies no order: replicas may use different slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The slot after all others: the end of a range.
    pub(crate) const LAST: Self = Self(u32::MAX);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    fn chunk(self) -> usize {
        self.index() / CHUNK_LEN
    }

    fn offset(self) -> usize {
        self.index() % CHUNK_LEN
    }
}

type Chunk<T> = Arc<[Option<T>; CHUNK_LEN]>;

#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    free: Vec<Slot>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T: Clone> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, record: T) -> Slot {
        if self.free.is_empty() {
            self.grow();
        }
        let slot = self.free.pop().unwrap_or(Slot::LAST);
        if let Some(place) = self.place(slot) {
            *place = Some(record);
            self.len = self.len.saturating_add(1);
        }
        slot
    }

    pub(crate) fn extend(&mut self, records: Vec<T>) {
        for record in records {
            self.insert(record);
        }
    }

    fn grow(&mut self) {
        let first = self.chunks.len().saturating_mul(CHUNK_LEN);
        self.chunks.push(Arc::new(std::array::from_fn(|_| None)));
        let slots = first..first.saturating_add(CHUNK_LEN);
        self.free.extend(slots.rev().filter_map(|slot| u32::try_from(slot).ok().map(Slot)));
    }

    fn place(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        Arc::make_mut(self.chunks.get_mut(slot.chunk())?).get_mut(slot.offset())
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.chunks.get(slot.chunk())?.get(slot.offset())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.place(slot)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let record = self.place(slot)?.take()?;
        self.free.push(slot);
        self.len = self.len.saturating_sub(1);
        Some(record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let records = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..).map(Slot).zip(records).filter_map(|(slot, record)| Some((slot, record.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_is_unaffected_by_later_changes() {
        let mut slab = Slab::default();
        let slots: Vec<Slot> = (0..200).map(|n| slab.insert(n)).collect();
        let before = slab.clone();
        for slot in &slots[..100] {
            slab.remove(*slot);
        }
        *slab.get_mut(slots[150]).unwrap() = -1;
        assert_eq!(before.iter().map(|(_, n)| *n).sum::<i32>(), (0..200).sum());
        assert_eq!(slab.len(), 100);
        assert_eq!(slab.get(slots[150]), Some(&-1));
        assert_eq!(before.get(slots[150]), Some(&150));
    }

    #[test]
    fn freed_slots_are_reused() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        slab.remove(first);
        assert_eq!(slab.get(first), None);
        for _ in 0..1000 {
            let slot = slab.insert('b');
            slab.remove(slot);
        }
        assert_eq!(slab.chunks.len(), 1);
    }
}
