//! Messages between nodes, and their bounded encoding.

use crate::batch::Item;
use crate::types::RaftMessage;
use holdfast_core::{SessionId, SessionRef};
use serde::{Deserialize, Serialize};

/// Written first in every frame; a frame of an unknown version is dropped.
const VERSION: u8 = 1;

/// The longest frame: a few appends of the largest batch, with room for the head.
pub const FRAME_BYTES_MAX: usize = 8 << 20;

/// A message from one node to another. It may be lost, duplicated or delayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage(pub(crate) Body);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Raft(RaftMessage),
    /// Proposals for the leader to append.
    Forward(Vec<Item>),
    /// Heartbeats of sessions, for the leader to confirm.
    Heartbeats {
        round: u64,
        sessions: Vec<SessionRef>,
    },
    /// The leader was confirmed as leader after the heartbeats of that round had arrived.
    HeartbeatsConfirmed {
        round: u64,
        alive: Vec<SessionId>,
        gone: Vec<SessionId>,
    },
    /// Proposals for the leader of that term only: a copy that was delayed while there was no
    /// leader is not appended by the next one.
    ForwardIn {
        term: u64,
        items: Vec<Item>,
    },
}

impl PeerMessage {
    /// Appends the encoded message.
    pub fn encode(&self, mut to: Vec<u8>) -> Vec<u8> {
        to.push(VERSION);
        // Never fails: it is an in-memory buffer, and these types can always be encoded.
        postcard::to_extend(&self.0, to).unwrap_or_default()
    }

    /// Decodes a message; `None` if it is not one of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION).then(|| postcard::from_bytes(rest).ok().map(Self))?
    }

    /// A short name for the kind of message, for traces.
    pub fn word(&self) -> &'static str {
        match &self.0 {
            Body::Raft(message) if !message.entries.is_empty() => "append",
            Body::Raft(_) => "raft",
            Body::Forward(_) | Body::ForwardIn { .. } => "forward",
            Body::Heartbeats { .. } => "beats",
            Body::HeartbeatsConfirmed { .. } => "beats-confirmed",
        }
    }
}
