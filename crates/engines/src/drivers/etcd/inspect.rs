//! Who holds a lock, and who is waiting.

use super::calls::LockKeys;
use super::client::Client;
use super::proto::KeyValue;
use crate::error::Error;
use crate::locks::Inspection;
use crate::token::Token;

/// More than anybody wants to look at.
const SHOWN_MAX: i64 = 10_000;

pub(super) async fn inspect(client: &Client, name: &str) -> Result<Option<Inspection>, Error> {
    let line = client.line(&LockKeys::of(name), SHOWN_MAX).await?;
    let Some((holder, waiters)) = line.split_first() else { return Ok(None) };
    Ok(Some(Inspection {
        holder: Some(label(holder)),
        token: Some(Token::new(u64::try_from(holder.create_revision).unwrap_or(0))),
        line: Some(waiters.iter().map(label).collect()),
    }))
}

/// The label of a key's owner. Only this library writes labels: `etcdctl lock` and other clients
/// are identified by their lease.
pub(super) fn label(kv: &KeyValue) -> String {
    if kv.value.is_empty() {
        return format!("lease {:x}", kv.lease);
    }
    String::from_utf8_lossy(&kv.value).into_owned()
}
