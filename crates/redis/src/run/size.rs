//! How large a transaction may be, and how much memory a job may use while it runs.

use crate::error::Error;
use holdfast_core::{InvalidField, Limits, Object, Refusal, Transaction, Write, WriteOp};

/// Bytes that a transaction may take in the log. An entry has 1 MiB, part of which identifies the
/// proposer.
const ENCODED_BYTES_MAX: usize = (1 << 20) - (1 << 12);

/// Bytes of memory for what a running job has written: as much as a script has in Lua.
pub(super) const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// Bytes of all replies of one job. `KEYS` in a database of a million keys stays below this.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 20;

/// What a key that was read, a write, a message and an element take in the log at most, in addition
/// to their text: numbers of up to ten bytes each, and the lengths of the text.
const SEEN_BYTES: usize = 64;
const WRITE_BYTES: usize = 32;
const MESSAGE_BYTES: usize = 8;
const ELEMENT_BYTES: usize = 4;

/// Fails if a transaction can't be proposed: it would not fit into a log entry, or every node would
/// refuse it.
pub(super) fn check(transaction: &Transaction) -> Result<(), Error> {
    let Transaction { seen, writes, publish, .. } = transaction;
    let seen = seen.iter().map(|(name, _)| (name.as_bytes().len(), SEEN_BYTES));
    let writes = writes.iter().map(|Write { name, to }| {
        let (texts, rest) = match to {
            WriteOp::Text { value, .. } | WriteOp::Relabel { value, .. } => {
                (value.as_bytes().len(), 0)
            }
            WriteOp::Object { object, .. } => {
                (object.bytes(), elements(object).saturating_mul(ELEMENT_BYTES))
            }
            WriteOp::Expiring(_) | WriteOp::Gone { .. } => (0, 0),
        };
        (name.as_bytes().len().saturating_add(texts), rest.saturating_add(WRITE_BYTES))
    });
    let publish = publish.iter().map(|(channel, message)| {
        (channel.as_bytes().len().saturating_add(message.as_bytes().len()), MESSAGE_BYTES)
    });
    let (texts, rest) = seen.chain(writes).chain(publish).fold((0_usize, 0_usize), |sum, one| {
        (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
    });
    let too_large = texts > Limits::DEFAULT.transaction_bytes_max
        || texts.saturating_add(rest) > ENCODED_BYTES_MAX;
    if too_large { Err(refused(InvalidField::TransactionTooLarge)) } else { Ok(()) }
}

/// Fails if a hash or list is too large to be written.
pub(super) fn check_object(object: &Object) -> Result<(), Error> {
    let limits = Limits::DEFAULT;
    let too_large =
        object.len() > limits.object_elements_max || object.bytes() > limits.object_bytes_max;
    if too_large { Err(refused(InvalidField::ObjectTooLarge)) } else { Ok(()) }
}

/// The error that the core would return.
pub(super) fn refused(bad: InvalidField) -> Error {
    Error::refused(&Refusal::BadRequest(bad))
}

/// The number of elements; a field and its value count as two.
fn elements(object: &Object) -> usize {
    match object {
        Object::Hash(fields) => fields.len().saturating_mul(2),
        Object::List(items) => items.len(),
    }
}

/// What an element costs in memory in addition to its text.
const KEPT_ELEMENT_BYTES: usize = 64;

/// What a hash or list costs in memory.
pub(super) fn kept_bytes(object: &Object) -> usize {
    object.bytes().saturating_add(elements(object).saturating_mul(KEPT_ELEMENT_BYTES))
}
