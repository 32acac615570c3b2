//! Runs tasks.

use crate::Caller;
use crate::blocked::Entry;
use crate::calls::Kind;
use crate::gateway::{CallPlace, Gateway};
use crate::io::{CallId, Driver, Output};
use crate::task::{Resume, Step, Task};
use holdfast_core::{KeyKind, LockName};
use holdfast_node::{self as node, Node, Reply, RequestTag};
use std::time::Duration;

/// A task that is about to resume.
pub(crate) struct Running<T> {
    pub(crate) caller: Caller,
    pub(crate) call: CallId,
    pub(crate) task: T,
    pub(crate) woken: Option<Woken>,
    /// When it times out while blocked; `None` is never.
    pub(crate) until: Option<Duration>,
}

/// The name that a task was woken for, and its place among the blocked tasks.
#[derive(Debug, Clone)]
pub(crate) struct Woken {
    pub(crate) name: LockName,
    pub(crate) kind: KeyKind,
    pub(crate) place: u64,
}

impl<D: Driver> Gateway<D> {
    /// Runs a task's next step.
    pub(crate) fn go_on(
        &mut self,
        running: Running<D::Task>,
        resume: Resume,
        now: Duration,
        node: &Node,
    ) {
        let Running { caller, call, mut task, woken, until } = running;
        let mut resume = resume;
        let input = loop {
            match task.resume(&self.view(&caller, node), resume) {
                Step::Submit(command) => match self.checked(&caller, command, now, node) {
                    Err(refusal) => resume = Resume::Replied(Reply::Answer(Err(refusal))),
                    Ok(command) => {
                        self.submitted += 1;
                        let ask =
                            self.wait_for_reply(Running { caller, call, task, woken, until }, now);
                        break node::Input::Submit { ask, request: None, command };
                    }
                },
                Step::Read => {
                    let ask =
                        self.wait_for_reply(Running { caller, call, task, woken, until }, now);
                    break node::Input::Read(ask);
                }
                Step::Block { names, kind } => {
                    let place = woken.map(|woken| woken.place);
                    let entry = Entry { caller, call, task, names, kind, until };
                    if until.is_some_and(|until| until <= now) {
                        self.time_out(entry, node);
                    } else if let Err(entry) = self.blocked.put(entry, place) {
                        self.end(entry, Resume::NoRoom, node);
                    } else {
                        self.places.insert(call, CallPlace::Blocked);
                    }
                    return;
                }
                Step::Done => {
                    self.places.remove(&call);
                    self.stirred.extend(woken.map(|woken| (woken.name, woken.kind)));
                    self.outputs.push(Output::Finished(task));
                    return;
                }
            }
        };
        self.node_inputs.push(input);
    }

    fn wait_for_reply(&mut self, running: Running<D::Task>, now: Duration) -> RequestTag {
        let Running { caller, call, task, woken, until } = running;
        let ask = self.pending(Some(call), now, Kind::Task { caller, task, woken, until });
        self.places.insert(call, CallPlace::Pending(ask.0 as usize));
        ask
    }

    /// A task was blocked for too long.
    pub(crate) fn time_out(&mut self, entry: Entry<D::Task>, node: &Node) {
        self.end(entry, Resume::TimedOut, node);
    }

    fn end(&mut self, mut entry: Entry<D::Task>, resume: Resume, node: &Node) {
        // Its next step does not matter: it is over.
        let _ = entry.task.resume(&self.view(&entry.caller, node), resume);
        self.places.remove(&entry.call);
        self.outputs.push(Output::Finished(entry.task));
    }

    /// Resumes tasks that have a reply, and those that were blocked on an object that is now there.
    pub(crate) fn resume_tasks(&mut self, now: Duration, node: &Node) {
        let mut replied = std::mem::take(&mut self.replied);
        for (running, reply) in replied.drain(..) {
            self.go_on(running, Resume::Replied(reply), now, node);
        }
        self.replied = replied;
        // The longest-blocked task goes first. What it leaves is for the next one.
        while let Some((name, kind)) = self.stirred.pop() {
            if let Some((entry, place)) = self.blocked.wake(&name, kind) {
                let woken = Some(Woken { name, kind, place });
                let Entry { caller, call, task, until, .. } = entry;
                let running = Running { caller, call, task, woken, until };
                self.go_on(running, Resume::Woken, now, node);
            }
        }
    }

    /// Wakes all tasks: objects may have been put under any name.
    pub(crate) fn wake_all(&mut self, now: Duration, node: &Node) {
        let all: Vec<_> = std::iter::from_fn(|| self.blocked.wake_any()).collect();
        for (Entry { caller, call, task, names, kind, until }, place) in all {
            let name = names.into_iter().next();
            let woken = name.map(|name| Woken { name, kind, place });
            let running = Running { caller, call, task, woken, until };
            self.go_on(running, Resume::Woken, now, node);
        }
    }
}
