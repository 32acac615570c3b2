//! The first 32 bytes of every file: its kind and version.
//!
//! They stay the same in all future versions, so that an old program can tell a newer file from a
//! damaged one.

use crate::bytes::Reader;
use crate::fault::Fault;

pub(crate) const PREAMBLE_BYTES: usize = 32;

/// The kind of file, and the version of what follows the preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) magic: [u8; 8],
    /// The version that this program writes, and the latest that it reads.
    pub(crate) version: u32,
}

/// The start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) version: u32,
    /// Two numbers whose meaning depends on the kind of file.
    pub(crate) first: u64,
    pub(crate) second: u64,
}

/// Why a file does not start with the expected preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPreamble {
    /// The bytes are wrong.
    Bad,
    /// They are right, but of a newer version.
    Later(u32),
}

impl NoPreamble {
    pub(crate) fn fault(self, file: &str, known: u32) -> Fault {
        match self {
            Self::Bad => Fault::damaged(file, 0, "its first 32 bytes are wrong"),
            Self::Later(found) => Fault::LaterVersion { file: file.to_owned(), found, known },
        }
    }
}

impl Preamble {
    pub(crate) fn encode(self, format: Format) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        let fields = [
            &format.magic[..],
            &self.version.to_le_bytes(),
            &self.crc(format.magic).to_le_bytes(),
            &self.first.to_le_bytes(),
            &self.second.to_le_bytes(),
        ];
        for (byte, value) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *byte = *value;
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8], format: Format) -> Result<Self, NoPreamble> {
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(NoPreamble::Bad)?;
        let (preamble, crc) = Self::fields(rest).ok_or(NoPreamble::Bad)?;
        if *magic != format.magic || crc != preamble.crc(*magic) {
            return Err(NoPreamble::Bad);
        }
        if preamble.version > format.version {
            return Err(NoPreamble::Later(preamble.version));
        }
        Ok(preamble)
    }

    fn fields(bytes: &[u8]) -> Option<(Self, u32)> {
        let mut reader = Reader(bytes);
        let version = reader.u32()?;
        let crc = reader.u32()?;
        let first = reader.u64()?;
        Some((Self { version, first, second: reader.u64()? }, crc))
    }

    /// The checksum over everything but itself.
    pub(crate) fn crc(self, magic: [u8; 8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&magic);
        hasher.update(&self.version.to_le_bytes());
        hasher.update(&self.first.to_le_bytes());
        hasher.update(&self.second.to_le_bytes());
        hasher.finalize()
    }
}
