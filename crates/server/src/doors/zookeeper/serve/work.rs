//! A client's requests on the loop's thread; they come back through the client's mailbox.

use super::switchboard::{Letter, Switchboard};
use crate::engine::EngineTask;
use holdfast_gateway::{Resume, Step, View};
use holdfast_zookeeper::task::ClientTask;
use std::sync::Arc;

pub(super) struct Work {
    pub(super) switchboard: Arc<Switchboard>,
    pub(super) task: Box<ClientTask>,
}

impl EngineTask for Work {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        let (client, task) = (self.task.client(), &mut self.task);
        let step = |clients: &mut _| task.resume(view.state, clients, resume);
        // What a client that has gone asked for would be kept for nobody.
        self.switchboard.with_clients(client, step).unwrap_or(Step::Done)
    }

    fn finish(self: Box<Self>) {
        self.switchboard.send(self.task.client(), Letter::Finished(self.task));
    }
}
