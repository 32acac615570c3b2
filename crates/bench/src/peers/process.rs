//! One server process: started, killed and restarted, always by its own pid.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How many lines of its log an error shows.
const LAST_LINES: usize = 10;

pub(super) struct Process {
    program: PathBuf,
    args: Vec<OsString>,
    /// Its stdout and stderr go here.
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that is not started yet.
    pub(super) fn new<S: Into<OsString>>(
        program: &Path,
        args: impl IntoIterator<Item = S>,
        log: PathBuf,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { program: program.to_path_buf(), args, log, child: None }
    }

    /// Starts or restarts it.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| format!("can't write {}: {error}", self.log.display()))?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        // Its stdin closes when this process ends, which makes Holdfast's servers stop.
        command.args(&self.args).stdin(Stdio::piped()).stdout(log).stderr(errors);
        // No server logs much: logging is not what is measured.
        command.env("HOLDFAST_LOG", "warn");
        let child = command.spawn();
        let child =
            child.map_err(|error| format!("can't start {}: {error}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Why it has exited by itself; `None` if it is running.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let printed = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = printed.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
        Some(format!("{} has ended ({status}):\n{}", self.program.display(), last.join("\n")))
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // If it has already exited, the error does not matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
