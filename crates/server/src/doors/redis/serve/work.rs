//! A connection's job on the loop's thread; it is sent back through the connection's channel.

use super::door::{Door, NodeView};
use crate::engine::EngineTask;
use holdfast_gateway::{Resume, Step, View};
use holdfast_redis::run::Job;
use holdfast_redis::{JobOutcome, JobTask};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;

pub(super) struct Work {
    door: Arc<Door>,
    line: mpsc::Sender<Box<Work>>,
    task: JobTask,
}

impl Work {
    pub(super) fn new(door: Arc<Door>, line: mpsc::Sender<Box<Self>>) -> Box<Self> {
        Box::new(Self { door, line, task: JobTask::default() })
    }

    /// Sets the next job.
    pub(super) fn begin(&mut self, job: Job) {
        self.task.begin(job);
    }

    /// The job's outcome.
    pub(super) fn take_outcome(&mut self) -> JobOutcome {
        self.task.take_outcome()
    }
}

impl EngineTask for Work {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        self.door.keys.store(view.state.keys_len(), Ordering::Relaxed);
        let local = NodeView { door: &self.door, caller: view.caller, channels: view.channels };
        self.task.resume(view, &local, resume)
    }

    fn finish(self: Box<Self>) {
        let line = self.line.clone();
        // If the connection is gone, nobody needs the result.
        let _ = line.try_send(self);
    }
}
