//! `holdfast backup`: a copy of everything, taken while the cluster serves.

use crate::exit::{Exit, Problem};
use crate::server_flags::ServerFlags;
use crate::stderr::eprint_line;
use clap::Args;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Keep it as safe as the cluster's key: it holds the secrets of sessions and locks.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast backup holdfast.backup
  holdfast restore --from holdfast.backup --data-dir data-2")]
pub(crate) struct Backup {
    /// The file to write; it must not exist
    file: PathBuf,
    #[command(flatten)]
    server: ServerFlags,
}

impl Backup {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        if self.file.exists() {
            return Err(Problem::usage(format!("{} already exists", self.file.display()))
                .hint("choose another file: a backup never overwrites one"));
        }
        let mut name = self.file.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        let copied = self.copy(&part);
        if copied.is_err() {
            // An incomplete file is not a backup.
            let _ = fs::remove_file(&part);
        }
        let bytes = copied?;
        eprint_line!("{} bytes in {}, verified", bytes, self.file.display());
        Ok(Exit::Success)
    }

    fn copy(&self, part: &Path) -> Result<u64, Problem> {
        let wrong = |error: io::Error| format!("can't write {}: {error}", part.display());
        let mut from = self.server.http()?.stream("/v1/backup", &[])?;
        let mut to: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(part)
            .map_err(wrong)?;
        let bytes = io::copy(&mut from, &mut to)
            .map_err(|error| format!("the backup is incomplete: {error}"))?;
        to.sync_all().map_err(wrong)?;
        holdfast_server::verify_backup(part)
            .map_err(|why| format!("the backup arrived, but can't be read: {why}"))?;
        fs::rename(part, &self.file).map_err(wrong)?;
        Ok(bytes)
    }
}
