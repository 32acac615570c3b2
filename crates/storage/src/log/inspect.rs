//! Lists the records of a log without judging or changing anything.

use super::record::{Body, Record, SegmentId, claims_from};
use super::segment::{self, FORMAT};
use crate::disk::Disk;
use crate::fault::Fault;
use crate::preamble::{PREAMBLE_BYTES, Preamble};

/// A record as it is in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordInfo {
    /// The file.
    pub file: String,
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its number in the log.
    pub number: u64,
    /// The kind of record.
    pub what: &'static str,
    /// Whether a valid record states that it was synced: then damage to it would be noticed.
    pub vouched: bool,
}

/// The valid records of all segments, in each up to the first invalid one.
pub fn inspect<D: Disk>(disk: &D) -> Result<Vec<RecordInfo>, Fault> {
    let mut names = disk.list().map_err(Fault::failed("list", "."))?;
    names.sort_unstable();
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    let mut claimed = 0;
    for name in names {
        let Some(segment) = segment::number_of(&name) else { continue };
        let file = disk.open(&name).map_err(Fault::failed("open", &name))?;
        disk.read_all(&file, &mut bytes).map_err(Fault::unreadable(&name))?;
        let Ok(preamble) = Preamble::parse(&bytes, FORMAT) else { continue };
        let home = SegmentId { segment, salt: preamble.second };
        claimed = claims_from(&bytes, PREAMBLE_BYTES, home).max(claimed);
        records.extend(sound_records(&bytes, home, &name));
    }
    for record in &mut records {
        record.vouched = record.number < claimed;
    }
    Ok(records)
}

fn sound_records(bytes: &[u8], home: SegmentId, name: &str) -> Vec<RecordInfo> {
    let mut records = Vec::new();
    let mut offset = PREAMBLE_BYTES;
    while let Some(record) = Record::at(bytes, offset, home) {
        records.push(RecordInfo {
            file: name.to_owned(),
            offset: offset as u64,
            bytes: record.bytes as u64,
            number: record.number,
            what: record.body().map_or("unknown", Body::name),
            vouched: false,
        });
        offset += record.bytes;
    }
    records
}
