//! Clients at work: each takes and releases its lock over and over; their times are recorded only
//! during the measured time.

use crate::clients::Client;
use crate::procfs;
use crate::stats::{percentile, sorted};
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Which part of each turn is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timed {
    /// From requesting the lock until it is released.
    Pair,
    /// From requesting the lock until it is held.
    Wait,
}

/// What happened during the measured time.
pub(super) struct Recorded {
    /// How long each turn took, in milliseconds, shortest first.
    took_ms: Vec<f64>,
    /// How many clients finished nothing.
    idle: usize,
    elapsed: Duration,
    cpu: Duration,
}

impl Recorded {
    pub(super) fn count(&self) -> usize {
        self.took_ms.len()
    }

    /// An error if a client made no progress: then the figures are not for this many clients.
    pub(super) fn all_worked(self) -> Result<Self, String> {
        if self.idle > 0 {
            let idle = self.idle;
            return Err(format!("{idle} clients finished nothing: try more --seconds"));
        }
        Ok(self)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64()
    }

    /// In milliseconds.
    pub(super) fn percentile(&self, part: f64) -> Result<f64, String> {
        let none = "nothing was finished in the measured time: try more --seconds";
        percentile(&self.took_ms, part).ok_or_else(|| none.to_owned())
    }

    /// The servers' CPU time per turn, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count().max(1) as f64
    }
}

#[derive(Default)]
struct Recorder {
    open: AtomicBool,
    /// Which client, and how long it took.
    took: Mutex<Vec<(usize, Duration)>>,
}

impl Recorder {
    fn write(&self, who: usize, took: Duration) {
        if self.open.load(Ordering::Relaxed) {
            self.took.lock().unwrap_or_else(PoisonError::into_inner).push((who, took));
        }
    }
}

/// Clients at work. They stop when this is dropped.
#[derive(Default)]
pub(super) struct Workers {
    at_work: JoinSet<Result<Infallible, String>>,
    recorder: Arc<Recorder>,
}

impl Workers {
    /// Puts one more client to work on the lock `name`.
    pub(super) fn add(&mut self, client: Box<dyn Client>, name: String, timed: Timed) {
        let who = self.at_work.len();
        self.at_work.spawn(work(client, who, name, timed, self.recorder.clone()));
    }

    /// Lets time pass; returns early if a client fails.
    pub(super) async fn pass(&mut self, time: Duration) -> Result<(), String> {
        tokio::select! {
            () = sleep(time) => Ok(()),
            Some(ended) = self.at_work.join_next() => match ended {
                Ok(Err(why)) => Err(why),
                Err(error) => Err(format!("a client failed: {error}")),
            },
        }
    }

    /// Records what the clients do for `time`, and the CPU time of these processes.
    pub(super) async fn record(
        &mut self,
        time: Duration,
        pids: &[u32],
    ) -> Result<Recorded, String> {
        let cpu_before = procfs::cpu(pids)?;
        let begun = Instant::now();
        self.recorder.open.store(true, Ordering::Relaxed);
        self.pass(time).await?;
        self.recorder.open.store(false, Ordering::Relaxed);
        let elapsed = begun.elapsed();
        let cpu = procfs::cpu(pids)?.saturating_sub(cpu_before);
        let took = self.recorder.took.lock();
        let took = std::mem::take(&mut *took.unwrap_or_else(PoisonError::into_inner));
        let active: HashSet<usize> = took.iter().map(|(who, _)| *who).collect();
        let idle = self.at_work.len().saturating_sub(active.len());
        let took_ms: Vec<f64> = took.iter().map(|(_, took)| took.as_secs_f64() * 1e3).collect();
        Ok(Recorded { took_ms: sorted(&took_ms), idle, elapsed, cpu })
    }
}

/// Runs until it is aborted, or something fails.
async fn work(
    mut client: Box<dyn Client>,
    who: usize,
    name: String,
    timed: Timed,
    recorder: Arc<Recorder>,
) -> Result<Infallible, String> {
    loop {
        let asked = Instant::now();
        client.acquire(&name).await?;
        if timed == Timed::Wait {
            recorder.write(who, asked.elapsed());
        }
        client.release().await?;
        if timed == Timed::Pair {
            recorder.write(who, asked.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Step;

    struct Quick {
        fails: bool,
    }

    impl Client for Quick {
        fn acquire<'a>(&'a mut self, _: &'a str) -> Step<'a> {
            Box::pin(async {
                sleep(Duration::from_millis(1)).await;
                if self.fails { Err("refused".to_owned()) } else { Ok(()) }
            })
        }

        fn release(&mut self) -> Step<'_> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn only_work_within_the_measured_time_counts() {
        let mut workers = Workers::default();
        for _ in 0..3 {
            workers.add(Box::new(Quick { fails: false }), "a".to_owned(), Timed::Pair);
        }
        workers.pass(Duration::from_millis(20)).await.expect("nobody fails");
        let recorded = workers.record(Duration::from_millis(200), &[std::process::id()]).await;
        let recorded = recorded.expect("nobody fails");
        assert!(recorded.count() > 0);
        assert!(recorded.percentile(0.5).expect("there are turns") >= 1.0);
    }

    struct Stuck;

    impl Client for Stuck {
        fn acquire<'a>(&'a mut self, _: &'a str) -> Step<'a> {
            Box::pin(std::future::pending())
        }

        fn release(&mut self) -> Step<'_> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn idle_clients_are_reported() {
        let mut workers = Workers::default();
        workers.add(Box::new(Quick { fails: false }), "a".to_owned(), Timed::Pair);
        workers.add(Box::new(Stuck), "b".to_owned(), Timed::Pair);
        let recorded = workers.record(Duration::from_millis(200), &[std::process::id()]).await;
        let worked = recorded.and_then(Recorded::all_worked);
        assert!(matches!(worked, Err(why) if why.starts_with("1 clients finished nothing")));
    }

    #[tokio::test]
    async fn a_failing_client_ends_the_measurement() {
        let mut workers = Workers::default();
        workers.add(Box::new(Quick { fails: true }), "a".to_owned(), Timed::Wait);
        let recorded = workers.record(Duration::from_secs(600), &[std::process::id()]).await;
        assert!(matches!(recorded, Err(why) if why == "refused"));
    }
}
