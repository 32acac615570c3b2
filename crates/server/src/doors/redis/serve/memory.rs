//! What all connections of the door keep in memory together: requests that are not whole yet,
//! replies that are not read, and what a `MULTI`, a `WATCH` or a `SUBSCRIBE` leaves behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all connections may keep.
pub(super) const BYTES_MAX: usize = 256 << 20;

/// Bytes that all connections may keep that have yet to say the password: they must not take the
/// room of those that have.
pub(super) const BYTES_MAX_BEFORE_PASSWORD: usize = 16 << 20;

/// Bytes that a connection may keep whatever the others do: lock clients need no more, so those
/// that take much do not keep them out.
const FREE_BYTES: usize = 8 << 10;

/// What is kept for all connections.
#[derive(Debug)]
pub(super) struct Memory {
    used: AtomicUsize,
    bytes_max: usize,
}

impl Memory {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max })
    }
}

/// What is kept for one connection; given back when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<Memory>,
    counted: usize,
}

impl Share {
    pub(super) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, counted: 0 }
    }

    /// The connection keeps so many bytes now. An error of the kind `OutOfMemory` if all of them
    /// together would keep too much: then it must end.
    pub(super) fn set(&mut self, bytes: usize) -> io::Result<()> {
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
    fn what_one_takes_others_do_not_have_until_it_is_given_back() {
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
