//! How one process of the wrapper starts the next: the same program, with a socket as its stdin.
//!
//! The socket passes the file descriptors that the new process needs (the command's stdin, the
//! deadlines, the wrapper's socket), and closes when the parent dies.

use super::env::Variables;
use crate::exit::Problem;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::time::Timespec;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The most file descriptors ever passed.
const FDS_MAX: usize = 3;

/// A program's name is cut to this in a message, which must fit on one line.
const SHOWN_CHARS_MAX: usize = 500;

/// Starts this program again as the hidden subcommand `role` and passes `fds` to it. It gets a
/// process group of its own, so that stopping one of these processes by its group does not stop the
/// others. Returns the process and this end of its socket.
pub(super) fn start(
    role: &[&str],
    command: &[OsString],
    variables: Variables,
    fds: &[BorrowedFd<'_>],
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    send(&ours, fds)?;
    let mut guard = Command::new("/proc/self/exe");
    guard.arg0("holdfast").args(role).arg("--").args(command);
    for (name, value) in variables {
        match value {
            Some(value) => guard.env(name, value),
            None => guard.env_remove(name),
        };
    }
    let child = guard.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0).spawn()?;
    Ok((child, ours))
}

fn send(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut rights, SendFlags::empty())?;
    Ok(())
}

/// What this process got from its parent.
pub(super) struct Handoff<const N: usize> {
    /// Closes when the parent dies.
    pub(super) starter: UnixStream,
    pub(super) fds: [OwnedFd; N],
}

impl<const N: usize> Handoff<N> {
    /// From standard input.
    pub(super) fn receive() -> Result<Self, Problem> {
        let by_hand = || Problem::usage("this is started by `holdfast lock`, never by hand");
        let starter = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(&starter, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
            .map_err(|_| by_hand())?;
        let fds: Vec<OwnedFd> = rights
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        let fds = fds.try_into().map_err(|_| by_hand())?;
        starter.set_nonblocking(true)?;
        Ok(Self { starter, fds })
    }
}

/// Whether the process at the other end is gone. Never blocks.
pub(super) fn is_closed(socket: &UnixStream) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    let looked = poll(&mut fds, Some(&Timespec::default()));
    looked.is_ok()
        && fds.iter().any(|fd| fd.revents().intersects(PollFlags::RDHUP | PollFlags::HUP))
}

/// The exit code and message that shells use when a command can't be started.
pub(super) fn not_started(program: &OsStr, error: &io::Error) -> (u8, String) {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let shown: String = program.to_string_lossy().chars().take(SHOWN_CHARS_MAX).collect();
    (code, format!("can't run {shown}: {error}"))
}
