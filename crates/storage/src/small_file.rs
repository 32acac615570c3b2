//! Small files that are either complete or absent: written to a temporary name, synced, renamed.

use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::preamble::{Format, PREAMBLE_BYTES, Preamble};

/// The suffix of a file that is being written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Locks the folder for this process, and removes what a crash left half-written. Must be called
/// first.
pub fn claim<D: Disk>(disk: &D) -> Result<(), Fault> {
    disk.lock().map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => Fault::InUse(error.into()),
        _ => Fault::failed("lock", ".")(error),
    })?;
    for name in disk.list().map_err(Fault::failed("list", "."))? {
        if name.ends_with(TEMPORARY) {
            disk.delete(&name).map_err(Fault::failed("delete", &name))?;
        }
    }
    // Also for names that are already visible: the previous process may have died of this very
    // sync.
    disk.sync_dir().map_err(Fault::sync_failed("."))
}

/// The kind of a small file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKind {
    /// Its first eight bytes.
    pub magic: [u8; 8],
    /// The version that is written, and the latest that is read.
    pub version: u32,
}

impl FileKind {
    fn format(self) -> Format {
        Format { magic: self.magic, version: self.version }
    }
}

/// Writes a file, which is durable with this content when it returns. After a crash in between, the
/// file either has its previous content or is complete.
pub fn write_file<D: Disk>(
    disk: &D,
    name: &str,
    kind: FileKind,
    content: &[u8],
) -> Result<(), WriteError> {
    let temporary = format!("{name}{TEMPORARY}");
    let crc = crc32fast::hash(content);
    let (first, second) = (content.len() as u64, u64::from(crc));
    let preamble = Preamble { version: kind.version, first, second };
    let mut bytes = preamble.encode(kind.format()).to_vec();
    bytes.extend_from_slice(content);
    let file = disk.create(&temporary).map_err(WriteError::of("create", &temporary))?;
    disk.write_at(&file, 0, &bytes).map_err(WriteError::of("write to", &temporary))?;
    disk.sync(&file).map_err(Fault::sync_failed(&temporary))?;
    put_in_place(disk, &temporary, name)
}

/// Durably gives a synced file its final name.
pub(crate) fn put_in_place<D: Disk>(disk: &D, from: &str, to: &str) -> Result<(), WriteError> {
    disk.rename(from, to).map_err(WriteError::of("rename", from))?;
    Ok(disk.sync_dir().map_err(Fault::sync_failed("."))?)
}

/// Reads such a file: its version and content. `None` if there is no such file, which is not the
/// same as a damaged one.
pub fn read_file<D: Disk>(
    disk: &D,
    name: &str,
    kind: FileKind,
) -> Result<Option<(u32, Vec<u8>)>, Fault> {
    let file = match disk.open(name) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(Fault::failed("open", name))?,
    };
    let mut bytes = Vec::new();
    disk.read_all(&file, &mut bytes).map_err(Fault::unreadable(name))?;
    let preamble =
        Preamble::parse(&bytes, kind.format()).map_err(|error| error.fault(name, kind.version))?;
    let content = bytes.split_off(PREAMBLE_BYTES);
    if content.len() as u64 != preamble.first
        || u64::from(crc32fast::hash(&content)) != preamble.second
    {
        return Err(Fault::damaged(name, PREAMBLE_BYTES as u64, "its content is wrong"));
    }
    Ok(Some((preamble.version, content)))
}
