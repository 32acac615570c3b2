//! Servers that are being asked for a stream. If one has not answered after a head start, the next
//! one is asked as well, and the first that answers is taken: so servers that hang cost little.
//!
//! An `Open` that was sent may open a session whether or not anybody still waits for it. It is
//! followed until its answer has come, and a session that nobody wants is closed.

use super::stream::{Opened, Opening};
use crate::clock::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::Status;

/// How long the close of a session that nobody wants may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// What came of asking one server.
pub(super) struct Tried {
    /// Its place in the list of servers.
    pub(super) place: usize,
    pub(super) sent: Moment,
    /// None if it has not answered in time.
    pub(super) outcome: Option<Result<Opened, Status>>,
}

/// The servers that are being asked. Dropping it ends that.
pub(super) struct Attempts {
    /// The session is attached; otherwise another one is opened.
    attaches: bool,
    report: mpsc::UnboundedSender<Tried>,
    reports: mpsc::UnboundedReceiver<Tried>,
    running: usize,
    attaching: Vec<AbortHandle>,
    wanted: Arc<AtomicBool>,
    stragglers: Stragglers,
}

/// How long one attempt may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Then the server is taken to be gone.
    pub(super) answer: Duration,
    /// For the answer to an `Open`, beyond that: then its session is over anyway.
    pub(super) late_answer: Duration,
}

/// Held by everything that follows the answer to an `Open`.
#[derive(Debug, Clone)]
pub(super) struct Stragglers {
    _held: mpsc::Sender<()>,
}

/// Waits for those.
#[derive(Debug)]
pub(super) struct StragglersEnd(mpsc::Receiver<()>);

pub(super) fn stragglers() -> (Stragglers, StragglersEnd) {
    let (held, end) = mpsc::channel(1);
    (Stragglers { _held: held }, StragglersEnd(end))
}

impl StragglersEnd {
    /// Returns when all of them are gone.
    pub(super) async fn wait(mut self) {
        // Nothing is ever sent: it ends with the last sender.
        let _ = self.0.recv().await;
    }
}

impl Attempts {
    pub(super) fn new(attaches: bool, stragglers: Stragglers) -> Self {
        let (report, reports) = mpsc::unbounded_channel();
        Self {
            attaches,
            report,
            reports,
            running: 0,
            attaching: Vec::new(),
            wanted: Arc::new(AtomicBool::new(true)),
            stragglers,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Begins to ask a server.
    pub(super) fn begin(&mut self, place: usize, opening: Opening, limits: Limits) {
        self.running += 1;
        let sent = Moment::now();
        let report = self.report.clone();
        if self.attaches {
            let task = tokio::spawn(async move {
                let outcome = timeout(limits.answer, opening.attach()).await.ok();
                let _ = report.send(Tried { place, sent, outcome });
            });
            self.attaching.push(task.abort_handle());
            return;
        }
        let (wanted, stragglers) = (self.wanted.clone(), self.stragglers.clone());
        tokio::spawn(async move {
            let open = opening.open(&wanted);
            tokio::pin!(open);
            let outcome = timeout(limits.answer, &mut open).await.ok();
            let late = outcome.is_none();
            if let Err(mpsc::error::SendError(tried)) = report.send(Tried { place, sent, outcome })
            {
                tried.discard().await;
            }
            if late && let Ok(Ok(opened)) = timeout(limits.late_answer, open).await {
                opened.close().await;
            }
            drop(stragglers);
        });
    }

    /// What came of the one that has ended first.
    pub(super) async fn next(&mut self) -> Option<Tried> {
        let tried = self.reports.recv().await;
        self.running -= 1;
        tried
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Release);
        self.attaching.iter().for_each(AbortHandle::abort);
        self.reports.close();
        while let Ok(tried) = self.reports.try_recv() {
            self.stragglers.discard(self.attaches, tried);
        }
    }
}

impl Stragglers {
    /// Closes what nobody wants.
    pub(super) fn discard(&self, attaches: bool, tried: Tried) {
        // An attached session goes on elsewhere.
        if !attaches {
            let held = self.clone();
            tokio::spawn(async move {
                tried.discard().await;
                drop(held);
            });
        }
    }
}

impl Tried {
    async fn discard(self) {
        if let Some(Ok(opened)) = self.outcome {
            opened.close().await;
        }
    }
}

impl Opened {
    /// Closes a session that nobody wants. If the server does not answer, it ends with its TTL.
    async fn close(self) {
        let _ = timeout(CLOSE_TIMEOUT, self.stream.close()).await;
    }
}
