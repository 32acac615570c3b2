//! Behaviour levels: from which level on the core behaves differently.

/// From this behaviour level on, a request is identified by what it asked for, everything is
/// weighed, the history is bounded in bytes, and a release finds its ticket's end anywhere in the
/// history.
pub(crate) const REQUESTS_LEVEL: u16 = 3;

/// From this behaviour level on, sessions may say which node they belong to, and leases may wait
/// for a confirmation. Below it no member requests either.
pub(crate) const CONFIRMED_LEVEL: u16 = 4;

/// From this behaviour level on there are znodes. Below it, no member changes any.
pub(crate) const TREE_LEVEL: u16 = 6;

/// From this behaviour level on, a node's own session is opened even if memory is full, and however
/// many sessions there are: without one the node can serve nobody, not even a release.
pub(crate) const NODE_SESSIONS_LEVEL: u16 = 7;

/// From this behaviour level on there are users, roles and the audit. Below it, no member changes any.
pub(crate) const ACCESS_LEVEL: u16 = 8;

/// The level of a new state.
pub(crate) const NEWEST_LEVEL: u16 = ACCESS_LEVEL;
