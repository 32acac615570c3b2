//! Turns a backup into the start of a new cluster.
//!
//! After the backup was taken, the old cluster went on: it drew numbers that the backup does not
//! know, served waiters, and its holders worked. So nothing here may rely on being the only copy:
//! no number is drawn again, nobody is served with a number drawn before, and everything that was
//! held is marked "needs recovery".

use super::Lines;
use super::history::EventKind;
use super::records::Ticket;
use crate::containers::Slot;
use crate::effect::EndReason;
use crate::ids::{SessionId, Token};
use std::fmt;

/// How far the counters move at least: more numbers than a cluster draws between a backup and its
/// restore, at a million a second for twelve days.
const JUMP: u64 = 1 << 40;

/// The numbers of one second of wall time: more than a cluster draws in that second. So two
/// restores of one backup begin at different numbers, 2^20 for each second between them. That many
/// draws later the first one arrives where the second began: numbers below 2^53 leave no room to
/// keep them apart for good.
const PER_SECOND: u64 = 1 << 20;

/// Numbers below this are exact in JSON, where numbers are floating-point.
const EXACT_END: u64 = 1 << 53;

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Sessions that ended: all of them.
    pub sessions_ended: usize,
    /// Waits that ended: all of them.
    pub waits_ended: usize,
    /// Holders that ended, because they had a session lease.
    pub holders_ended: usize,
    /// Holders with a deadline or a permanent lease: they still hold their locks.
    pub still_held: usize,
    /// All tokens from now on are greater than this, and greater than any before.
    pub counter: u64,
}

/// Why a backup can't be restored. The state is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotRestore {
    /// The clock is past the year 2242.
    ClockAhead {
        /// What the clock shows, in seconds since 1970.
        unix_s: u64,
    },
    /// The numbers that are exact in JSON are used up, by thousands of restores.
    NumbersUsedUp,
}

impl fmt::Display for CannotRestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockAhead { unix_s } => {
                write!(f, "the clock is at {unix_s} s since 1970, beyond the year 2242: correct it")
            }
            Self::NumbersUsedUp => f.write_str(
                "no numbers are left below 2^53: begin an empty cluster, and new fences with it",
            ),
        }
    }
}

impl std::error::Error for CannotRestore {}

impl Lines {
    /// See [`State::restore`](crate::State::restore).
    pub(crate) fn restore(&mut self, unix_s: u64) -> Result<Restored, CannotRestore> {
        let counter = moved_on(self.data.counter, unix_s)?;
        let sessions_drawn = moved_on(self.data.sessions_drawn, unix_s)?;
        (self.data.counter, self.data.sessions_drawn) = (counter, sessions_drawn);
        self.data.clock.wall_ms = unix_s.saturating_mul(1_000);
        let waits_ended = self.end_without_serving(|ticket| !ticket.held);
        let holders_ended = self.end_without_serving(|ticket| ticket.bound_session().is_some());
        // The tickets that could have been served are gone.
        self.index.sets.unserved.clear();
        let sessions_ended = self.forget_all_sessions();
        let still_held = self.mark_all_held();
        Ok(Restored { sessions_ended, waits_ended, holders_ended, still_held, counter })
    }

    /// Ends tickets in the order of their numbers, without serving anyone: waiters end first.
    fn end_without_serving(&mut self, ends: impl Fn(&Ticket) -> bool) -> usize {
        let tokens = self.numbers_of(ends);
        let mut unheard = Vec::new();
        for token in &tokens {
            let session = self.ticket(*token).and_then(Ticket::bound_session);
            let dying = session.and_then(|id| self.session(id)?.dying);
            let how = dying.map_or(EndReason::Restored, |dying| dying.how);
            let ended = self.take_out(*token, how, None, true, &mut unheard);
            for slot in ended.iter().flat_map(Ticket::locks) {
                self.drop_lock_if_over(slot);
            }
            unheard.clear();
        }
        tokens.len()
    }

    fn forget_all_sessions(&mut self) -> usize {
        let ids: Vec<SessionId> = self.index.sets.session_ids.iter().copied().collect();
        self.index.sets.dying.clear();
        for id in &ids {
            self.forget_session(*id);
        }
        ids.len()
    }

    /// Marks every lock that is still held. The mark names the holder as if it had ended: the next
    /// holder learns that the cluster was restored in the meantime, even if this one releases
    /// normally. The holder itself may clear the mark.
    fn mark_all_held(&mut self) -> usize {
        let tokens = self.numbers_of(|ticket| ticket.held);
        for token in &tokens {
            let Some(ticket) = self.ticket(*token) else { continue };
            let label = self.label_of(ticket);
            let ending = self.ending(ticket, EndReason::Restored, label.as_ref(), None);
            let slots: Vec<Slot> = ticket.locks().collect();
            for slot in slots {
                let Some(name) = self.data.locks.get(slot).map(|lock| lock.name.clone()) else {
                    continue;
                };
                self.record(name, *token, label.clone(), EventKind::Restored);
                self.mark_dead(slot, &ending);
            }
        }
        tokens.len()
    }

    fn numbers_of(&self, which: impl Fn(&Ticket) -> bool) -> Vec<Token> {
        let tickets = self.data.tickets.iter().map(|(_, ticket)| ticket);
        let mut tokens: Vec<Token> =
            tickets.filter(|ticket| which(ticket)).map(|ticket| ticket.number).collect();
        tokens.sort_unstable();
        tokens
    }
}

/// Where a counter continues: at `max(drawn + JUMP, unix_s * PER_SECOND)`, or, if the counter is
/// ahead of the clock, at the next number from there that belongs to this second. Without that, a
/// backup of a cluster that was restored some days ago would always continue at the same number,
/// whenever it is restored.
fn moved_on(drawn: u64, unix_s: u64) -> Result<u64, CannotRestore> {
    let of_second = unix_s.checked_mul(PER_SECOND).filter(|number| *number < EXACT_END);
    let of_second = of_second.ok_or(CannotRestore::ClockAhead { unix_s })?;
    let least = drawn.saturating_add(JUMP).max(of_second);
    // Two seconds share numbers only if they are twelve days apart, to the second.
    let to_second = of_second.wrapping_sub(least) % JUMP;
    let counter = least.checked_add(to_second).filter(|counter| *counter < EXACT_END);
    counter.ok_or(CannotRestore::NumbersUsedUp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    #[test]
    fn restored_counter_jumps_to_the_clock_or_well_above_itself() {
        assert_eq!(moved_on(0, NOW_S), Ok(NOW_S << 20));
        assert_eq!(moved_on(5_000_000_000, NOW_S), Ok(NOW_S << 20));
        // Without a clock, still above everything that the old cluster may have drawn.
        assert_eq!(moved_on(7, 0), Ok(1 << 41));
    }

    #[test]
    fn repeated_restores_get_different_counters() {
        let restored = moved_on(0, NOW_S).unwrap() + 1_000;
        let mut starts: Vec<u64> =
            (NOW_S..NOW_S + 1_000).map(|unix_s| moved_on(restored, unix_s).unwrap()).collect();
        starts.sort_unstable();
        assert!(starts[0] >= restored + JUMP);
        assert!(starts[999] < restored + 2 * JUMP);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= PER_SECOND));
    }

    #[test]
    fn counters_beyond_exact_json_numbers_are_refused() {
        assert_eq!(moved_on(0, 1 << 33), Err(CannotRestore::ClockAhead { unix_s: 1 << 33 }));
        assert_eq!(moved_on(0, u64::MAX), Err(CannotRestore::ClockAhead { unix_s: u64::MAX }));
        assert_eq!(moved_on(EXACT_END - JUMP, NOW_S), Err(CannotRestore::NumbersUsedUp));
        assert_eq!(moved_on(u64::MAX, NOW_S), Err(CannotRestore::NumbersUsedUp));
        let mut counter = 0;
        for restores in 0..1_000 {
            counter = moved_on(counter, NOW_S + restores).unwrap();
        }
        assert!(counter < EXACT_END);
    }
}
