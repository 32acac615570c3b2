//! What the log and the snapshots need from a disk, and nothing else.
//!
//! Everything that touches files goes through [`Disk`], including directories and the lock:
//! anything that bypassed it could not be simulated, and what is not simulated is not tested.

mod real;

pub use real::RealDisk;

use std::fmt::Debug;
use std::io;

/// One folder of files. A clone is another handle to the same folder.
///
/// Written data is on disk only after [`Disk::sync`] of that file; a file that was created, renamed
/// or deleted, only after [`Disk::sync_dir`]. Until then a crash may keep it, lose it or keep part
/// of it, in any order.
///
/// A write that is interrupted by a crash leaves each byte in its range either old or new, and
/// touches no other byte.
pub trait Disk: Clone + Debug {
    /// An open file.
    type File: Debug;

    /// The names of the files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file, or truncates the existing one.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// The size of the file in bytes.
    fn size(&self, file: &Self::File) -> io::Result<u64>;

    /// Fills `buffer` starting at `offset`; an error if the file ends before that.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Extends the file to `bytes` with zeros and reserves the space now: a later write into it
    /// can't find the disk full.
    fn preallocate(&self, file: &Self::File, bytes: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. After an error any part may have been written.
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the file's content is on disk. After an error it is unknown what is, and a
    /// second call might report success without having written anything: never retry.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Renames a file; an existing file of that name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file; open handles to it stay valid.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns when the file names are on disk.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks the folder for this handle and its clones; if it is already locked, the error says by
    /// whom. The lock ends with the last clone, or with the process.
    fn lock(&self) -> io::Result<()>;

    /// Reads the whole file into `buffer`, replacing its content.
    fn read_all(&self, file: &Self::File, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = usize::try_from(self.size(file)?).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        self.read_at(file, 0, buffer)
    }
}
