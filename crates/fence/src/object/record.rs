//! The body of an object: one header line, then the value unchanged.
//!
//! ```text
//! holdfast-fence/1 exclusive=35 any=35 floor=0 nonce=9f86d081884c7d659a2feaa0c55ad015 value
//! ```
//!
//! The nonce makes every body unique. An ETag may be a hash of the body alone: without the nonce, an
//! object that was changed and changed back would match an old ETag. It also tells a writer whose reply
//! was lost whether what it finds is its own write.

use crate::{Fenced, Highest};
use bytes::Bytes;
use std::fmt::Write;

const MAGIC: &str = "holdfast-fence/1";
/// Longer than any header line: three numbers of up to 20 digits, the nonce and the words.
const LINE_BYTES_MAX: usize = 200;

/// Identifies one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce(u128);

impl Nonce {
    pub(super) fn draw() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_ne_bytes(bytes)))
    }

    /// Some of its bits, for a pause of a random length.
    pub(super) fn low_bits(self) -> u64 {
        self.0 as u64
    }
}

impl std::fmt::Display for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) highest: Highest,
    /// Versions below this number may have been removed. Only the versioned layout uses it.
    pub(super) floor: u64,
    pub(super) nonce: Nonce,
    /// `None` if the fence was raised before anything was written.
    pub(super) value: Option<Bytes>,
}

impl Record {
    pub(super) fn into_fenced(self) -> Fenced {
        Fenced { highest: self.highest, value: self.value }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { highest: Highest { exclusive, any }, floor, nonce, value } = self;
        let kind = if value.is_some() { "value" } else { "empty" };
        let mut line = String::new();
        // Writing to a String can't fail.
        let _ = writeln!(
            line,
            "{MAGIC} exclusive={exclusive} any={any} floor={floor} nonce={nonce} {kind}"
        );
        let mut bytes = line.into_bytes();
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        bytes
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, &'static str> {
        let end = bytes.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
        let end = end.ok_or("it does not begin with the line of a fence")?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| "its first line is not text")?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err("it does not begin with the line of a fence");
        }
        let mut field = |name: &str| {
            let word = words.next()?;
            word.strip_prefix(name)?.strip_prefix('=')
        };
        let incomplete = "its first line is not complete";
        let exclusive = field("exclusive").and_then(|n| n.parse().ok()).ok_or(incomplete)?;
        let any = field("any").and_then(|n| n.parse().ok()).ok_or(incomplete)?;
        let floor = field("floor").and_then(|n| n.parse().ok()).ok_or(incomplete)?;
        let nonce = field("nonce").and_then(|n| u128::from_str_radix(n, 16).ok());
        let nonce = Nonce(nonce.ok_or(incomplete)?);
        let value = match words.next() {
            Some("value") => Some(bytes.slice(end + 1..)),
            Some("empty") if bytes.len() == end + 1 => None,
            _ => return Err(incomplete),
        };
        Ok(Self { highest: Highest { exclusive, any }, floor, nonce, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            exclusive: u64, any: u64, floor: u64, nonce: u128,
            value in proptest::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        ) {
            let highest = Highest { exclusive, any };
            let value = value.map(Bytes::from);
            let record = Record { highest, floor, nonce: Nonce(nonce), value };
            prop_assert_eq!(Record::decode(&record.encode().into()), Ok(record));
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::decode(&bytes.into());
        }

        #[test]
        fn a_record_that_was_cut_off_or_changed_is_no_panic(
            cut in 0usize..120, at in 0usize..120, byte: u8,
        ) {
            let highest = Highest { exclusive: 34, any: 35 };
            let value = Some(Bytes::from_static(b"balance"));
            let mut bytes = Record { highest, floor: 3, nonce: Nonce(7), value }.encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = Record::decode(&bytes.into());
        }
    }
}
