//! A folder on a real file system.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the one place that touches real files"
)]

use super::Disk;
use crate::bytes::ZEROS;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Locked while a process uses the folder; its content is the process id.
const LOCK_FILE: &str = "lock";

/// A folder on a real disk.
#[derive(Debug, Clone)]
pub struct RealDisk {
    folder: Arc<Folder>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Kept open, because syncing it makes the file names durable.
    directory: File,
    /// Keeping it open holds the lock.
    lock: Mutex<Option<File>>,
}

impl RealDisk {
    /// Opens the folder, creating it if necessary, readable by its owner only: the log contains
    /// secrets.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // The folder's own name must survive a crash as well.
            if let Some(parent) = path.canonicalize()?.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        let directory = File::open(&path)?;
        Ok(Self { folder: Arc::new(Folder { path, directory, lock: Mutex::new(None) }) })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.folder.path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }

    fn taken(&self) -> io::Error {
        let mut pid = String::new();
        let read =
            File::open(self.at(LOCK_FILE)).and_then(|file| file.take(20).read_to_string(&mut pid));
        let who = match (read, pid.trim()) {
            (Err(_), _) | (_, "") => "another process".to_owned(),
            (Ok(_), pid) => format!("process {pid}"),
        };
        let text = format!("{} is in use by {who}", self.folder.path.display());
        io::Error::new(io::ErrorKind::ResourceBusy, text)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Disk for RealDisk {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder.path)? {
            // A name that is not UTF-8 isn't ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        options().create(true).truncate(true).open(self.at(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        options().open(self.at(name))
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(buffer, offset)
    }

    fn preallocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => fill(file, bytes),
            done => Ok(done?),
        }
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.at(from), self.at(to))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.at(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.folder.directory.sync_all()
    }

    fn lock(&self) -> io::Result<()> {
        let mut held = self.folder.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = options().create(true).truncate(false).open(self.at(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.taken()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        *held = Some(file);
        Ok(())
    }
}

/// Fallback for file systems that can't allocate without writing.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let mut offset = file.metadata()?.len();
    while offset < bytes {
        let piece = (bytes - offset).min(ZEROS.len() as u64);
        let zeros = usize::try_from(piece).ok().and_then(|piece| ZEROS.get(..piece));
        file.write_all_at(zeros.unwrap_or_default(), offset)?;
        offset += piece;
    }
    Ok(())
}
