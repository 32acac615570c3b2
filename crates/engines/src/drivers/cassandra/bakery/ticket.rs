//! The rules of Lamport's bakery without any I/O: the driver follows them, and `model.rs` checks
//! them.

/// A customer's number and id. The lowest is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket {
    pub(super) number: i64,
    /// Tells customers with the same number apart.
    pub(super) id: i64,
}

/// The number for a customer that sees these numbers.
pub(super) fn next_number(seen: impl IntoIterator<Item = i64>) -> i64 {
    seen.into_iter().max().unwrap_or(0) + 1
}

pub(super) fn must_wait(own: Ticket, other: Ticket) -> bool {
    other < own
}
