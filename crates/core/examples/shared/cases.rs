//! The cases of the footprint: a million of one kind of record each.

use super::{LONG_MS, MILLION, World, acquire, acquire_in, scramble};
use holdfast_core::{Acquire, Lease, Limits, LockName, SessionRef};

/// How many sessions the tickets of a case belong to.
const SESSIONS: usize = 100;

/// What there are a million of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Case {
    /// Held locks that depend on their session's heartbeat and have its label.
    LockSessionLease,
    /// Held locks with a deadline and a label of 16 bytes each.
    LockDeadlineLabel,
    /// Held locks with a deadline and names of 20 bytes.
    LockLongerName,
    /// Waiters in this many lines.
    Waiter { lines: usize },
    /// Sessions without a label.
    Session,
    /// Sessions with a label of 16 bytes each.
    SessionLabel,
}

impl Case {
    pub(crate) const ALL: [Self; 8] = [
        Self::LockSessionLease,
        Self::LockDeadlineLabel,
        Self::LockLongerName,
        Self::Waiter { lines: 1 },
        Self::Waiter { lines: 100 },
        Self::Waiter { lines: 10_000 },
        Self::Session,
        Self::SessionLabel,
    ];

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::LockSessionLease => "lock_session_lease",
            Self::LockDeadlineLabel => "lock_deadline_label_16",
            Self::LockLongerName => "lock_deadline_name_20",
            Self::Waiter { lines: 1 } => "waiter_1_line",
            Self::Waiter { lines: 100 } => "waiter_100_lines",
            Self::Waiter { .. } => "waiter_10000_lines",
            Self::Session => "session",
            Self::SessionLabel => "session_label_16",
        }
    }

    pub(crate) fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.key() == key)
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::LockSessionLease => "held lock, session lease, 100 sessions",
            Self::LockDeadlineLabel => "held lock, deadline, own 16-byte label",
            Self::LockLongerName => "held lock, deadline, 20-byte name",
            Self::Waiter { lines: 1 } => "waiter, all in 1 line",
            Self::Waiter { lines: 100 } => "waiter, in 100 lines",
            Self::Waiter { .. } => "waiter, in 10,000 lines",
            Self::Session => "session",
            Self::SessionLabel => "session with a 16-byte label",
        }
    }

    /// What must exist before the million is added, and is not counted.
    pub(crate) fn ground(self) -> Ground {
        // A line of a million exceeds the limit of a cluster: here it shows how the cost grows.
        let limits = Limits { waiters_per_lock_max: MILLION, ..Limits::DEFAULT };
        let mut world = World::warm(limits);
        let sessions = match self {
            Self::LockSessionLease | Self::Waiter { .. } => world.open_sessions(SESSIONS),
            _ => Vec::new(),
        };
        let lines = match self {
            Self::Waiter { lines } => world.hold(lines).into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        };
        Ground { world, sessions, lines }
    }
}

/// A state to which a million records are to be added.
pub(crate) struct Ground {
    pub(crate) world: World,
    sessions: Vec<SessionRef>,
    lines: Vec<LockName>,
}

impl Ground {
    pub(crate) fn add_million(mut self, case: Case) -> Self {
        for n in 0..MILLION {
            if n.is_multiple_of(1_000) {
                self.world.tick(1);
            }
            self.add(case, n);
        }
        self
    }

    fn add(&mut self, case: Case, n: usize) {
        let world = &mut self.world;
        let lease = Lease::Deadline { ttl_ms: LONG_MS };
        match case {
            Case::LockSessionLease => {
                let name = world.fresh_name();
                world.grant(acquire_in(self.sessions[n % self.sessions.len()], name));
            }
            Case::LockDeadlineLabel => {
                let (name, label) = (world.fresh_name(), Some(world.fresh_label()));
                world.grant(Acquire { lease, label, ..acquire(name) });
            }
            Case::LockLongerName => {
                let name = format!("theatre/seat{:08x}", scramble(n as u32));
                let name = LockName::parse(name).unwrap();
                world.grant(Acquire { lease, ..acquire(name) });
            }
            Case::Waiter { .. } => {
                let name = self.lines[n % self.lines.len()].clone();
                world.wait(acquire_in(self.sessions[n % self.sessions.len()], name));
            }
            Case::Session => {
                world.open_session(None);
            }
            Case::SessionLabel => {
                let label = Some(world.fresh_label());
                world.open_session(label);
            }
        }
    }
}
