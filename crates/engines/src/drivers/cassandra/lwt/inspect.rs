//! Who holds a lock. Only the waiters' own processes know who is waiting.

use super::tables::{Tables, token};
use crate::driver::label_of;
use crate::error::Error;
use crate::locks::Inspection;

pub(super) async fn inspect(tables: &Tables, name: &str) -> Result<Option<Inspection>, Error> {
    let Some((holder, _)) = tables.read(name).await? else { return Ok(None) };
    let mark = match &tables.tokens {
        Some(tokens) => tables.mark(tokens, name).await?,
        None => None,
    };
    // Someone who took the lock in cqlsh has no token.
    let own = mark.filter(|mark| mark.holder.as_deref() == Some(holder.as_str()));
    let token = own.map(|mark| token(mark.token));
    Ok(Some(Inspection { holder: Some(label_of(&holder)), token, line: None }))
}
