//! A record: a header of 40 bytes, a payload, and zeros up to a multiple of 8.
//!
//! A record can be validated by itself, without the previous one: after a bad record, later ones
//! must still be able to tell whether it was synced. And it can't be mistaken for a record of
//! another location or another time: its checksum covers its location, its number and the checksum
//! of the previous record.

use super::state::{HardState, LogState, Position};
use crate::bytes::Reader;

pub(crate) const HEADER_BYTES: usize = 40;

/// Records start at multiples of this, so that a search for them need not look at every byte.
pub(crate) const ALIGN: usize = 8;

/// An entry's fields, before its data.
const ENTRY_FIELDS_BYTES: usize = 17;

/// The longest entry: far above any batch, and it keeps a record's length within 32 bits.
pub const ENTRY_BYTES_MAX: usize = 256 << 20;

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// The first record of every segment: the state of the log at that point, so that earlier
    /// segments can be deleted.
    Head(LogState),
    /// A Raft entry; it replaces any entry at its index and all after it.
    Entry {
        index: u64,
        term: u64,
        kind: u8,
        bytes: &'a [u8],
    },
    HardState(HardState),
    /// A snapshot includes everything up to this position; later entries stay.
    Compacted(Position),
    /// A snapshot includes everything up to this position; nothing else stays.
    Reset(Position),
    /// No content: only states up to where the log was synced.
    Synced,
}

const HEAD: u8 = 1;
const ENTRY: u8 = 2;
const HARD_STATE: u8 = 3;
const COMPACTED: u8 = 4;
const RESET: u8 = 5;
const SYNCED: u8 = 6;

impl<'a> Body<'a> {
    fn kind(self) -> u8 {
        match self {
            Self::Head(_) => HEAD,
            Self::Entry { .. } => ENTRY,
            Self::HardState(_) => HARD_STATE,
            Self::Compacted(_) => COMPACTED,
            Self::Reset(_) => RESET,
            Self::Synced => SYNCED,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Head(_) => "head",
            Self::Entry { .. } => "entry",
            Self::HardState(_) => "hard state",
            Self::Compacted(_) => "compacted",
            Self::Reset(_) => "reset",
            Self::Synced => "synced",
        }
    }

    /// Whether anything would be lost without it.
    pub(crate) fn is_content(self) -> bool {
        !matches!(self, Self::Head(_) | Self::Synced)
    }

    fn payload_bytes(self) -> usize {
        match self {
            Self::Head(_) => 48,
            Self::Entry { bytes, .. } => ENTRY_FIELDS_BYTES + bytes.len(),
            Self::HardState(_) => 24,
            Self::Compacted(_) | Self::Reset(_) => 16,
            Self::Synced => 0,
        }
    }

    /// The size of the record on disk.
    pub(crate) fn record_bytes(self) -> usize {
        (HEADER_BYTES + self.payload_bytes()).next_multiple_of(ALIGN)
    }

    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Head(log_state) => {
                let LogState { compacted, last_index, hard_state } = log_state;
                put(out, [compacted.index, compacted.term, last_index]);
                put(out, hard_state.fields());
            }
            Self::Entry { index, term, kind, bytes } => {
                put(out, [index, term]);
                out.push(kind);
                out.extend_from_slice(bytes);
            }
            Self::HardState(hard_state) => put(out, hard_state.fields()),
            Self::Compacted(position) | Self::Reset(position) => {
                put(out, [position.index, position.term]);
            }
            Self::Synced => {}
        }
    }

    fn parse(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let body = match kind {
            HEAD => Self::Head(LogState {
                compacted: position(&mut reader)?,
                last_index: reader.u64()?,
                hard_state: hard_state(&mut reader)?,
            }),
            ENTRY => Self::Entry {
                index: reader.u64()?,
                term: reader.u64()?,
                kind: reader.u8()?,
                bytes: reader.rest(),
            },
            HARD_STATE => Self::HardState(hard_state(&mut reader)?),
            COMPACTED => Self::Compacted(position(&mut reader)?),
            RESET => Self::Reset(position(&mut reader)?),
            SYNCED => Self::Synced,
            _ => return None,
        };
        reader.end().map(|()| body)
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, fields: [u64; N]) {
    out.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
}

fn position(reader: &mut Reader<'_>) -> Option<Position> {
    Some(Position { index: reader.u64()?, term: reader.u64()? })
}

fn hard_state(reader: &mut Reader<'_>) -> Option<HardState> {
    Some(HardState { term: reader.u64()?, vote: reader.u64()?, commit: reader.u64()? })
}

/// Identifies a segment of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentId {
    pub(crate) segment: u64,
    /// A number unique to the log. Someone who can choose an entry's data, but does not know the
    /// salt, can't hide something in it that passes for a record.
    pub(crate) salt: u64,
}

impl SegmentId {
    /// Differs for every offset of every segment of every log.
    fn place(self, offset: usize) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.salt.to_le_bytes());
        hasher.update(&self.segment.to_le_bytes());
        hasher.update(&(offset as u64).to_le_bytes());
        hasher.finalize()
    }
}

/// The end of the chain of records, which the next one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    /// The number of the next record.
    pub(crate) number: u64,
    /// The checksum of the last record.
    pub(crate) crc: u32,
}

/// Appends a record to `out`, to be written at `offset` of its segment. All records below the
/// number `synced` are on disk. Returns the new end of the chain.
pub(crate) fn push(
    out: &mut Vec<u8>,
    home: SegmentId,
    offset: usize,
    tip: Tip,
    synced: u64,
    body: Body<'_>,
) -> Tip {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&home.place(offset).to_le_bytes());
    out.extend_from_slice(&tip.crc.to_le_bytes());
    out.extend_from_slice(&(body.payload_bytes() as u32).to_le_bytes());
    put(out, [tip.number, synced, u64::from(body.kind())]);
    body.encode(out);
    out.resize(start + body.record_bytes(), 0);
    let crc = out.get(start + 4..).map_or(0, crc32fast::hash);
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
    Tip { number: tip.number + 1, crc }
}

/// A record with a valid checksum, at the location where it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) number: u64,
    pub(crate) synced: u64,
    before: u32,
    crc: u32,
    kind: u64,
    payload: &'a [u8],
    /// Its length, including padding.
    pub(crate) bytes: usize,
}

impl<'a> Record<'a> {
    /// The record at that offset of the segment, if there is a valid one.
    pub(crate) fn at(segment: &'a [u8], offset: usize, home: SegmentId) -> Option<Self> {
        let from = segment.get(offset..)?;
        let mut header = Reader(from.get(..HEADER_BYTES)?);
        let crc = header.u32()?;
        // Cheap checks first: a search tries every offset, and in a long run of bytes that resemble
        // records, each checksum would cover all the rest.
        if header.u32()? != home.place(offset) {
            return None;
        }
        let before = header.u32()?;
        let payload_bytes = usize::try_from(header.u32()?).ok()?;
        let end = HEADER_BYTES.checked_add(payload_bytes)?;
        let bytes = end.checked_next_multiple_of(ALIGN)?;
        if crc32fast::hash(from.get(4..bytes)?) != crc {
            return None;
        }
        let (number, synced, kind) = (header.u64()?, header.u64()?, header.u64()?);
        let payload = from.get(HEADER_BYTES..end)?;
        Some(Self { number, synced, before, crc, kind, payload, bytes })
    }

    /// Whether it is the next record of the chain.
    pub(crate) fn follows(&self, tip: Tip) -> bool {
        self.number == tip.number && self.before == tip.crc
    }

    /// The end of the chain before it.
    pub(crate) fn tip_before(&self) -> Tip {
        Tip { number: self.number, crc: self.before }
    }

    /// The end of the chain after it.
    pub(crate) fn tip(&self) -> Tip {
        Tip { number: self.number + 1, crc: self.crc }
    }

    /// `None` if its checksum is right but its content is invalid, which this program never
    /// writes.
    pub(crate) fn body(&self) -> Option<Body<'a>> {
        Body::parse(u8::try_from(self.kind).ok()?, self.payload)
    }
}

/// The highest number up to which any valid record from `offset` on states that the log was synced;
/// 0 if there is none.
pub(crate) fn claims_from(segment: &[u8], offset: usize, home: SegmentId) -> u64 {
    let mut highest = 0;
    let mut offset = offset.next_multiple_of(ALIGN);
    while let Some(word) = segment.get(offset..offset + ALIGN) {
        if word != [0; ALIGN]
            && let Some(record) = Record::at(segment, offset, home)
        {
            highest = highest.max(record.synced);
        }
        offset += ALIGN;
    }
    highest
}
