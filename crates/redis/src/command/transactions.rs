//! MULTI and related commands.

use super::Command;
use super::table::{ALL, NOWHERE, Spec, spec};
use bytes::Bytes;

/// Transaction commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transactions {
    /// Starts queueing commands.
    Multi,
    /// Runs all queued commands atomically.
    Exec,
    /// Discards the queued commands.
    Discard,
    /// Makes `EXEC` do nothing if one of these keys changes.
    Watch(Vec<Bytes>),
    /// Stops watching all keys.
    Unwatch,
}

const FLAGS: &str = "noscript loading stale fast";

pub(super) const TABLE: &[Spec] = &[
    spec("multi", 1, FLAGS, NOWHERE, "transactions", "Begin a transaction", |_| {
        Ok(Command::Transactions(Transactions::Multi))
    }),
    spec(
        "exec",
        1,
        "noscript loading stale skip_slowlog",
        NOWHERE,
        "transactions",
        "Run the commands of the transaction",
        |_| Ok(Command::Transactions(Transactions::Exec)),
    ),
    spec("discard", 1, FLAGS, NOWHERE, "transactions", "Discard the transaction", |_| {
        Ok(Command::Transactions(Transactions::Discard))
    }),
    spec(
        "watch",
        -2,
        FLAGS,
        ALL,
        "transactions",
        "Make the transaction fail if a key changes",
        |a| Ok(Command::Transactions(Transactions::Watch(a.to_vec()))),
    ),
    spec("unwatch", 1, FLAGS, NOWHERE, "transactions", "Stop watching all keys", |_| {
        Ok(Command::Transactions(Transactions::Unwatch))
    }),
];
