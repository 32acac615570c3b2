//! The marker of an unfinished restore. It is the first file that a restore creates and the last
//! that it removes: a folder that has it was never started, and must not be. Without it, a restore
//! that was killed would leave a folder that starts as an empty cluster, with tokens from 1 on.

use crate::data::{IDENTITY_FILE, KEY_FILE, LOCK_FILE};
use holdfast_storage::{Disk, RealDisk};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const FILE: &str = "restoring";

/// The files that a restore writes in addition to the log and the snapshot.
const WRITTEN: [&str; 2] = [KEY_FILE, IDENTITY_FILE];
const WRITTEN_PREFIXES: [&str; 2] = ["log-", "snapshot-"];

/// Refuses a folder with an unfinished restore.
pub(crate) fn must_be_over(folder: &Path) -> Result<(), String> {
    // Only the marker's existence counts, not its content.
    if !folder.join(FILE).exists() {
        return Ok(());
    }
    let shown = folder.display();
    Err(format!(
        "a restore into {shown} did not finish, so there is no cluster in it yet: run the same \
         `holdfast restore` command again, which starts over. To start an empty cluster instead, \
         delete {shown}"
    ))
}

/// Locks and marks a folder that is empty or holds an unfinished restore.
pub(crate) fn begin(folder: &Path) -> Result<RealDisk, String> {
    let shown = folder.display();
    let failed = |error: io::Error| format!("can't restore into {shown}: {error}");
    make_marked(folder).map_err(failed)?;
    let disk = RealDisk::open(folder).map_err(failed)?;
    disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => format!("{error}: restore into another folder"),
        _ => failed(error),
    })?;
    let unfinished = folder.join(FILE).exists();
    let names = disk.list().map_err(failed)?;
    for name in names.iter().filter(|name| *name != LOCK_FILE && *name != FILE) {
        // Leftovers of another node, above all its log, must not mix with what is restored.
        if !unfinished || !is_ours(name) {
            return Err(format!(
                "{shown} is not empty ({name} is in it): restore into a new folder"
            ));
        }
    }
    // Created in place, not renamed into it: the folder is never without a marker during a restore.
    File::create(folder.join(FILE)).and_then(|file| file.sync_all()).map_err(failed)?;
    for name in names.iter().filter(|name| is_ours(name)) {
        disk.delete(name).map_err(failed)?;
    }
    disk.sync_dir().map_err(failed)?;
    Ok(disk)
}

/// Creates the folder if it does not exist. It gets its name only once the marker is in it, so a
/// restore that is killed here leaves no folder that looks new.
fn make_marked(folder: &Path) -> io::Result<()> {
    let Some(name) = folder.file_name().filter(|_| !folder.exists()) else { return Ok(()) };
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let mut beside = name.to_os_string();
    beside.push(format!(".restoring-{}", std::process::id()));
    let beside = parent.join(beside);
    DirBuilder::new().mode(0o700).create(&beside)?;
    File::create(beside.join(FILE))?;
    fs::rename(&beside, folder)?;
    File::open(parent)?.sync_all()
}

/// Removes the marker: everything is there and durable, so the folder may be started.
pub(crate) fn finish(disk: &RealDisk) -> Result<(), String> {
    let removed = fs::remove_file(disk.path().join(FILE)).and_then(|()| disk.sync_dir());
    removed.map_err(|error| format!("can't finish the restore: {error}; run it again"))
}

fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    WRITTEN.contains(&name) || WRITTEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
