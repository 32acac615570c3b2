//! Checks that this process may open as many files as it needs: tokio panics if it may not.

use crate::exit::Problem;
use std::fs::File;

/// The most files that a command has open at a time: the runtime's own, connections to servers, the
/// guard processes' sockets.
const FILES_NEEDED: usize = 24;

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
