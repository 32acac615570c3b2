//! The memory that all connections of a door use together: incomplete requests, unread replies, and
//! whatever else a door keeps for a client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all connections may use together.
pub(crate) const BYTES_MAX: usize = 256 << 20;

/// Bytes that all connections may use that have yet to authenticate: they must not take memory from
/// those that have.
pub(crate) const BYTES_MAX_BEFORE_PASSWORD: usize = 16 << 20;

/// Bytes that a connection may use whatever the others do: lock clients need no more, so that heavy
/// users do not keep them out.
const FREE_BYTES: usize = 8 << 10;

/// The memory used by a group of connections.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    bytes_max: usize,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max })
    }
}

/// The memory used by one connection; returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    counted: usize,
}

impl Share {
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, counted: 0 }
    }

    /// Sets how many bytes the connection uses now. Fails with `OutOfMemory` if all connections
    /// together would use too much; the connection must then be closed.
    pub(crate) fn set(&mut self, bytes: usize) -> io::Result<()> {
        let counted = bytes.saturating_sub(FREE_BYTES);
        let used = &self.memory.used;
        if counted <= self.counted {
            used.fetch_sub(self.counted - counted, Ordering::Relaxed);
        } else {
            let more = counted - self.counted;
            let before = used.fetch_add(more, Ordering::Relaxed);
            if before.saturating_add(more) > self.memory.bytes_max {
                used.fetch_sub(more, Ordering::Relaxed);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.counted = counted;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_share_is_exclusive_until_returned() {
        let memory = Memory::new(100);
        let (mut one, mut two) = (Share::new(memory.clone()), Share::new(memory.clone()));
        one.set(FREE_BYTES + 80).unwrap();
        assert_eq!(two.set(FREE_BYTES + 21).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        two.set(FREE_BYTES + 20).unwrap();
        two.set(FREE_BYTES).unwrap();
        drop(one);
        two.set(FREE_BYTES + 100).unwrap();
        drop(two);
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }
}
