//! Where a data folder is, and how often its node was started: what tells a copy of a folder from
//! the folder itself.
//!
//! Only what survives a reboot and a remount is compared. The time at which the file system made
//! the file `identity` does: every copy of the file has another one, and no program can set it.
//! Device and inode numbers do not on every file system. A machine id does, unless it belongs to a
//! container or is drawn at each boot.
//!
//! An old copy that is put back over the folder (`cp -a old/. data/`) leaves `identity` the file that
//! it was. So another file, the [`Stamp`], is made again and again, and says when it was made itself:
//! one that was written over, or replaced, says something else. It also says up to where the log was
//! committed and durable: a log that ends before that was put back without the rest of its copy.
//!
//! A copy made of hard links (`cp -al`) shares its files with the folder, times included. While both
//! are there, the files have more than one name ([`shared_file`]).

use crate::data::IDENTITY_FILE;
use hmac::{Hmac, Mac};
use holdfast_node::{Boot, Position};
use holdfast_storage::{self as storage, Disk, FileKind, RealDisk};
use sha2::Sha256;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

const FILE: &str = "site";
const KIND: FileKind = FileKind { magic: *b"HOLDFSIT", version: 1 };

/// Made again at each start and stop, and every few seconds of work.
const STAMP_FILE: &str = "stamp";
const STAMP_KIND: FileKind = FileKind { magic: *b"HOLDFSTM", version: 1 };

/// Where a folder is. None is what can't be known here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// A hash of the machine's id.
    machine: Option<[u8; 16]>,
    /// When the file system made the file `identity`, in nanoseconds since 1970.
    made_ns: Option<u64>,
}

/// What a folder says about its last start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastStart {
    /// How many starts there were.
    pub(crate) number: u64,
    /// Where the folder was.
    pub(crate) site: Site,
}

impl Site {
    /// Where that folder is now.
    pub(crate) fn of(folder: &Path) -> Self {
        // Written once, and never again.
        Self { machine: machine(), made_ns: made_ns(&folder.join(IDENTITY_FILE)) }
    }

    /// How a folder came here from another place; none if it was here, as far as can be known.
    pub(crate) fn moved_from(&self, before: &Self) -> Option<&'static str> {
        let differs = |pair: Option<bool>| pair == Some(true);
        if differs(self.made_ns.zip(before.made_ns).map(|(now, before)| now != before)) {
            return Some("its files were copied");
        }
        if differs(self.machine.zip(before.machine).map(|(now, before)| now != before)) {
            return Some("it was on another machine when it was last used");
        }
        None
    }

    /// What is known here, and otherwise what was known before.
    pub(crate) fn or(self, before: Self) -> Self {
        Self { machine: self.machine.or(before.machine), made_ns: self.made_ns.or(before.made_ns) }
    }
}

impl LastStart {
    /// None if no program that knows this file has run here yet.
    pub(crate) fn load(disk: &RealDisk) -> Result<Option<Self>, storage::Fault> {
        let Some((_, content)) = storage::read_file(disk, FILE, KIND)? else { return Ok(None) };
        Self::parse(&content).map(Some).ok_or_else(|| makes_no_sense(FILE))
    }

    pub(crate) fn store(&self, disk: &RealDisk) -> Result<(), storage::WriteError> {
        let mut content = self.number.to_le_bytes().to_vec();
        content.extend_from_slice(&self.site.machine.unwrap_or_default());
        content.extend_from_slice(&self.site.made_ns.unwrap_or_default().to_le_bytes());
        storage::write_file(disk, FILE, KIND, &content)
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let (number, rest) = content.split_first_chunk()?;
        let (machine, rest) = rest.split_first_chunk()?;
        let made_ns = u64::from_le_bytes(rest.try_into().ok()?);
        let site = Site {
            machine: Some(*machine).filter(|machine| *machine != [0; 16]),
            made_ns: Some(made_ns).filter(|ns| *ns > 0),
        };
        Some(Self { number: u64::from_le_bytes(*number), site })
    }
}

/// Tells a folder from an older copy of it that was put back in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The start of the node that made it.
    number: u64,
    /// When the file system made this very file, in nanoseconds since 1970; none if it does not say.
    made_ns: Option<u64>,
    /// An entry that was committed, and durable here, before this was written; none if an older
    /// program wrote it.
    at: Option<Position>,
}

impl Stamp {
    /// Makes a new one in the place of the last. `at` is an entry that is committed and durable here:
    /// no log of this node may end before it any more. Without one, what the last stamp says stays.
    pub(crate) fn write(disk: &RealDisk, number: u64, at: Option<Position>) -> Result<(), String> {
        // Two at once would take each other's file for their own.
        static WRITING: Mutex<()> = Mutex::new(());
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        // One that can't be read says nothing; what the folder holds was judged at the start.
        let before = Self::load(disk).ok().flatten().and_then(|stamp| stamp.at);
        let at = before.max(at).unwrap_or_default();
        // The file must be there before its content, which says when it was made. Writing it
        // truncates the file, and makes no other one.
        let beside = format!("{STAMP_FILE}.tmp");
        let made = fs::remove_file(disk.path().join(&beside))
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) });
        let made = made.and_then(|()| disk.create(&beside));
        made.map_err(|error| format!("can't write {beside}: {error}"))?;
        let made_ns = made_ns(&disk.path().join(&beside));
        let words = [number, made_ns.unwrap_or_default(), at.index, at.term];
        let content = words.map(u64::to_le_bytes).concat();
        storage::write_file(disk, STAMP_FILE, STAMP_KIND, &content)
            .map_err(|error| error.to_string())
    }

    /// None if no program that knows this file has run here yet.
    pub(crate) fn load(disk: &RealDisk) -> Result<Option<Self>, storage::Fault> {
        let file = storage::read_file(disk, STAMP_FILE, STAMP_KIND)?;
        let Some((_, content)) = file else { return Ok(None) };
        let (words, []) = content.as_chunks::<8>() else { return Err(makes_no_sense(STAMP_FILE)) };
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        let (number, made_ns, at) = match *words {
            // An older program did not write the position.
            [number, made_ns] => (number, made_ns, None),
            [number, made_ns, index, term] => (number, made_ns, Some(Position { index, term })),
            _ => return Err(makes_no_sense(STAMP_FILE)),
        };
        let at = at.filter(|at| at.index > 0);
        Ok(Some(Self { number, made_ns: Some(made_ns).filter(|ns| *ns > 0), at }))
    }

    /// How it is known that the log is older than the folder; none if it is not.
    pub(crate) fn lacks(&self, boot: &Boot) -> Option<String> {
        let at = self.at.filter(|at| !boot.has(*at))?;
        Some(format!(
            "entry {} of term {} was on its disk, and the log, which ends at entry {}, does not have \
             it: older log files were put back, or the disk has lost what it had confirmed",
            at.index,
            at.term,
            boot.last_index()
        ))
    }

    /// How it is known that the folder holds what it held before; none if it is not. `last` is the
    /// last start, as far as the folder says.
    pub(crate) fn replaced(&self, disk: &RealDisk, last: Option<u64>) -> Option<&'static str> {
        let now = made_ns(&disk.path().join(STAMP_FILE));
        let other = now.zip(self.made_ns).is_some_and(|(now, then)| now != then);
        let older = last.is_some_and(|last| last < self.number);
        (other || older).then_some(
            "an older copy was put back over this folder, so this node has forgotten what it \
             promised since that copy was made",
        )
    }
}

/// A file of a folder that another folder has as well, and how many names it has: one of the two is
/// a copy made of hard links, and nothing in the files says which.
pub(crate) fn shared_file(disk: &RealDisk) -> std::io::Result<Option<(String, u64)>> {
    for name in disk.list()? {
        let is_ours = [IDENTITY_FILE, FILE, STAMP_FILE].contains(&name.as_str())
            || ["log-", "snapshot-"].iter().any(|prefix| name.starts_with(prefix));
        if !is_ours {
            continue;
        }
        let links = fs::symlink_metadata(disk.path().join(&name))?.nlink();
        if links > 1 {
            return Ok(Some((name, links)));
        }
    }
    Ok(None)
}

/// When the file system made a file, in nanoseconds since 1970; none if it does not say.
fn made_ns(file: &Path) -> Option<u64> {
    let made = fs::metadata(file).and_then(|about| about.created()).ok()?;
    let made = made.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(made.as_nanos()).ok().filter(|ns| *ns > 0)
}

fn makes_no_sense(file: &str) -> storage::Fault {
    let what = "its content makes no sense".to_owned();
    storage::Fault::Damaged { what, file: file.to_owned(), offset: None }
}

/// This machine, if its id stays the same for as long as it is this machine.
fn machine() -> Option<[u8; 16]> {
    let in_container = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"]
        .iter()
        .any(|file| Path::new(file).exists())
        || ["container", "KUBERNETES_SERVICE_HOST"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
    // There while systemd has an id that it drew at this boot.
    if in_container || Path::new("/run/machine-id").exists() {
        return None;
    }
    hashed(fs::read_to_string("/etc/machine-id").ok()?.trim())
}

/// The id itself is not to be given away.
fn hashed(id: &str) -> Option<[u8; 16]> {
    if id.len() != 32 || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(b"holdfast data folder").ok()?;
    mac.update(id.to_ascii_lowercase().as_bytes());
    mac.finalize().into_bytes().first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Site = Site { machine: Some([1; 16]), made_ns: Some(7) };

    #[test]
    fn a_copy_and_another_machine_are_noticed() {
        assert_eq!(HERE.moved_from(&HERE), None);
        let copy = Site { made_ns: Some(8), ..HERE };
        assert!(copy.moved_from(&HERE).is_some_and(|how| how.contains("copied")));
        let elsewhere = Site { machine: Some([2; 16]), ..HERE };
        assert!(elsewhere.moved_from(&HERE).is_some_and(|how| how.contains("machine")));
    }

    /// A container's machine id, or a file system that does not say when a file was made, must not
    /// stop a healthy node.
    #[test]
    fn what_is_unknown_raises_no_alarm() {
        let unknown = Site::default();
        for (now, before) in [(unknown, HERE), (HERE, unknown), (unknown, unknown)] {
            assert_eq!(now.moved_from(&before), None);
        }
        // And what was known is still compared when it is known again.
        assert_eq!(unknown.or(HERE), HERE);
    }

    #[test]
    fn only_a_whole_machine_id_counts() {
        assert_eq!(hashed("uninitialized"), None);
        assert_eq!(hashed(""), None);
        let id = "0123456789abcdef0123456789abcdef";
        assert!(hashed(id).is_some());
        assert_ne!(hashed(id), hashed("1123456789abcdef0123456789abcdef"));
    }

    /// A copy from before the last stamp was put back over the folder, which left `identity` alone.
    #[test]
    fn a_stamp_that_was_written_over_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        assert_eq!(Stamp::load(&disk).unwrap(), None);
        let file = folder.path().join(STAMP_FILE);
        Stamp::write(&disk, 1, None).unwrap();
        let old = fs::read(&file).unwrap();
        let replaced = |last| Stamp::load(&disk).unwrap().unwrap().replaced(&disk, last);
        assert_eq!(replaced(Some(1)), None);
        // The same content again is no loss.
        fs::write(&file, &old).unwrap();
        assert_eq!(replaced(Some(2)), None);
        if made_ns(&file).is_none() {
            // This file system does not say when a file was made.
            return;
        }
        // Its clock has ticks.
        std::thread::sleep(std::time::Duration::from_millis(50));
        Stamp::write(&disk, 1, None).unwrap();
        assert_eq!(replaced(Some(1)), None);
        fs::write(&file, &old).unwrap();
        assert!(replaced(Some(1)).is_some());
    }

    /// A stamp without a position was written by an older program. One that has a position keeps it
    /// until there is a later one.
    #[test]
    fn a_position_is_kept_and_needs_not_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        let content = [3_u64, 0].map(u64::to_le_bytes).concat();
        storage::write_file(&disk, STAMP_FILE, STAMP_KIND, &content).unwrap();
        let position = || Stamp::load(&disk).unwrap().unwrap().at;
        assert_eq!(position(), None);
        let at = Position { index: 7, term: 2 };
        Stamp::write(&disk, 4, Some(at)).unwrap();
        for later in [None, Some(Position { index: 6, term: 2 })] {
            Stamp::write(&disk, 4, later).unwrap();
            assert_eq!(position(), Some(at));
        }
    }

    /// Where the file system does not say when a file was made, the number of starts does.
    #[test]
    fn a_stamp_from_a_later_start_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        Stamp::write(&disk, 5, None).unwrap();
        let stamp = Stamp::load(&disk).unwrap().unwrap();
        assert!(stamp.replaced(&disk, Some(4)).is_some());
        assert_eq!(stamp.replaced(&disk, Some(5)), None);
        // `site` is gone: an older program did not write it.
        assert_eq!(stamp.replaced(&disk, None), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        assert_eq!(LastStart::load(&disk).unwrap(), None);
        for site in [HERE, Site::default()] {
            let start = LastStart { number: 3, site };
            start.store(&disk).unwrap();
            assert_eq!(LastStart::load(&disk).unwrap(), Some(start));
        }
    }
}
