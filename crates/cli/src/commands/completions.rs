//! `holdfast completions`: shell completion scripts.

use crate::exit::{Exit, Problem};
use crate::table::say;
use clap::Args;
use clap_complete::Shell;

/// Prints a script for that shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast completions bash > holdfast.bash
  holdfast completions zsh > _holdfast")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: clap::Command) -> Result<Exit, Problem> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "holdfast", &mut script);
        say(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Success)
    }
}
