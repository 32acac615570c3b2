//! How long things may take. Beyond a bound it is a slip of the hand or of the unit, and refused.

use crate::failure::Failure;
use holdfast_core::Wait;

/// The longest TTL of a lock: a year.
const TTL_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// The longest wait without a session: a day. With a request id nobody owns the wait, and only its
/// deadline ends it.
const WAIT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

pub(crate) fn ttl_ms(ms: u64) -> Result<u64, Failure> {
    if (1..=TTL_MS_MAX).contains(&ms) {
        return Ok(ms);
    }
    let message = format!("ttl_ms is {ms}, and must be from 1 to {TTL_MS_MAX}, a year");
    Err(Failure::bad(message, "give milliseconds, for instance 15000; renew while you work"))
}

/// 0 is a try.
pub(crate) fn wait(ms: Option<u64>) -> Result<Wait, Failure> {
    match ms.unwrap_or_default() {
        0 => Ok(Wait::Try),
        ms @ 1..=WAIT_MS_MAX => Ok(Wait::For { ms }),
        ms => Err(Failure::bad(
            format!("wait_ms is {ms}, and must be at most {WAIT_MS_MAX}, a day"),
            "wait for a shorter time, and ask again with the same request_id",
        )),
    }
}

/// How long a holder has that is asked to let go: a year at most, as for a lock.
pub(crate) fn within_ms(ms: u64) -> Result<u64, Failure> {
    if ms <= TTL_MS_MAX {
        return Ok(ms);
    }
    let message = format!("within_ms is {ms}, and must be at most {TTL_MS_MAX}, a year");
    Err(Failure::bad(message, "give milliseconds, for instance 30000"))
}
