//! The limits and the number of cases.

use holdfast_core::Limits;

/// Roomy, but what is kept for a while is forgotten within a run.
pub(crate) const ROOMY: Limits =
    Limits { request_alone_kept_ms: 150, death_kept_ms: 250, ..Limits::DEFAULT };

/// Every limit is reached within a run.
pub(crate) const TIGHT: Limits = Limits {
    tickets_max: 10,
    waiters_per_lock_max: 3,
    names_per_ticket_max: 3,
    claims_per_ticket_max: 2,
    sessions_max: 4,
    requests_per_session_max: 4,
    requests_alone_max: 4,
    request_alone_kept_ms: 150,
    deaths_max: 2,
    death_kept_ms: 250,
    register_keys_max: 2,
    objects_max: 1,
    object_bytes_max: 8,
    object_elements_max: 3,
    keys_read_max: 3,
    keys_written_max: 3,
    published_max: 1,
    transaction_bytes_max: 52,
    holders_walked_max: 2,
    nodes_max: 8,
    ephemerals_per_session_max: 3,
    node_ops_max: 2,
    ..Limits::DEFAULT
};
