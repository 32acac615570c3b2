//! Reads little-endian numbers from byte strings that may be too short; and a block of zeros.

/// For writing runs of zeros, piece by piece.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The unread rest of a byte string.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// `Some` if everything was read: trailing bytes are an error.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// The length without trailing zeros.
pub(crate) fn used_length(bytes: &[u8]) -> usize {
    // Whole blocks at once: a new segment is 64 MiB of zeros.
    const BLOCK: [u8; 4096] = [0; 4096];
    let mut end = bytes.len();
    while let Some(block) = end.checked_sub(BLOCK.len()).and_then(|start| bytes.get(start..end)) {
        if block != BLOCK {
            break;
        }
        end -= BLOCK.len();
    }
    let head = bytes.get(..end).unwrap_or(bytes);
    head.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}
