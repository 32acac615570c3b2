//! Frames: a four-byte length and that many bytes. A four-letter word may take the place of the
//! first.

use super::jute::Malformed;
use super::request::Connect;
use crate::four_letter::FourLetterWord;
use std::fmt;

/// The longest request in bytes: ZooKeeper's default for `jute.maxbuffer`.
pub const FRAME_BYTES_MAX: usize = 0xf_ffff;

/// A frame that can't be handled: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFrame {
    /// Its length is negative or more than [`FRAME_BYTES_MAX`].
    Length(i32),
    /// The first frame is not a connect request.
    Connect(Malformed),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => {
                write!(f, "invalid request length {len}: the maximum is {FRAME_BYTES_MAX}")
            }
            Self::Connect(malformed) => write!(f, "not a connect request: {malformed}"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// The beginning of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// A connect request.
    Connect(Connect),
    /// A four-letter word.
    FourLetterWord(FourLetterWord),
}

/// Splits received bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How many of the bytes were already returned as frames.
    taken: usize,
}

impl Decoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that were received and not returned yet.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.taken)
    }

    /// The first frame, or the word in its place. `None` if more bytes are needed.
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

    /// The next frame, without its length. `None` if more bytes are needed.
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
