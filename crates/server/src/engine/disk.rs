//! The disk thread: what must be durable is written together and synced once.

use super::inbox::{End, Inbox, Post};
use holdfast_node::{Input, NodeDisk, Persist, Position};
use holdfast_storage::{Disk, Fault, WriteError};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// After so much quiet the log says durably that everything is synced.
const VOUCH_AFTER: Duration = Duration::from_millis(50);

/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// Something for the disk.
pub(crate) enum Job {
    Persist(Persist),
    Compact(Position),
}

/// Runs until the loop has ended, and closes the log.
pub(crate) fn run<D: Disk>(files: NodeDisk<D>, jobs: &Receiver<Job>, inbox: &Arc<Inbox>) {
    let worker = Worker { files, inbox, wrote: None };
    if let Err(fault) = worker.work(jobs) {
        // Never retried: the system would say Ok the second time, with the data gone.
        inbox.post_always(Post::Stop(End::Fault(fault.to_string())));
    }
}

struct Worker<'a, D: Disk> {
    files: NodeDisk<D>,
    inbox: &'a Inbox,
    /// The last number written and not yet synced.
    wrote: Option<u64>,
}

impl<D: Disk> Worker<'_, D> {
    fn work(mut self, jobs: &Receiver<Job>) -> Result<(), Fault> {
        let mut quiet = true;
        loop {
            let patience = if quiet { Duration::from_secs(3600) } else { VOUCH_AFTER };
            match jobs.recv_timeout(patience) {
                Ok(job) => {
                    self.take(job, jobs)?;
                    // What came meanwhile shares the sync.
                    while let Ok(job) = jobs.try_recv() {
                        self.take(job, jobs)?;
                    }
                    self.sync()?;
                    quiet = false;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.files.vouch()?;
                    quiet = true;
                }
                Err(RecvTimeoutError::Disconnected) => return self.files.close(),
            }
        }
    }

    fn take(&mut self, job: Job, jobs: &Receiver<Job>) -> Result<(), Fault> {
        match job {
            Job::Persist(persist) => {
                self.until_there_is_room(jobs, |files| files.write(&persist))?;
                self.wrote = Some(persist.number);
            }
            Job::Compact(at) => {
                // It frees space; if there is no room even for that, the next one will do it.
                match self.files.compact(at) {
                    Err(WriteError::Full { .. }) | Ok(()) => {}
                    Err(WriteError::Fault(fault)) => return Err(fault),
                    Err(WriteError::Misuse(what)) => return Err(misuse(what)),
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if let Some(number) = self.wrote.take() {
            self.files.sync()?;
            self.inbox.post_always(Post::Input(Input::Persisted(number)));
        }
        Ok(())
    }

    /// Clients hear that the disk is full until the same write works.
    fn until_there_is_room(
        &mut self,
        jobs: &Receiver<Job>,
        write: impl Fn(&mut NodeDisk<D>) -> Result<(), WriteError>,
    ) -> Result<(), Fault> {
        let mut told = false;
        loop {
            match write(&mut self.files) {
                Ok(()) if !told => return Ok(()),
                Ok(()) => {
                    tracing::info!("the disk has room again");
                    self.inbox.post_always(Post::Input(Input::DiskFull(false)));
                    return Ok(());
                }
                Err(WriteError::Full { file, cause }) => {
                    if !told {
                        tracing::error!(
                            "the disk is full ({file}: {cause}): clients are told so until there \
                             is room; free some space"
                        );
                        self.sync()?;
                        self.inbox.post_always(Post::Input(Input::DiskFull(true)));
                        told = true;
                    }
                    std::thread::sleep(FULL_RETRY);
                    if self.inbox.is_closed() {
                        // The node is being stopped: what was not written was never acknowledged.
                        while jobs.try_recv().is_ok() {}
                        return Ok(());
                    }
                }
                Err(WriteError::Fault(fault)) => return Err(fault),
                Err(WriteError::Misuse(what)) => return Err(misuse(what)),
            }
        }
    }
}

fn misuse(what: String) -> Fault {
    Fault::Damaged { what, file: "log".to_owned(), offset: None }
}
