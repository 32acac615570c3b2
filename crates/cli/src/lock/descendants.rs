//! Everything that runs below this process: the command's children too that left its process group,
//! as `timeout`, `setsid` and daemons do.
//!
//! A process whose parent dies is given to the nearest ancestor that is a subreaper. The wrapper and
//! both guard processes are, so whatever the command starts stays below all of them.

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, pidfd_send_signal, wait,
};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;

/// The part of a process's status that is looked at is far shorter.
const STATUS_BYTES_MAX: u64 = 16 << 10;

/// A process, as /proc shows it.
struct Process {
    /// Its directory in /proc: unlike a number, it never comes to mean another process.
    dir: File,
    pid: i32,
    parent: i32,
    /// A zombie does nothing any more.
    zombie: bool,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let dir = File::open(format!("/proc/{pid}")).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let status = File::from(openat(&dir, "status", flags, Mode::empty()).ok()?);
        let mut text = Vec::new();
        status.take(STATUS_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let parent = field("PPid:")?.trim().parse().ok()?;
        let zombie = field("State:")?.trim().starts_with(['Z', 'X']);
        Some(Self { dir, pid, parent, zombie })
    }

    fn signal(&self, signal: Signal) {
        // The number means the same process only if /proc belongs to this process's namespace.
        let by_number = || {
            let same = own_number() == Some(std::process::id().cast_signed());
            Pid::from_raw(self.pid).filter(|_| same).map(|pid| kill_process(pid, signal))
        };
        // One that is gone needs no signal, and one that may not be signalled is reported by whoever
        // waits for its end.
        let sent = pidfd_send_signal(&self.dir, signal);
        if let Err(rustix::io::Errno::NOSYS | rustix::io::Errno::BADF) = sent {
            by_number();
        }
    }
}

/// This process's number in /proc.
fn own_number() -> Option<i32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// The processes directly below this one, by their numbers in /proc.
pub(super) fn children() -> HashSet<i32> {
    let Some(own) = own_number() else { return HashSet::new() };
    all().filter(|process| process.parent == own).map(|process| process.pid).collect()
}

fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read)
}

/// Who is left alone.
pub(super) enum Spare<'a> {
    Nobody,
    /// This process's own children, but not what is below them.
    Children,
    /// These children with all that is below them, by their numbers in /proc.
    Trees(&'a HashSet<i32>),
}

/// The living processes below this one, the deepest first.
fn below(spare: &Spare<'_>) -> Vec<Process> {
    let Some(own) = own_number() else { return Vec::new() };
    let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let mut found = by_parent.remove(&own).unwrap_or_default();
    if let Spare::Trees(roots) = spare {
        found.retain(|process| !roots.contains(&process.pid));
    }
    let mut at = 0;
    while let Some(process) = found.get(at) {
        found.extend(by_parent.remove(&process.pid).unwrap_or_default());
        at += 1;
    }
    let spare_children = matches!(spare, Spare::Children);
    found.retain(|process| !(process.zombie || spare_children && process.parent == own));
    found.reverse();
    found
}

/// Signals every living process below this one; returns their numbers. What they start meanwhile
/// is found by the next call.
pub(super) fn signal_all(signal: Signal, spare: &Spare<'_>) -> Vec<i32> {
    let found = below(spare);
    found.iter().for_each(|process| process.signal(signal));
    found.iter().map(|process| process.pid).collect()
}

/// What became of this process's children.
pub(super) enum Children {
    /// One ended or was stopped.
    Changed(Pid, WaitStatus),
    /// Nothing new.
    Running,
    /// There are none, so nothing runs below this process.
    Gone,
}

/// Never blocks.
pub(super) fn next_change() -> Children {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => return Children::Changed(pid, status),
            Ok(None) => return Children::Running,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Children::Gone,
        }
    }
}
