//! Replies come in the order of the requests.

use super::ClientKey;
use crate::checks::Violation;

pub(super) fn replied(client: ClientKey, expected: i32, xid: i32) -> Result<(), Violation> {
    if xid == expected {
        return Ok(());
    }
    Err(format!("replies: client {client:?} got the reply to {xid} before that to {expected}"))
}
