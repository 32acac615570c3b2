//! Frames: four bytes of length, then so many bytes. The very first may be a four-letter word.

use super::jute::Malformed;
use super::request::Connect;
use crate::four_letter::FourLetterWord;
use std::fmt;

/// Bytes of one request: ZooKeeper's `jute.maxbuffer`.
pub const FRAME_BYTES_MAX: usize = 0xf_ffff;

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFrame {
    /// Its length is below 0 or beyond the bound.
    Length(i32),
    /// The first frame is no connect request.
    Connect(Malformed),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => {
                write!(f, "a request of {len} bytes: the bound is {FRAME_BYTES_MAX}")
            }
            Self::Connect(malformed) => write!(f, "not a connect request: {malformed}"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// A client.
    Connect(Connect),
    /// A question of an operator's.
    FourLetterWord(FourLetterWord),
}

/// Cuts frames out of bytes as they come in.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
}

impl Decoder {
    /// More bytes came in.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are kept for a frame that is not whole.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.taken)
    }

    /// The first frame, or the word in its place; none if more bytes are needed.
    pub fn first(&mut self) -> Result<Option<First>, BadFrame> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        if let Some(word) = rest.first_chunk::<4>().and_then(FourLetterWord::of) {
            self.taken = self.taken.saturating_add(4);
            return Ok(Some(First::FourLetterWord(word)));
        }
        let Some(frame) = self.frame()? else { return Ok(None) };
        Connect::decode(frame)
            .map(|connect| Some(First::Connect(connect)))
            .map_err(BadFrame::Connect)
    }

    /// The next frame without its length; none if more bytes are needed.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, BadFrame> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some(len) = rest.first_chunk::<4>().copied().map(i32::from_be_bytes) else {
            return Ok(None);
        };
        let bytes = usize::try_from(len).ok().filter(|bytes| *bytes <= FRAME_BYTES_MAX);
        let bytes = bytes.ok_or(BadFrame::Length(len))?;
        let end = bytes.saturating_add(4);
        if rest.len() < end {
            return Ok(None);
        }
        let from = self.taken.saturating_add(4);
        self.taken = self.taken.saturating_add(end);
        Ok(self.bytes.get(from..self.taken))
    }
}
