//! Behaviour levels: at which of them the core began to do something otherwise.

/// From this behaviour level on, a request is known by what it asked for, everything is weighed,
/// the history is bounded in bytes, and a release finds its ticket's end in all of it.
pub(crate) const REQUESTS_LEVEL: u16 = 3;

/// From this behaviour level on, sessions may say which node they are of, and leases may wait for a
/// confirmation. Below it no member asks for either.
pub(crate) const CONFIRMED_LEVEL: u16 = 4;
