//! Who holds a lock, and who is waiting.

use super::calls::Calls;
use crate::error::Error;
use crate::locks::Inspection;
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::Ticket;

pub(super) async fn inspect(calls: &Calls, name: &str) -> Result<Option<Inspection>, Error> {
    let lock = calls.show(&Bytes::copy_from_slice(name.as_bytes())).await?;
    if lock.holders.is_empty() && lock.waiters.is_empty() {
        return Ok(None);
    }
    let label = |ticket: &Ticket| {
        ticket.label.as_deref().map(|label| String::from_utf8_lossy(label).into_owned())
    };
    let holder = lock.holders.first();
    Ok(Some(Inspection {
        holder: holder.and_then(label),
        token: holder.map(|holder| Token::new(holder.token)),
        line: Some(lock.waiters.iter().map(|waiter| label(waiter).unwrap_or_default()).collect()),
    }))
}
