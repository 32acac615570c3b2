//! Runs a client's requests as a task on the loop's thread, which returns it through the client's
//! queue.

use super::registry::ClientRegistry;
use crate::engine::EngineTask;
use holdfast_gateway::{Resume, Step, View};
use holdfast_zookeeper::connection::Message;
use holdfast_zookeeper::task::ClientTask;
use std::sync::Arc;

pub(super) struct Work {
    pub(super) registry: Arc<ClientRegistry>,
    pub(super) task: Box<ClientTask>,
}

impl EngineTask for Work {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        self.registry.resume(&mut self.task, view.state, resume)
    }

    fn finish(self: Box<Self>) {
        self.registry.send(self.task.client(), Message::Finished(self.task));
    }
}
