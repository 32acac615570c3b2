//! The machine that the figures come from: without it they mean little.

use crate::stats::median;
use rustix::fs::statfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fs;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Instant;

/// What `statfs` reports for a file system in memory, where fsync costs nothing.
const TMPFS: i64 = 0x0102_1994;

/// How many syncs are timed.
const SYNCS: usize = 200;

/// What is written before each sync.
const BLOCK: [u8; 4096] = [7; 4096];

/// The state of the machine at the start of the run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    cores: usize,
    kernel: String,
    /// The load average of the last minute. If it is more than a fraction, the machine is not
    /// quiet.
    load: f64,
    /// The median time of an fdatasync of 4 KiB in the folder of the servers' data.
    fdatasync_us: f64,
    pub(crate) data_in_memory: bool,
}

impl Machine {
    pub(crate) fn look(folder: &Path) -> Result<Self, String> {
        let say = |error| format!("can't write to {}: {error}", folder.display());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|load| load.parse().ok());
        let kind = statfs(folder).map_err(|error| say(error.into()))?.f_type;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            load: load.unwrap_or(0.0),
            fdatasync_us: fdatasync_us(folder).map_err(say)?,
            data_in_memory: kind == TMPFS,
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "cores": self.cores,
            "kernel": self.kernel,
            "load": self.load,
            "fdatasync_us": self.fdatasync_us,
            "data_in_memory": self.data_in_memory,
        })
    }

    pub(crate) fn to_line(&self) -> String {
        format!(
            "{} cores, Linux {}, load {:.2} at the start, fdatasync of 4 KiB {:.0} us",
            self.cores, self.kernel, self.load, self.fdatasync_us
        )
    }
}

/// A thousand connections need more open files than many shells allow. Servers inherit the limit.
pub(crate) fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it can't be raised, a measurement that needs more will report that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn fdatasync_us(folder: &Path) -> std::io::Result<f64> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.rewind()?;
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&took).unwrap_or(0.0))
}
