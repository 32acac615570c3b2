//! The disk thread: whatever has queued up is written together and synced once.

use super::inbox::{Inbox, Post, StopReason};
use crate::metrics::Metrics;
use holdfast_node::{Input, NodeDisk, Persist, Position};
use holdfast_storage::{Disk, Fault, WriteError};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After this long without a write, the log durably records that everything in it is synced.
const VOUCH_AFTER: Duration = Duration::from_millis(50);

/// How often a write to a full disk is retried.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// Work for the disk thread.
pub(crate) enum Job {
    Persist(Persist),
    Compact(Position),
}

/// Runs until the loop has ended, then closes the log.
pub(crate) fn run<D: Disk>(
    files: NodeDisk<D>,
    jobs: &Receiver<Job>,
    inbox: &Inbox,
    metrics: &Metrics,
) {
    let worker = Worker { files, inbox, metrics, wrote: None };
    if let Err(fault) = worker.work(jobs) {
        // Never retried: the kernel may report success the second time although the data is gone.
        inbox.post_always(Post::Stop(StopReason::Fault(fault.to_string())));
    }
}

struct Worker<'a, D: Disk> {
    files: NodeDisk<D>,
    inbox: &'a Inbox,
    metrics: &'a Metrics,
    /// The number of the last write that is not yet synced.
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
                    // Whatever arrived meanwhile shares the sync.
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
                // Compaction frees space; if there is no room even for that, the next one will do
                // it.
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
            let begun = Instant::now();
            self.files.sync()?;
            self.metrics.fsync.observe(begun.elapsed().as_secs_f64());
            self.inbox.post_always(Post::Node(Input::Persisted(number)));
        }
        Ok(())
    }

    /// Retries a write until there is room for it. Meanwhile clients get a "disk full" error.
    fn until_there_is_room(
        &mut self,
        jobs: &Receiver<Job>,
        write: impl Fn(&mut NodeDisk<D>) -> Result<(), WriteError>,
    ) -> Result<(), Fault> {
        let mut reported = false;
        loop {
            match write(&mut self.files) {
                Ok(()) if !reported => return Ok(()),
                Ok(()) => {
                    tracing::info!("the disk has room again");
                    self.inbox.post_always(Post::Node(Input::DiskFull(false)));
                    return Ok(());
                }
                Err(WriteError::Full { file, cause }) => {
                    if !reported {
                        tracing::error!(
                            "the disk is full ({file}: {cause}): writes are refused until there \
                             is room; free some space"
                        );
                        self.sync()?;
                        self.inbox.post_always(Post::Node(Input::DiskFull(true)));
                        reported = true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::Limits;
    use holdfast_node::{Cluster, EntryKind, LogEntry, NodeId};
    use holdfast_sim_disk::SimDisk;
    use holdfast_storage::Options;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// A disk thread on a simulated disk.
    struct Bench {
        disk: SimDisk,
        jobs: Option<Sender<Job>>,
        inbox: Arc<Inbox>,
        thread: Option<JoinHandle<()>>,
    }

    impl Bench {
        fn new() -> Self {
            let disk = SimDisk::new();
            let cluster = Cluster::begin([(NodeId(1), String::new())]);
            NodeDisk::begin(&disk, &cluster).unwrap();
            let (files, _) = open(&disk);
            let (jobs, taken) = channel();
            let inbox = Arc::new(Inbox::new());
            let reported = inbox.clone();
            let thread = std::thread::spawn(move || run(files, &taken, &reported, &Metrics::new()));
            Self { disk, jobs: Some(jobs), inbox, thread: Some(thread) }
        }

        fn persist(&self, number: u64) {
            let at = Position { index: number + 1, term: 1 };
            let entry = LogEntry { at, kind: EntryKind::Batch, data: vec![7; 100] };
            let persist =
                Persist { number, installed: None, entries: vec![entry], hard_state: None };
            self.jobs.as_ref().unwrap().send(Job::Persist(persist)).unwrap();
        }

        /// The next messages from the disk thread to the loop.
        fn reported(&self) -> Vec<String> {
            let mut posts = Vec::new();
            self.inbox.take(&mut posts, Duration::from_secs(60));
            let message = |post| match post {
                Post::Node(input) => format!("{input:?}"),
                Post::Stop(StopReason::Fault(why) | StopReason::Lost { why, .. }) => {
                    format!("stop: {why}")
                }
                _ => "something else".to_owned(),
            };
            posts.into_iter().map(message).collect()
        }

        /// Whether a message with this prefix arrives.
        fn posts_message(&self, wanted: &str) -> bool {
            (0..1_000).any(|_| self.reported().iter().any(|message| message.starts_with(wanted)))
        }

        fn end(&mut self) -> Vec<u64> {
            drop(self.jobs.take());
            self.thread.take().unwrap().join().unwrap();
            self.disk.end_process();
            open(&self.disk).1.entries.iter().map(|entry| entry.at.index).collect()
        }
    }

    fn open(disk: &SimDisk) -> (NodeDisk<SimDisk>, holdfast_node::Boot) {
        let options = Options { segment_bytes: 4096, ..Options::default() };
        NodeDisk::open(disk, options, Limits::DEFAULT, 0).unwrap()
    }

    #[test]
    fn acknowledged_writes_survive_a_restart() {
        let mut bench = Bench::new();
        for number in 1..=9 {
            bench.persist(number);
        }
        assert!(bench.posts_message("Persisted(9)"));
        assert_eq!(bench.end(), (2..=10).collect::<Vec<u64>>());
    }

    #[test]
    fn write_is_retried_after_a_full_disk() {
        let mut bench = Bench::new();
        bench.persist(1);
        assert!(bench.posts_message("Persisted(1)"));
        bench.disk.inject(|faults| faults.write_full_after_bytes = Some(0));
        bench.persist(2);
        assert!(bench.posts_message("DiskFull(true)"));
        bench.disk.inject(|faults| faults.write_full_after_bytes = None);
        assert!(bench.posts_message("DiskFull(false)"));
        bench.persist(3);
        assert!(bench.posts_message("Persisted(3)"));
        assert_eq!(bench.end(), [2, 3, 4]);
    }

    #[test]
    fn failed_sync_stops_the_node_and_is_not_retried() {
        let bench = Bench::new();
        bench.persist(1);
        assert!(bench.posts_message("Persisted(1)"));
        bench.disk.inject(|faults| faults.sync_error_after = Some(0));
        bench.persist(2);
        let reported = bench.reported();
        assert!(reported.iter().any(|message| message.contains("did not confirm")), "{reported:?}");
        assert!(!reported.iter().any(|message| message.starts_with("Persisted")), "{reported:?}");
        let syncs = bench.disk.counts().syncs;
        let sent = bench.jobs.as_ref().unwrap().send(Job::Compact(Position::default()));
        assert!(sent.is_err() || bench.disk.counts().syncs == syncs);
    }
}
