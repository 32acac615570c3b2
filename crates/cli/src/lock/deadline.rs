//! When the command must have ended: written by the wrapper, read by every process that guards it.
//!
//! It is shared memory and not a message, so that writing never blocks, nothing queues up for a
//! reader that is stopped, and each reader sees the newest value whatever happened to the others.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Two times and a checksum.
const BYTES: usize = 24;

/// A reader sees a half-written value only while the writer is in the system call.
const READS_MAX: usize = 20;
const READ_AGAIN: Duration = Duration::from_millis(1);

/// Time since the machine booted, sleep included: the same clock for all processes.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// When the command must have ended, unless the lease is renewed first. Times as in [`now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// When it gets SIGTERM.
    pub(super) ask_at: Duration,
    /// When it gets SIGKILL.
    pub(super) kill_at: Duration,
}

impl Deadlines {
    /// In the past: an unreadable value must not keep a command alive.
    const OVER: Self = Self { ask_at: Duration::ZERO, kill_at: Duration::ZERO };

    /// The command is dead by `good_until`, and gets SIGTERM a tenth of the lease earlier.
    pub(super) fn of(good_until: Duration, ttl: Duration) -> Self {
        Self { ask_at: good_until.saturating_sub(ttl / 10), kill_at: good_until }
    }

    /// The lease that a holder can count on. Some engines grant less than the requested TTL: then
    /// the tenth between SIGTERM and SIGKILL is a tenth of what was granted. `certain` is how long
    /// the lease was certainly valid when it was granted, at most nine tenths of it.
    pub(super) fn lease(ttl: Duration, certain: Duration) -> Duration {
        ttl.min(certain.saturating_add(certain / 9))
    }

    fn encode(self) -> [u8; BYTES] {
        let nanos = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let (ask, kill) = (nanos(self.ask_at), nanos(self.kill_at));
        let mut bytes = [0; BYTES];
        for (part, value) in bytes.chunks_exact_mut(8).zip([ask, kill, checksum(ask, kill)]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: [u8; BYTES]) -> Option<Self> {
        let mut values = bytes.chunks_exact(8).map(|part| {
            part.iter().rev().fold(0, |value: u64, byte| value << 8 | u64::from(*byte))
        });
        let (ask, kill) = (values.next()?, values.next()?);
        let whole = values.next()? == checksum(ask, kill);
        let at = Duration::from_nanos;
        whole.then(|| Self { ask_at: at(ask), kill_at: at(kill) })
    }
}

fn checksum(ask: u64, kill: u64) -> u64 {
    !(ask ^ kill.rotate_left(32))
}

/// The deadlines, shared by all processes.
pub(super) struct SharedDeadlines(OwnedFd);

impl SharedDeadlines {
    pub(super) fn new(deadlines: Deadlines) -> io::Result<Self> {
        let shared = Self(memfd_create("holdfast-deadlines", MemfdFlags::CLOEXEC)?);
        shared.write(deadlines)?;
        Ok(shared)
    }

    /// Never blocks.
    pub(super) fn write(&self, deadlines: Deadlines) -> io::Result<()> {
        pwrite(&self.0, &deadlines.encode(), 0)?;
        Ok(())
    }

    /// The newest value; one in the past if it can't be read.
    pub(super) fn read(&self) -> Deadlines {
        for _ in 0..READS_MAX {
            let mut bytes = [0; BYTES];
            match pread(&self.0, &mut bytes, 0).map(|_| Deadlines::decode(bytes)) {
                Ok(Some(deadlines)) => return deadlines,
                Ok(None) => std::thread::sleep(READ_AGAIN),
                Err(_) => break,
            }
        }
        Deadlines::OVER
    }

    /// Whether it is too late to start anything.
    pub(super) fn too_late(&self) -> bool {
        now() >= self.read().ask_at
    }
}

impl From<OwnedFd> for SharedDeadlines {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for SharedDeadlines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_gets_sigterm_before_sigkill() {
        let seconds = Duration::from_secs;
        let deadlines = Deadlines::of(seconds(109), seconds(10));
        assert_eq!(deadlines, Deadlines { ask_at: seconds(108), kill_at: seconds(109) });
    }

    /// ZooKeeper limits session timeouts, to 40s by default, of which two thirds are certain. With
    /// a TTL of ten minutes, the command would have been too late from the start.
    #[test]
    fn lease_shorter_than_the_ttl_is_not_too_late() {
        let (ttl, certain) = (Duration::from_secs(600), Duration::from_secs(27));
        let granted_at = Duration::from_secs(100);
        let deadlines = Deadlines::of(granted_at + certain, Deadlines::lease(ttl, certain));
        assert_eq!(deadlines.ask_at, Duration::from_secs(124));
        assert_eq!(Deadlines::lease(ttl, Duration::from_secs(540)), ttl);
    }

    #[test]
    fn readers_see_the_newest_value() {
        let at = |s| Deadlines::of(Duration::from_secs(s), Duration::from_secs(3));
        let shared = SharedDeadlines::new(at(100)).expect("memory can be shared");
        let copy = shared.as_fd().try_clone_to_owned().expect("a copy can be made");
        let copy = SharedDeadlines::from(copy);
        assert_eq!(copy.read(), at(100));
        shared.write(at(200)).expect("it can be written");
        assert_eq!(copy.read(), at(200));
    }

    #[test]
    fn corrupt_deadline_counts_as_past() {
        let torn = memfd_create("torn", MemfdFlags::CLOEXEC).expect("memory can be shared");
        pwrite(&torn, &[7; BYTES], 0).expect("it can be written");
        assert!(SharedDeadlines::from(torn).too_late());
        let empty = memfd_create("empty", MemfdFlags::CLOEXEC).expect("memory can be shared");
        assert!(SharedDeadlines::from(empty).too_late());
    }
}
