//! What the log and the snapshots ask of a disk, and nothing else.
//!
//! Everything that touches files goes through [`Disk`], directories and the lock included: what
//! bypassed it could not be simulated, and what is not simulated is not tested.

mod real;

pub use real::RealDisk;

use std::fmt::Debug;
use std::io;

/// One folder of files. A clone is another handle onto the same folder.
///
/// What was written is on disk only after [`Disk::sync`] of that file; what was created, renamed
/// or deleted, only after [`Disk::sync_dir`]. Until then a crash may keep it, lose it or keep
/// part of it, in any order.
///
/// A write that a crash interrupts leaves each byte of its range as it was or as it was to be,
/// and touches no other byte.
pub trait Disk: Clone + Debug {
    /// An open file.
    type File: Debug;

    /// The names of the files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file, or empties the one of that name.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// How long the file is.
    fn size(&self, file: &Self::File) -> io::Result<u64>;

    /// Fills `buffer` from that offset on; an error if the file ends before.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Makes the file `bytes` long, zeros in the new part, with the space for it taken now: a
    /// later write into it does not find the disk full.
    fn preallocate(&self, file: &Self::File, bytes: u64) -> io::Result<()>;

    /// Writes all of `bytes` from that offset on. After an error any part may have been written.
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the file's content is on disk. After an error nobody knows what is, and a
    /// second call would say Ok without having written anything: never retry.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Gives a file another name; a file of that name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; handles that are open onto it stay good.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns when the names are on disk.
    fn sync_dir(&self) -> io::Result<()>;

    /// Takes the folder for this handle and its clones; an error that says who has it if it is
    /// taken. Ends with the last clone, or with the process.
    fn lock(&self) -> io::Result<()>;

    /// The whole file, into `buffer`, whose old content goes.
    fn read_all(&self, file: &Self::File, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = usize::try_from(self.size(file)?).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        self.read_at(file, 0, buffer)
    }
}
