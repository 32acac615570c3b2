//! A backup begins a new cluster: restored, it draws higher numbers than the old one did, no session and
//! no wait is left, what has a lease of its own is still held, and every lock that was held is marked.

use super::Violation;
use crate::host::LIMITS;
use holdfast_core::{Lease, LockView, State};

/// How far the numbers move at least.
const NUMBERS_APART: u64 = 1 << 40;
/// Locks that are looked at.
const LOCKS_MAX: usize = 1_000;

/// Takes a backup of this state and restores it.
pub(crate) fn judge(state: &State) -> Result<(), Violation> {
    let wrong = |what: String| format!("restored: {what}");
    let pieces: Result<Vec<Vec<u8>>, _> = state.snapshot().pieces().collect();
    let pieces = pieces.map_err(|error| wrong(format!("no backup can be taken: {error:?}")))?;
    let mut restored = State::load(pieces, LIMITS, 1).map_err(|bad| wrong(format!("{bad:?}")))?;
    let before = state.counts().counter;
    restored.restore(1_800_000_000).map_err(|error| wrong(format!("{error:?}")))?;
    restored.check()?;
    let after = restored.counts().counter;
    if after < before + NUMBERS_APART {
        return Err(wrong(format!("numbers go on at {after} after {before}")));
    }
    if let Some((session, _)) = restored.session_ttls().next() {
        return Err(wrong(format!("session {session} lives")));
    }
    let locks = |state: &State| state.list(b"", None, LOCKS_MAX).locks;
    let now = locks(&restored);
    for lock in locks(state).into_iter().filter(|lock| !lock.holders.is_empty()) {
        let Some(now) = now.iter().find(|now| now.name == lock.name) else {
            return Err(wrong(format!("{} is forgotten", lock.name)));
        };
        judge_lock(&lock, now).map_err(wrong)?;
    }
    Ok(())
}

fn judge_lock(before: &LockView, now: &LockView) -> Result<(), String> {
    let name = &before.name;
    if now.waiting > 0 {
        return Err(format!("somebody waits for {name}"));
    }
    if now.needs_recovery.is_none() {
        return Err(format!("{name} was held, and is not marked"));
    }
    for ticket in &before.holders {
        let stays = matches!(ticket.lease, Lease::Deadline { .. } | Lease::Permanent);
        let held = now.holders.iter().any(|held| held.token == ticket.token);
        if stays != held {
            return Err(format!("token {} of {name}: held is {held}", ticket.token));
        }
    }
    Ok(())
}
