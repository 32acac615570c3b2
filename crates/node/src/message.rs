//! What nodes say to each other, and its bounded encoding.

use crate::batch::Item;
use crate::types::RaftMessage;
use holdfast_core::{SessionId, SessionRef};
use serde::{Deserialize, Serialize};

/// Written first in every frame; a frame of an unknown version is dropped.
const VERSION: u8 = 1;

/// The longest frame: some appends of the largest batch, with room for its head.
pub const FRAME_BYTES_MAX: usize = 8 << 20;

/// What one node says to another. Any of it may be lost, doubled or late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage(pub(crate) Say);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Say {
    Raft(RaftMessage),
    /// Proposals for the leader to append.
    Forward(Vec<Item>),
    /// Sessions that were heard of; the leader confirms.
    Heartbeats {
        round: u64,
        sessions: Vec<SessionRef>,
    },
    /// The leader was confirmed after the beats of that round had arrived.
    HeartbeatsConfirmed {
        round: u64,
        alive: Vec<SessionId>,
        gone: Vec<SessionId>,
    },
    /// Proposals for the leader of that term, and for no other: a copy that was held up on its way
    /// while there was no leader is not appended by the next one.
    ForwardIn {
        term: u64,
        items: Vec<Item>,
    },
}

impl PeerMessage {
    /// Appends the message as bytes.
    pub fn encode(&self, mut to: Vec<u8>) -> Vec<u8> {
        to.push(VERSION);
        // Writing to a growing buffer fails only for types that postcard can't write at all.
        postcard::to_extend(&self.0, to).unwrap_or_default()
    }

    /// Reads a message; none if it is not one of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION).then(|| postcard::from_bytes(rest).ok().map(Self))?
    }

    /// A word for it, for traces.
    pub fn word(&self) -> &'static str {
        match &self.0 {
            Say::Raft(message) if !message.entries.is_empty() => "append",
            Say::Raft(_) => "raft",
            Say::Forward(_) | Say::ForwardIn { .. } => "forward",
            Say::Heartbeats { .. } => "beats",
            Say::HeartbeatsConfirmed { .. } => "beats-confirmed",
        }
    }
}
