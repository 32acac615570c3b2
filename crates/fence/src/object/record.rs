//! The body of an object: one header line, then the value unchanged.
//!
//! ```text
//! holdfast-fence/1 number=17 exclusive=35 any=35 nonces=9f86d081884c7d65,a3c1... value
//! ```
//!
//! Every write draws a nonce, so every body is unique. An ETag may be a hash of the body alone:
//! without the nonce, an object that was changed and changed back would match an old ETag.
//!
//! A record also lists the nonces of the writes before it. A writer whose reply was lost finds out
//! from any later record whether its own write took effect, even if others have written since.

use crate::{Fenced, Highest};
use bytes::Bytes;
use std::fmt::Write;

const MAGIC: &str = "holdfast-fence/1";
/// How many nonces a record lists: how many writes by others may follow a write before its writer
/// can no longer tell whether it took effect. 64 take about 1 kB.
pub(super) const NONCES_MAX: usize = 64;
/// Longer than any header line: the keywords, three numbers of up to 20 digits, and the nonces.
const LINE_BYTES_MAX: usize = 200 + 17 * NONCES_MAX;

/// Identifies one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce(u64);

impl Nonce {
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        getrandom::u64().map(Self)
    }

    /// A random duration below `limit_ms`.
    pub(super) fn jitter_ms(self, limit_ms: u64) -> u64 {
        self.0 % limit_ms.max(1)
    }
}

impl std::fmt::Display for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a later record reveals about an earlier write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// It took effect, and may have been overwritten since.
    TookEffect,
    /// Another write got its number: it did not take effect and never will.
    Lost,
    /// Its number has not been used yet: it may still take effect.
    Pending,
    /// Too many writes have followed to tell.
    Forgotten,
}

/// One version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Counts the versions of the resource from 1.
    pub(super) number: u64,
    pub(super) highest: Highest,
    /// This write's nonce and those of the versions before it, newest first. Never empty.
    nonces: Vec<Nonce>,
    /// `None` if the fence was raised before anything was written.
    pub(super) value: Option<Bytes>,
}

impl Record {
    /// The version that follows `before`.
    pub(super) fn after(
        before: Option<&Self>,
        highest: Highest,
        nonce: Nonce,
        value: Option<Bytes>,
    ) -> Self {
        let earlier = before.map(|record| &record.nonces[..]).unwrap_or_default();
        let nonces = std::iter::once(nonce).chain(earlier.iter().copied());
        Self {
            number: before.map_or(0, |record| record.number).saturating_add(1),
            highest,
            nonces: nonces.take(NONCES_MAX).collect(),
            value,
        }
    }

    /// What happened to `self`, according to the current record.
    pub(super) fn outcome_of(&self, current: Option<&Self>) -> WriteOutcome {
        let Some(current) = current.filter(|current| current.number >= self.number) else {
            return WriteOutcome::Pending;
        };
        let later = usize::try_from(current.number - self.number).unwrap_or(usize::MAX);
        match current.nonces.get(later) {
            Some(nonce) if *nonce == self.nonces[0] => WriteOutcome::TookEffect,
            Some(_) => WriteOutcome::Lost,
            None => WriteOutcome::Forgotten,
        }
    }

    pub(super) fn into_fenced(self) -> Fenced {
        Fenced { highest: self.highest, value: self.value }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { number, highest: Highest { exclusive, any }, nonces, value } = self;
        let kind = if value.is_some() { "value" } else { "empty" };
        let mut line = String::new();
        // Writing to a String can't fail.
        let _ = write!(line, "{MAGIC} number={number} exclusive={exclusive} any={any} nonces=");
        for (index, nonce) in nonces.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(line, "{comma}{nonce}");
        }
        let _ = writeln!(line, " {kind}");
        let mut bytes = line.into_bytes();
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        bytes
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, &'static str> {
        let foreign = "it does not begin with a fence's header line";
        let end = bytes.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
        let end = end.ok_or(foreign)?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| foreign)?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(foreign);
        }
        let mut field = |name: &str| {
            let word = words.next()?;
            word.strip_prefix(name)?.strip_prefix('=')
        };
        let incomplete = "its header line is incomplete";
        let mut number = |name| field(name).and_then(|n| n.parse().ok()).ok_or(incomplete);
        let (version, exclusive, any) = (number("number")?, number("exclusive")?, number("any")?);
        let nonces = field("nonces").ok_or(incomplete)?.split(',');
        let nonces = nonces.map(|nonce| u64::from_str_radix(nonce, 16).map(Nonce));
        let nonces = nonces.collect::<Result<Vec<_>, _>>().map_err(|_| incomplete)?;
        let value = match words.next() {
            Some("value") => Some(bytes.slice(end + 1..)),
            Some("empty") if bytes.len() == end + 1 => None,
            _ => return Err(incomplete),
        };
        Ok(Self { number: version, highest: Highest { exclusive, any }, nonces, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(before: Option<&Record>, nonce: u64) -> Record {
        Record::after(before, Highest::default(), Nonce(nonce), None)
    }

    #[test]
    fn later_record_shows_the_fate_of_a_write() {
        let first = next(None, 1);
        let mine = next(Some(&first), 2);
        assert_eq!(mine.outcome_of(None), WriteOutcome::Pending);
        assert_eq!(mine.outcome_of(Some(&first)), WriteOutcome::Pending);
        assert_eq!(mine.outcome_of(Some(&mine)), WriteOutcome::TookEffect);
        let theirs = next(Some(&first), 3);
        let (mut after_mine, mut after_theirs) = (mine.clone(), theirs);
        for nonce in 10..10 + NONCES_MAX as u64 - 1 {
            after_mine = next(Some(&after_mine), nonce);
            after_theirs = next(Some(&after_theirs), nonce);
            assert_eq!(mine.outcome_of(Some(&after_mine)), WriteOutcome::TookEffect);
            assert_eq!(mine.outcome_of(Some(&after_theirs)), WriteOutcome::Lost);
        }
        let one_too_many = next(Some(&after_mine), 99);
        assert_eq!(mine.outcome_of(Some(&one_too_many)), WriteOutcome::Forgotten);
    }

    proptest! {
        #[test]
        fn records_survive_a_round_trip(
            number: u64, exclusive: u64, any: u64,
            nonces in prop::collection::vec(any::<u64>(), 1..=NONCES_MAX),
            value in proptest::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        ) {
            let highest = Highest { exclusive, any };
            let nonces = nonces.into_iter().map(Nonce).collect();
            let record = Record { number, highest, nonces, value: value.map(Bytes::from) };
            prop_assert_eq!(Record::decode(&record.encode().into()), Ok(record));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::decode(&bytes.into());
        }

        #[test]
        fn decoding_a_truncated_or_altered_record_does_not_panic(
            cut in 0usize..120, at in 0usize..120, byte: u8,
        ) {
            let highest = Highest { exclusive: 34, any: 35 };
            let value = Some(Bytes::from_static(b"balance"));
            let mut bytes = Record { number: 3, highest, nonces: vec![Nonce(7)], value }.encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = Record::decode(&bytes.into());
        }
    }
}
