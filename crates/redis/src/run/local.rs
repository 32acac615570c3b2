//! What a job may ask of the node that it runs on.

use bytes::Bytes;

/// The node around a job: nothing of it is replicated.
pub trait Local {
    /// The wall clock in milliseconds, for times that are given by it.
    fn wall_ms(&self) -> u64;
    /// A random number.
    fn random(&self) -> u64;
    /// How many of this node's connections would hear a message.
    fn subscribers(&self, channel: &[u8]) -> usize;
    /// The channels that somebody listens to here by name, and how many do.
    fn channels(&self) -> Vec<(Bytes, usize)>;
    /// How many patterns somebody listens to here.
    fn patterns(&self) -> usize;
    /// Figures for `INFO`.
    fn facts(&self) -> Facts;
    /// The scripts that this node has seen.
    fn scripts(&self) -> &crate::lua::Scripts;
}

/// Figures for `INFO`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The version of Holdfast.
    pub version: String,
    /// Which port clients of this door use.
    pub port: u16,
    /// What tells one start of a node from another.
    pub run_id: String,
    /// How long it runs.
    pub uptime_s: u64,
    /// Open connections of this door.
    pub clients: usize,
    /// Those that wait in a blocking command.
    pub blocked: usize,
    /// All keys.
    pub keys: usize,
}
