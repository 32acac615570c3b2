//! A client's requests on the loop's thread; they come back through the client's queue.

use super::registry::{ClientRegistry, Message};
use crate::engine::EngineTask;
use holdfast_gateway::{Resume, Step, View};
use holdfast_zookeeper::task::ClientTask;
use std::sync::Arc;

pub(super) struct Work {
    pub(super) registry: Arc<ClientRegistry>,
    pub(super) task: Box<ClientTask>,
}

impl EngineTask for Work {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        let (client, task) = (self.task.client(), &mut self.task);
        let step = |clients: &mut _| task.resume(view.state, clients, resume);
        // What a client that has gone asked for would be kept for nobody.
        self.registry.with_clients(client, step).unwrap_or(Step::Done)
    }

    fn finish(self: Box<Self>) {
        self.registry.send(self.task.client(), Message::Finished(self.task));
    }
}
