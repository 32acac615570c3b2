//! Detects a copied, moved or rolled-back data folder, from where the folder is and how often its
//! node was started.
//!
//! Only what survives a reboot and a remount is compared. The creation time of the file `identity`
//! does: every copy of the file has a different one, and no program can set it. Device and inode
//! numbers do not survive on every file system. A machine id does, unless it belongs to a container
//! or is drawn at each boot.
//!
//! An old copy that is put back over the folder (`cp -a old/. data/`) leaves the same `identity`
//! file in place. So another file, the [`Stamp`], is recreated again and again and records its own
//! creation time: if it was overwritten or replaced, the two no longer match. It also records up to
//! where the log was committed and durable: a log that ends before that was put back without the
//! rest of its copy.
//!
//! A copy made of hard links (`cp -al`) shares its files with the folder, creation times included.
//! While both exist, the files have more than one link ([`shared_file`]).

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

/// Recreated at each start and stop, and every few seconds in between.
const STAMP_FILE: &str = "stamp";
const STAMP_KIND: FileKind = FileKind { magic: *b"HOLDFSTM", version: 1 };

/// Identifies where a folder is. `None` means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// A hash of the machine's id.
    machine: Option<[u8; 16]>,
    /// The creation time of the file `identity`, in nanoseconds since 1970.
    made_ns: Option<u64>,
}

/// What a folder records about its node's last start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastStart {
    /// How many starts there have been.
    pub(crate) number: u64,
    /// Where the folder was then.
    pub(crate) site: Site,
}

impl Site {
    /// Where the folder is now.
    pub(crate) fn of(folder: &Path) -> Self {
        // `identity` is written once and never again.
        Self { machine: machine(), made_ns: made_ns(&folder.join(IDENTITY_FILE)) }
    }

    /// How a folder got here from another place; `None` if, as far as is known, it did not.
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

    /// Fills in what is unknown here with what was known before.
    pub(crate) fn or(self, before: Self) -> Self {
        Self { machine: self.machine.or(before.machine), made_ns: self.made_ns.or(before.made_ns) }
    }
}

impl LastStart {
    /// `None` if no version that writes this file has run here yet.
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

/// Tells a folder from an older copy that was put back in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The number of the start that wrote it.
    number: u64,
    /// The creation time of this very file, in nanoseconds since 1970; `None` if the file system
    /// does not record it.
    made_ns: Option<u64>,
    /// An entry that was committed, and durable here, before this was written; `None` if an older
    /// version wrote it.
    at: Option<Position>,
}

impl Stamp {
    /// Replaces the stamp with a new one. `at` is an entry that is committed and durable here: the
    /// node's log must never again end before it. If `at` is `None`, the previous stamp's entry is
    /// kept.
    pub(crate) fn write(disk: &RealDisk, number: u64, at: Option<Position>) -> Result<(), String> {
        // Two concurrent writers would mistake each other's file for their own.
        static WRITING: Mutex<()> = Mutex::new(());
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        // An unreadable stamp is ignored: the folder was checked at startup.
        let before = Self::load(disk).ok().flatten().and_then(|stamp| stamp.at);
        let at = before.max(at).unwrap_or_default();
        // The file must exist before its content, which includes its creation time. Writing
        // truncates the file and does not create another.
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

    /// `None` if no version that writes this file has run here yet.
    pub(crate) fn load(disk: &RealDisk) -> Result<Option<Self>, storage::Fault> {
        let file = storage::read_file(disk, STAMP_FILE, STAMP_KIND)?;
        let Some((_, content)) = file else { return Ok(None) };
        let (words, []) = content.as_chunks::<8>() else { return Err(makes_no_sense(STAMP_FILE)) };
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        let (number, made_ns, at) = match *words {
            // Older versions did not write the position.
            [number, made_ns] => (number, made_ns, None),
            [number, made_ns, index, term] => (number, made_ns, Some(Position { index, term })),
            _ => return Err(makes_no_sense(STAMP_FILE)),
        };
        let at = at.filter(|at| at.index > 0);
        Ok(Some(Self { number, made_ns: Some(made_ns).filter(|ns| *ns > 0), at }))
    }

    /// Why the log must be older than the folder; `None` if it isn't.
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

    /// Returns the reason if the folder holds older content than it did; `last` is the last start
    /// that the folder records.
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

/// A file that this folder shares with another one, and its link count: one of the two folders is a
/// copy made of hard links, and nothing in the files says which.
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

/// A file's creation time in nanoseconds since 1970; `None` if the file system does not record it.
fn made_ns(file: &Path) -> Option<u64> {
    let made = fs::metadata(file).and_then(|about| about.created()).ok()?;
    let made = made.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(made.as_nanos()).ok().filter(|ns| *ns > 0)
}

fn makes_no_sense(file: &str) -> storage::Fault {
    let what = "its content is invalid".to_owned();
    storage::Fault::Damaged { what, file: file.to_owned(), offset: None }
}

/// The hashed id of this machine; `None` if it isn't stable.
fn machine() -> Option<[u8; 16]> {
    let in_container = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"]
        .iter()
        .any(|file| Path::new(file).exists())
        || ["container", "KUBERNETES_SERVICE_HOST"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
    // Exists while systemd uses an id that it drew at this boot.
    if in_container || Path::new("/run/machine-id").exists() {
        return None;
    }
    hashed(fs::read_to_string("/etc/machine-id").ok()?.trim())
}

/// Hashes the id, which should not be disclosed.
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
    fn copies_and_moves_are_detected() {
        assert_eq!(HERE.moved_from(&HERE), None);
        let copy = Site { made_ns: Some(8), ..HERE };
        assert!(copy.moved_from(&HERE).is_some_and(|how| how.contains("copied")));
        let elsewhere = Site { machine: Some([2; 16]), ..HERE };
        assert!(elsewhere.moved_from(&HERE).is_some_and(|how| how.contains("machine")));
    }

    /// A container's machine id, or a file system without creation times, must not stop a healthy
    /// node.
    #[test]
    fn unknown_identity_raises_no_alarm() {
        let unknown = Site::default();
        for (now, before) in [(unknown, HERE), (HERE, unknown), (unknown, unknown)] {
            assert_eq!(now.moved_from(&before), None);
        }
        // What was known is compared again once it is known again.
        assert_eq!(unknown.or(HERE), HERE);
    }

    #[test]
    fn only_a_complete_machine_id_counts() {
        assert_eq!(hashed("uninitialized"), None);
        assert_eq!(hashed(""), None);
        let id = "0123456789abcdef0123456789abcdef";
        assert!(hashed(id).is_some());
        assert_ne!(hashed(id), hashed("1123456789abcdef0123456789abcdef"));
    }

    /// A copy from before the last stamp was put back over the folder, which left `identity` alone.
    #[test]
    fn overwritten_stamp_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        assert_eq!(Stamp::load(&disk).unwrap(), None);
        let file = folder.path().join(STAMP_FILE);
        Stamp::write(&disk, 1, None).unwrap();
        let old = fs::read(&file).unwrap();
        let replaced = |last| Stamp::load(&disk).unwrap().unwrap().replaced(&disk, last);
        assert_eq!(replaced(Some(1)), None);
        // Rewriting the same content is no loss.
        fs::write(&file, &old).unwrap();
        assert_eq!(replaced(Some(2)), None);
        if made_ns(&file).is_none() {
            // This file system does not record creation times.
            return;
        }
        // Its clock is coarse.
        std::thread::sleep(std::time::Duration::from_millis(50));
        Stamp::write(&disk, 1, None).unwrap();
        assert_eq!(replaced(Some(1)), None);
        fs::write(&file, &old).unwrap();
        assert!(replaced(Some(1)).is_some());
    }

    /// A stamp without a position was written by an older version. A stamp that has one keeps it
    /// until there is a later one.
    #[test]
    fn position_is_optional() {
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

    /// Where the file system has no creation times, the number of starts gives it away.
    #[test]
    fn stamp_of_a_later_start_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        Stamp::write(&disk, 5, None).unwrap();
        let stamp = Stamp::load(&disk).unwrap().unwrap();
        assert!(stamp.replaced(&disk, Some(4)).is_some());
        assert_eq!(stamp.replaced(&disk, Some(5)), None);
        // `site` is missing: an older version did not write it.
        assert_eq!(stamp.replaced(&disk, None), None);
    }

    #[test]
    fn written_values_are_read_back() {
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
