//! The guard process and the command behind it, seen from the wrapper.

use super::words::{Deadlines, LINE_BYTES_MAX, ToGuard, ToWrapper};
use crate::exit::Problem;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
    waitpgid,
};
use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

/// A guard process that does not take a word for so long is stopped.
const WORD_PATIENCE: Duration = Duration::from_millis(200);

/// How long between two looks whether a killed group is gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Process {
    guard: Child,
    to_guard: OwnedWriteHalf,
    from_guard: BufReader<OwnedReadHalf>,
    /// The command's process group, once it runs.
    group: Option<Pid>,
}

impl Process {
    /// Starts the guard process, which starts the command.
    pub(super) fn start(
        command: &[OsString],
        variables: Vec<(&'static str, OsString)>,
        deadlines: Deadlines,
    ) -> Result<Self, Problem> {
        let (ours, theirs) = StdUnixStream::pair()?;
        send_first_word(&ours, deadlines)?;
        // A guard that dies before it has named the command's group leaves the command to us.
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        let guard = Command::new("/proc/self/exe")
            .arg0("holdfast")
            .arg("guard-child")
            .arg("--")
            .args(command)
            .envs(variables)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Stopping the wrapper's group, as Ctrl-Z does, must not stop the guard.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("can't start the guard process: {error}"))?;
        ours.set_nonblocking(true)?;
        let (from_guard, to_guard) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { guard, to_guard, from_guard: BufReader::new(from_guard), group: None })
    }

    /// What the guard process says next; none if it is gone. May be given up and called again.
    pub(super) async fn next(&mut self, line: &mut Vec<u8>) -> Option<ToWrapper> {
        let mut bounded = (&mut self.from_guard).take(LINE_BYTES_MAX as u64);
        match bounded.read_until(b'\n', line).await {
            Ok(_) if line.ends_with(b"\n") => {
                let word = ToWrapper::parse(&String::from_utf8_lossy(line));
                line.clear();
                if let Some(ToWrapper::Started(pid)) = word {
                    self.group = Pid::from_raw(pid);
                    // What the command leaves behind is not ours to wait for.
                    let _ = set_child_subreaper(None);
                }
                word
            }
            _ => None,
        }
    }

    pub(super) fn group(&self) -> Option<Pid> {
        self.group
    }

    pub(super) async fn tell(&mut self, word: ToGuard) {
        let line = word.to_string();
        // One that is gone or stopped is noticed otherwise.
        let _ = timeout(WORD_PATIENCE, self.to_guard.write_all(line.as_bytes())).await;
    }

    /// Ends the command at once, also if the guard process is stopped.
    pub(super) async fn kill(&mut self) {
        self.tell(ToGuard::Kill).await;
        if let Some(group) = self.group {
            // It is not waited for yet: the guard would have said so.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// After the guard process died: returns when nothing of the command is left.
    pub(super) async fn end_without_guard(&mut self) {
        let Some(group) = self.group else { return self.end_orphans().await };
        while kill_process_group(group, Signal::KILL).is_ok() {
            // Where it became our child before its group was heard of, nobody else reaps it.
            while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
            sleep(LOOK_EVERY).await;
        }
    }

    /// The same when it did not live to name the command's group: the command is our child then.
    async fn end_orphans(&mut self) {
        // The command becomes ours when the guard is gone, which is after its socket closed.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        loop {
            for child in children() {
                let _ = kill_process_group(child, Signal::KILL);
                let _ = kill_process(child, Signal::KILL);
            }
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => sleep(LOOK_EVERY).await,
                Err(_) => return,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has said its last word, or is of no use any more.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let parent = format!("PPid:\t{}", getpid());
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = pids.filter(|pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == parent)
    });
    ours.filter_map(Pid::from_raw).collect()
}

/// The deadlines and this process's input go together: the guard's own input is the socket.
fn send_first_word(socket: &StdUnixStream, deadlines: Deadlines) -> io::Result<()> {
    let line = ToGuard::Until(deadlines).to_string();
    let stdin = io::stdin();
    let fds = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let parts = [IoSlice::new(line.as_bytes())];
    sendmsg(socket, &parts, &mut rights, SendFlags::empty())?;
    Ok(())
}
