//! Opens a log: repairs what a crash may leave; anything else is damage.
//!
//! A crash can leave, at the end of the last segment only, records that were not synced: whole,
//! torn, or whole after torn ones. They are cut off from the first bad one on. A bad record that a
//! valid one states was synced is not the work of a crash, wherever it is.

use super::record::{Record, SegmentId, claims_from};
use super::replay::{Replay, ValidRecords};
use super::segment::{self, Active, FORMAT};
use super::state::{Cut, LogState, Recovered};
use super::{Log, Options, Tip};
use crate::bytes::used_length;
use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::preamble::{NoPreamble, PREAMBLE_BYTES, Preamble};

pub(super) fn open<D: Disk>(disk: &D, options: Options) -> Result<(Log<D>, Recovered), Fault> {
    // An earlier process may have seen this sync fail: names that are visible need not be
    // durable.
    disk.sync_dir().map_err(Fault::sync_failed("."))?;
    let mut segments = segment_numbers(disk)?;
    let mut bytes = Vec::new();
    let stillborn = find_stillborn(disk, &segments, &mut bytes)?;
    if stillborn.is_some() {
        segments.pop();
    }
    if segments.is_empty() {
        return begin(disk, options, stillborn);
    }
    let (leftover, run) = last_run(&segments);
    let Reading { mut replay, read, home, name, file } = read_run(disk, run, &mut bytes)?;
    delete(disk, leftover.iter().copied().chain(stillborn))?;

    let used = read.end + used_length(bytes.get(read.end..).unwrap_or_default());
    rewrite_tail(disk, &file, &name, &bytes, &replay, &read, used)?;
    let cut = (used > read.end).then(|| Cut {
        file: name.clone(),
        offset: read.end as u64,
        bytes: (used - read.end) as u64,
    });
    let mut active = Active::new(file, name, home, read.end, bytes.len());
    active.index_max = replay.index_max;
    let entries = std::mem::take(&mut replay.entries).into();
    let mut log = assemble(disk, options, active, replay);
    log.delete_unneeded()?;
    log.vouch()?;
    let LogState { compacted, hard_state, .. } = log.log_state;
    Ok((log, Recovered { hard_state, compacted, entries, cut }))
}

fn assemble<D: Disk>(
    disk: &D,
    options: Options,
    active: Active<D::File>,
    replay: Replay,
) -> Log<D> {
    Log {
        disk: disk.clone(),
        options,
        closed: replay.closed,
        active,
        tip: replay.tip,
        log_state: replay.log_state,
        synced: replay.tip.number,
        claimed: replay.claimed,
        vouched: replay.claimed,
        content_end: replay.content_end,
        stopped: None,
        buffer: Vec::new(),
    }
}

pub(super) fn segment_numbers<D: Disk>(disk: &D) -> Result<Vec<u64>, Fault> {
    let names = disk.list().map_err(Fault::failed("list", "."))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The last segment, if its creation was interrupted: it has no valid head and no content.
fn find_stillborn<D: Disk>(
    disk: &D,
    segments: &[u64],
    bytes: &mut Vec<u8>,
) -> Result<Option<u64>, Fault> {
    let Some((&last, before)) = segments.split_last() else { return Ok(None) };
    let name = segment::file_name(last);
    let file = disk.open(&name).map_err(Fault::failed("open", &name))?;
    let size = disk.size(&file).map_err(Fault::unreadable(&name))?;
    bytes.resize(segment::head_end().min(usize::try_from(size).unwrap_or(usize::MAX)), 0);
    disk.read_at(&file, 0, bytes).map_err(Fault::unreadable(&name))?;
    if !matches!(head_of(bytes, last), Err(NoPreamble::Bad)) {
        return Ok(None);
    }
    disk.read_all(&file, bytes).map_err(Fault::unreadable(&name))?;
    let behind = bytes.get(segment::head_end()..).unwrap_or_default();
    let follows = before.last().map_or(last == FIRST_SEGMENT, |before| before + 1 == last);
    if used_length(behind) > 0 || !follows {
        return Err(Fault::damaged(&name, 0, "the segment's head is wrong"));
    }
    Ok(Some(last))
}

const FIRST_SEGMENT: u64 = 1;

/// The salt and the head of a segment.
fn head_of(bytes: &[u8], segment: u64) -> Result<(SegmentId, Record<'_>), NoPreamble> {
    let preamble = Preamble::parse(bytes, FORMAT)?;
    let home = SegmentId { segment, salt: preamble.second };
    let head = Record::at(bytes, PREAMBLE_BYTES, home).ok_or(NoPreamble::Bad)?;
    if preamble.first != segment {
        return Err(NoPreamble::Bad);
    }
    Ok((home, head))
}

fn load<D: Disk>(disk: &D, name: &str, bytes: &mut Vec<u8>) -> Result<D::File, Fault> {
    let file = disk.open(name).map_err(Fault::failed("open", name))?;
    disk.read_all(&file, bytes).map_err(Fault::unreadable(name))?;
    Ok(file)
}

/// Creates a new log, where there is none or its creation was interrupted.
fn begin<D: Disk>(
    disk: &D,
    options: Options,
    stillborn: Option<u64>,
) -> Result<(Log<D>, Recovered), Fault> {
    let name = segment::file_name(FIRST_SEGMENT);
    if options.must_exist {
        return Err(Fault::damaged_file(&name, "the log is missing"));
    }
    delete(disk, stillborn)?;
    let home = SegmentId { segment: FIRST_SEGMENT, salt: options.salt };
    let capacity = options.segment_bytes.max(super::SEGMENT_BYTES_MIN);
    let created = segment::create(disk, home, capacity, Tip::default(), LogState::default());
    let (active, tip) = created.map_err(|error| match error {
        WriteError::Fault(fault) => fault,
        WriteError::Full { file, cause } => Fault::Failed { doing: "allocate", file, cause },
        WriteError::Misuse(what) => Fault::damaged_file(&name, what),
    })?;
    let replay = Replay { tip, ..Replay::default() };
    Ok((assemble(disk, options, active, replay), Recovered::default()))
}

/// Splits off the last run of consecutive segments from what is before the gap. A compaction
/// deletes from the front, and a crash may bring back any of those; whether anything is missing in
/// between is evident from the run itself.
pub(super) fn last_run(segments: &[u64]) -> (&[u64], &[u64]) {
    let gap = segments.windows(2).rposition(|pair| !matches!(pair, [a, b] if a + 1 == *b));
    segments.split_at(gap.map_or(0, |gap| gap + 1))
}

/// What the segments contain, and the last of them.
pub(super) struct Reading<F> {
    pub(super) replay: Replay,
    read: ValidRecords,
    home: SegmentId,
    name: String,
    file: F,
}

/// Reads all segments; leaves the last one in `bytes`.
fn read_run<D: Disk>(
    disk: &D,
    run: &[u64],
    bytes: &mut Vec<u8>,
) -> Result<Reading<D::File>, Fault> {
    let mut reading: Option<Reading<D::File>> = None;
    for &segment in run {
        reading = Some(read_next(disk, segment, &mut reading, bytes)?);
    }
    let reading = reading.ok_or_else(|| Fault::damaged_file("log", "there is no segment"))?;
    reading.judge(bytes, run)?;
    Ok(reading)
}

/// Reads one more segment. `before` is taken only if this one continues it.
pub(super) fn read_next<D: Disk>(
    disk: &D,
    segment: u64,
    before: &mut Option<Reading<D::File>>,
    bytes: &mut Vec<u8>,
) -> Result<Reading<D::File>, Fault> {
    let name = segment::file_name(segment);
    let file = load(disk, &name, bytes)?;
    let (home, head) =
        head_of(bytes, segment).map_err(|error| error.fault(&name, FORMAT.version))?;
    if let Some(before) = before {
        before.check_joined_by(&head, home)?;
    }
    let mut replay = match before.take() {
        None => Replay::begin(&head)
            .ok_or_else(|| Fault::damaged(&name, 0, "the segment's head is wrong"))?,
        Some(before) => before.closed(),
    };
    let read = replay.read(bytes, PREAMBLE_BYTES, home, &name)?;
    Ok(Reading { replay, read, home, name, file })
}

impl<F> Reading<F> {
    /// Checks that the next segment continues this one; its head vouches for all of this one.
    fn check_joined_by(&self, head: &Record<'_>, home: SegmentId) -> Result<(), Fault> {
        if !head.follows(self.replay.tip) || home.salt != self.home.salt {
            let what = "a record that was synced is missing or wrong: the next segment says so";
            return Err(Fault::damaged(&self.name, self.read.end as u64, what));
        }
        Ok(())
    }

    /// The replay, ready for the next segment.
    fn closed(mut self) -> Replay {
        self.replay.close_segment(self.home.segment);
        self.replay
    }

    /// Checks that what is invalid at the end may be the work of a crash, and that what is valid is
    /// complete.
    pub(super) fn judge(&self, bytes: &[u8], run: &[u64]) -> Result<(), Fault> {
        if claims_from(bytes, self.read.end, self.home) > self.replay.tip.number {
            let what = "a record that was synced is wrong: one behind it says so";
            return Err(Fault::damaged(&self.name, self.read.end as u64, what));
        }
        if !self.replay.is_whole() {
            let first = run.first().copied().unwrap_or_default();
            let name = segment::file_name(first.saturating_sub(1));
            return Err(Fault::damaged_file(
                &name,
                "the segment is missing, and no snapshot has it",
            ));
        }
        Ok(())
    }
}

/// No need to sync the names: a file that reappears after a crash is unchanged, and is deleted
/// again.
fn delete<D: Disk>(disk: &D, segments: impl IntoIterator<Item = u64>) -> Result<(), Fault> {
    for segment in segments {
        let name = segment::file_name(segment);
        disk.delete(&name).map_err(Fault::failed("delete", &name))?;
    }
    Ok(())
}

/// Makes durable what is about to be trusted, and erases what is not.
///
/// Records that nothing vouches for may have been read from the page cache only: the program that
/// wrote them may have died before its sync, or because of it. After a failed sync the kernel
/// considers them written; so they are written again and not only synced.
fn rewrite_tail<D: Disk>(
    disk: &D,
    file: &D::File,
    name: &str,
    bytes: &[u8],
    replay: &Replay,
    read: &ValidRecords,
    used: usize,
) -> Result<(), Fault> {
    let unvouched = replay.tip.number.saturating_sub(replay.claimed);
    let unvouched = usize::try_from(unvouched).unwrap_or(usize::MAX);
    let sound = read.offsets.len().saturating_sub(unvouched);
    let from = match read.offsets.get(sound) {
        // The head itself, including the preamble before it.
        Some(_) if sound == 0 => 0,
        Some(offset) => *offset,
        None => read.end,
    };
    if from == used {
        return Ok(());
    }
    let mut tail = bytes.get(from..used).unwrap_or_default().to_vec();
    if let Some(cut) = tail.get_mut(read.end - from..) {
        cut.fill(0);
    }
    disk.write_at(file, from as u64, &tail).map_err(Fault::failed("write to", name))?;
    disk.sync(file).map_err(Fault::sync_failed(name))
}
