//! One server process: started, killed and started again, always by its own id.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How much of its last words an error shows.
const LAST_LINES: usize = 10;

pub(super) struct Process {
    program: PathBuf,
    args: Vec<OsString>,
    /// What it says goes there.
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that is not yet started.
    pub(super) fn new<S: Into<OsString>>(
        program: &Path,
        args: impl IntoIterator<Item = S>,
        log: PathBuf,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { program: program.to_path_buf(), args, log, child: None }
    }

    /// Starts it, or starts it again.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| format!("can't write {}: {error}", self.log.display()))?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        // Its input ends with this process; Holdfast's servers then end, too.
        command.args(&self.args).stdin(Stdio::piped()).stdout(log).stderr(errors);
        // Little is logged by anybody: what is measured is not how fast logs are written.
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

    /// Why it has ended by itself; none if it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
        Some(format!("{} has ended ({status}):\n{}", self.program.display(), last.join("\n")))
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended already needs no end.
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
