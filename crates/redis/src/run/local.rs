//! What a job may ask of the node it runs on.

use bytes::Bytes;

/// The node around a job; none of this is replicated.
pub trait Local {
    /// The wall clock in milliseconds since 1970, for absolute expiry times.
    fn wall_ms(&self) -> u64;
    /// A random number.
    fn random(&self) -> u64;
    /// How many of this node's connections would receive a message.
    fn subscribers(&self, channel: &[u8]) -> usize;
    /// The channels subscribed to by name on this node, with their numbers of subscribers.
    fn channels(&self) -> Vec<(Bytes, usize)>;
    /// How many patterns are subscribed to on this node.
    fn patterns(&self) -> usize;
    /// Figures for `INFO`.
    fn facts(&self) -> NodeFacts;
    /// The scripts that this node has seen.
    fn scripts(&self) -> &crate::lua::Scripts;
}

/// Figures for `INFO`.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// The version of Holdfast.
    pub version: String,
    /// The port of this door.
    pub port: u16,
    /// Identifies one start of a node.
    pub run_id: String,
    /// How long it has been running, in seconds.
    pub uptime_s: u64,
    /// Open connections of this door.
    pub clients: usize,
    /// Connections that are waiting in a blocking command.
    pub blocked: usize,
    /// All keys.
    pub keys: usize,
}
