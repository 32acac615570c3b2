//! Everything that runs below this process, including children of the command that left its process
//! group, as `timeout`, `setsid` and daemons do.
//!
//! A process whose parent dies is reparented to its nearest ancestor that is a subreaper. The
//! wrapper and both guard processes are subreapers, so whatever the command starts stays below all
//! of them.
//!
//! /proc is read one file at a time: there may be more processes than this one may have open files.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, pidfd_send_signal, wait,
};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};

/// Far longer than any process's `stat`.
const STAT_BYTES_MAX: u64 = 4 << 10;

/// A process, as /proc shows it.
#[derive(PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    /// Start time. With the pid, it identifies the process even if the pid is reused.
    started: u64,
    /// Whether none of its threads is running any more.
    dead: bool,
}

impl Process {
    /// `None` if there is no such process.
    fn read(pid: i32) -> io::Result<Option<Self>> {
        present(File::open(format!("/proc/{pid}/stat")).and_then(|stat| Self::parse(pid, stat)))
    }

    fn parse(pid: i32, stat: File) -> io::Result<Self> {
        let mut text = Vec::new();
        stat.take(STAT_BYTES_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Self::from_stat(pid, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    fn from_stat(pid: i32, text: &str) -> Option<Self> {
        // The name before this may contain anything.
        let (_, text) = text.rsplit_once(") ")?;
        let mut fields = text.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads: u64 = fields.nth(15)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // The state is that of the first thread, which may end before the others.
        let dead = state == "X" || state == "Z" && threads <= 1;
        Some(Self { pid, parent, started, dead })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        // Unlike a pid, the directory never comes to mean another process.
        let Some(dir) = present(File::open(format!("/proc/{}", self.pid)))? else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let stat = openat(&dir, "stat", flags, Mode::empty()).map_err(io::Error::from);
        let now = present(stat.and_then(|stat| Self::parse(self.pid, stat.into())))?;
        if now.is_none_or(|now| now.started != self.started) {
            return Ok(());
        }
        // If it is gone it needs no signal; if it may not be signalled, the code that waits for its
        // end reports that.
        let sent = pidfd_send_signal(&dir, signal);
        // The pid means the same process only if /proc belongs to this process's namespace.
        if let Err(Errno::NOSYS | Errno::BADF) = sent
            && own_number()? == std::process::id().cast_signed()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }
}

/// `None` if the process is gone. Any other error says nothing about it.
fn present<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH) => Ok(None),
            _ => Err(error),
        },
    }
}

/// This process's pid in /proc.
fn own_number() -> io::Result<i32> {
    let link = fs::read_link("/proc/self")?;
    let number = link.to_str().and_then(|number| number.parse().ok());
    number.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The pids in /proc of this process's children.
fn children() -> io::Result<HashSet<i32>> {
    let own = own_number()?;
    let (processes, unread) = all();
    match unread {
        // Where /proc hides other users' processes.
        Some(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(processes.iter().filter(|it| it.parent == own).map(|it| it.pid).collect()),
    }
}

/// Every process that can be read, and an error if some could not be.
fn all() -> (Vec<Process>, Option<io::Error>) {
    let mut unread = None;
    let mut pids: Vec<i32> = Vec::new();
    match fs::read_dir("/proc") {
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(entry) => {
                        pids.extend(
                            entry.file_name().to_str().and_then(|it| it.parse::<i32>().ok()),
                        );
                    }
                    Err(error) => unread = Some(error),
                }
            }
        }
        Err(error) => unread = Some(error),
    }
    let mut found = Vec::new();
    for pid in pids {
        match Process::read(pid) {
            Ok(process) => found.extend(process),
            // Any other error matters more than this one.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                unread.get_or_insert(error);
            }
            Err(error) => unread = Some(error),
        }
    }
    (found, unread)
}

/// Which processes are not signalled.
pub(super) enum Spare<'a> {
    Nobody,
    /// This process's own children, but not what is below them.
    ChildEvent,
    /// What was already running before the command.
    EarlierProcesses(&'a EarlierProcesses),
}

/// Processes that were running before the command, with everything below them: the children of a
/// program that the wrapper replaced by exec, and what they leave behind when they end.
pub(super) struct EarlierProcesses {
    /// Their pids in /proc.
    children: HashSet<i32>,
    /// Anything started before this does not belong to the command. `None` if unknown.
    before: Option<u64>,
    /// Whether there were any at first: processes that they left behind may outlive them.
    may_exist: bool,
}

impl EarlierProcesses {
    /// This process's current children. Call it before the command is started.
    pub(super) fn find() -> io::Result<Self> {
        let children = children()?;
        Ok(Self { may_exist: !children.is_empty(), children, before: None })
    }

    /// Sets the child that is the first of the command's processes.
    pub(super) fn command_begins_with(&mut self, child: u32) {
        // The pid is the one in /proc only if that belongs to this process's namespace.
        let same = own_number().is_ok_and(|own| own == std::process::id().cast_signed());
        let first = same.then(|| Process::read(child.cast_signed()).ok().flatten()).flatten();
        self.before = first.map(|first| first.started);
    }

    /// A child has ended: its pid may be reused by a process of the command.
    pub(super) fn ended(&mut self, pid: Pid) {
        self.children.remove(&pid.as_raw_pid());
    }

    /// Whether this process may have children that don't belong to the command.
    pub(super) fn may_exist(&self) -> bool {
        self.may_exist
    }

    fn include(&self, child: &Process) -> bool {
        self.children.contains(&child.pid) || self.before.is_some_and(|it| child.started < it)
    }
}

/// What is running below this process.
#[derive(Default)]
pub(super) struct Descendants {
    /// Their pids in /proc.
    pub(super) pids: Vec<i32>,
    /// Why there may be more of them; `None` if these are all.
    pub(super) unread: Option<io::Error>,
}

impl Descendants {
    /// Whether it is certain that nothing is running.
    pub(super) fn is_nothing(&self) -> bool {
        self.pids.is_empty() && self.unread.is_none()
    }
}

/// The living ones of these processes below `own`, deepest first.
fn below(own: i32, processes: Vec<Process>, spare: &Spare<'_>) -> Vec<Process> {
    let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in processes {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let mut found = by_parent.remove(&own).unwrap_or_default();
    if let Spare::EarlierProcesses(others) = spare {
        found.retain(|process| !others.include(process));
    }
    let mut at = 0;
    while let Some(process) = found.get(at) {
        found.extend(by_parent.remove(&process.pid).unwrap_or_default());
        at += 1;
    }
    let spare_children = matches!(spare, Spare::ChildEvent);
    found.retain(|process| !(process.dead || spare_children && process.parent == own));
    found.reverse();
    found
}

/// Signals every living process below this one and returns them. What they start in the meantime is
/// found by the next call.
pub(super) fn signal_all(signal: Signal, spare: &Spare<'_>) -> Descendants {
    let own = match own_number() {
        Ok(own) => own,
        Err(error) => return Descendants { pids: Vec::new(), unread: Some(error) },
    };
    let (processes, unread) = all();
    let found = below(own, processes, spare);
    for process in &found {
        // If it is still there, the next call finds it again.
        let _ = process.signal(signal);
    }
    Descendants { pids: found.iter().map(|process| process.pid).collect(), unread }
}

/// What happened to this process's children.
pub(super) enum ChildEvent {
    /// One ended or was stopped.
    Changed(Pid, WaitStatus),
    /// Nothing new.
    Running,
    /// There are no children, so nothing is running below this process.
    Gone,
}

/// Never blocks.
pub(super) fn next_change() -> ChildEvent {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => return ChildEvent::Changed(pid, status),
            Ok(None) => return ChildEvent::Running,
            Err(Errno::INTR) => {}
            Err(_) => return ChildEvent::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_dead_once_its_last_thread_is() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0 0")
        };
        let read = |state, threads| Process::from_stat(7, &stat(state, threads));
        let process = |dead| Some(Process { pid: 7, parent: 3, started: 99, dead });
        assert!(read("S", 1) == process(false));
        assert!(read("Z", 2) == process(false));
        assert!(read("Z", 1) == process(true));
        assert!(read("X", 0) == process(true));
        assert!(Process::from_stat(7, "").is_none());
    }
}
