//! Whether this process may open as many files as it needs. Tokio panics where it may not.

use crate::exit::Problem;
use std::fs::File;

/// What a command opens at the same time, at most: the runtime's own files, connections to servers,
/// the sockets of guard processes.
const FILES_NEEDED: usize = 24;

/// Fails if it may not.
pub(crate) fn check() -> Result<(), Problem> {
    let mut opened = Vec::with_capacity(FILES_NEEDED);
    for _ in 0..FILES_NEEDED {
        match File::open("/dev/null") {
            Ok(file) => opened.push(file),
            Err(error) => {
                let few = opened.len();
                let why =
                    format!("can open only {few} more files, and needs {FILES_NEEDED}: {error}");
                return Err(Problem::from(why).hint("raise the limit: see `ulimit -n`"));
            }
        }
    }
    Ok(())
}
