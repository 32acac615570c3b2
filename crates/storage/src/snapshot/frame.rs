//! A frame: a header of 24 bytes and a payload.

use crate::bytes::Reader;
use crate::fault::WriteError;

pub(crate) const HEADER_BYTES: usize = 24;

/// The longest piece: it bounds what a reader, or a node that receives one, must hold in memory.
pub const PIECE_BYTES_MAX: usize = 16 << 20;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The caller's data about the snapshot.
    Meta,
    /// A part of the state.
    Piece,
    /// The last frame; its payload has the number of pieces and their bytes.
    End,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Self::Meta => 1,
            Self::Piece => 2,
            Self::End => 3,
        }
    }

    fn parse(code: u32) -> Option<Self> {
        [Self::Meta, Self::Piece, Self::End].into_iter().find(|kind| kind.code() == code)
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    crc: u32,
    pub(crate) kind: Kind,
    /// The number of a piece; 0 for other kinds.
    pub(crate) number: u64,
    pub(crate) payload_bytes: usize,
}

impl Header {
    pub(crate) fn parse(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader(&bytes);
        let crc = reader.u32()?;
        let kind = Kind::parse(reader.u32()?)?;
        let number = reader.u64()?;
        let payload_bytes = usize::try_from(reader.u64()?).ok()?;
        let header = Self { crc, kind, number, payload_bytes };
        (payload_bytes <= PIECE_BYTES_MAX).then_some(header)
    }

    /// The chain's checksum after this frame, if it is valid and follows the previous one.
    pub(crate) fn verify(self, before: u32, payload: &[u8]) -> Option<u32> {
        let crc = checksum(before, &self.fields(), payload);
        (crc == self.crc).then_some(crc)
    }

    fn fields(self) -> [u8; HEADER_BYTES - 4] {
        let mut fields = [0; HEADER_BYTES - 4];
        let kind = self.kind.code().to_le_bytes();
        let number = self.number.to_le_bytes();
        let length = (self.payload_bytes as u64).to_le_bytes();
        for (field, byte) in fields.iter_mut().zip(kind.iter().chain(&number).chain(&length)) {
            *field = *byte;
        }
        fields
    }
}

/// Appends a frame to `out`, and returns the chain's checksum after it. A payload that no reader
/// would accept is refused.
pub(crate) fn push(
    out: &mut Vec<u8>,
    kind: Kind,
    number: u64,
    before: u32,
    payload: &[u8],
) -> Result<u32, WriteError> {
    if payload.len() > PIECE_BYTES_MAX {
        let text = format!(
            "a piece of the snapshot has {} bytes, and may have {PIECE_BYTES_MAX}",
            payload.len()
        );
        return Err(WriteError::Misuse(text));
    }
    let header = Header { crc: 0, kind, number, payload_bytes: payload.len() };
    let fields = header.fields();
    let crc = checksum(before, &fields, payload);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&fields);
    out.extend_from_slice(payload);
    Ok(crc)
}

fn checksum(before: u32, fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&before.to_le_bytes());
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

/// The payload of the last frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) pieces: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (pieces, total) = (self.pieces.to_le_bytes(), self.bytes.to_le_bytes());
        for (byte, value) in bytes.iter_mut().zip(pieces.iter().chain(&total)) {
            *byte = *value;
        }
        bytes
    }
}
