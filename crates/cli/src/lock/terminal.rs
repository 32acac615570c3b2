//! The terminal: a command that runs in its own process group must be in the foreground, so that it
//! gets Ctrl-C, Ctrl-Z and keyboard input.

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};
use std::io::stdin;

/// A terminal whose foreground group this process may change.
pub(super) struct Terminal {
    before: Option<Termios>,
    given: bool,
}

impl Terminal {
    /// The terminal on stdin; `None` if there is none, or this process is not in its foreground
    /// group.
    pub(super) fn own() -> Option<Self> {
        let ours = isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        ours.then(|| Self { before: tcgetattr(stdin()).ok(), given: false })
    }

    /// Makes `group` the foreground group.
    pub(super) fn give(&mut self, group: Pid) {
        // If this fails, the command finds out when it reads.
        quietly(|| self.given |= tcsetpgrp(stdin(), group).is_ok());
    }

    /// Makes this process's group the foreground group again. `tidy` also restores the terminal's
    /// settings, for a command that could not do that itself.
    pub(super) fn take_back(&mut self, tidy: bool) {
        if !std::mem::take(&mut self.given) {
            return;
        }
        quietly(|| {
            let _ = tcsetpgrp(stdin(), getpgrp());
            if let (true, Some(before)) = (tidy, &self.before) {
                let _ = tcsetattr(stdin(), OptionalActions::Now, before);
            }
        });
    }
}

/// A background process is stopped by SIGTTOU for changing the terminal, unless it blocks that
/// signal.
fn quietly(change: impl FnOnce()) {
    let mut unheard = SigSet::empty();
    unheard.add(Signal::SIGTTOU);
    if unheard.thread_block().is_ok() {
        change();
        let _ = unheard.thread_unblock();
    }
}
