//! The terminal: a command that runs in its own process group must be the one that Ctrl-C, Ctrl-Z
//! and the keyboard belong to.

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};
use std::io::stdin;

/// A terminal that this process may hand on.
pub(super) struct Terminal {
    before: Option<Termios>,
    given: bool,
}

impl Terminal {
    /// The one on standard input, if this process is the one that it belongs to.
    pub(super) fn own() -> Option<Self> {
        let ours = isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        ours.then(|| Self { before: tcgetattr(stdin()).ok(), given: false })
    }

    /// From now on it belongs to that group.
    pub(super) fn give(&mut self, group: Pid) {
        // If it can't be given, the command finds out when it reads.
        quietly(|| self.given |= tcsetpgrp(stdin(), group).is_ok());
    }

    /// From now on it belongs to this process again; as it was, if the command could not tidy up.
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

/// Whoever is not in front is stopped for changing the terminal, unless it does not hear of it.
fn quietly(change: impl FnOnce()) {
    let mut unheard = SigSet::empty();
    unheard.add(Signal::SIGTTOU);
    if unheard.thread_block().is_ok() {
        change();
        let _ = unheard.thread_unblock();
    }
}
