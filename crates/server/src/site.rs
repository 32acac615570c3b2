//! Where a data folder is, and how often its node was started: what tells a copy of a folder from
//! the folder itself.
//!
//! Only what survives a reboot and a remount is compared. The time at which the file system made
//! the file `identity` does: every copy of the file has another one, and no program can set it.
//! Device and inode numbers do not on every file system. A machine id does, unless it belongs to a
//! container or is drawn at each boot.

use hmac::{Hmac, Mac};
use holdfast_storage::{self as storage, FileKind, RealDisk};
use sha2::Sha256;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

const FILE: &str = "site";
const KIND: FileKind = FileKind { magic: *b"HOLDFSIT", version: 1 };

/// The file whose making is compared: written once, and never again.
const MADE_ONCE: &str = "identity";

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
        let made = fs::metadata(folder.join(MADE_ONCE)).and_then(|about| about.created()).ok();
        let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made_ns = made.and_then(|made| u64::try_from(made.as_nanos()).ok());
        Self { machine: machine(), made_ns: made_ns.filter(|ns| *ns > 0) }
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
        let what = "its content makes no sense".to_owned();
        let damaged = storage::Fault::Damaged { what, file: FILE.to_owned(), offset: None };
        Self::parse(&content).map(Some).ok_or(damaged)
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
