//! The Redis door without its sockets, as far as a lock needs it: a job of the door is a task of the
//! gateway.

use bytes::Bytes;
use holdfast_core::{LockName, State, Token};
use holdfast_gateway::{CallId, Resume, Step, Task, View};
use holdfast_redis::client::{Client, Plan};
use holdfast_redis::lua::Scripts;
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Job, Local, NodeFacts};
use holdfast_redis::{JobOutcome, JobTask};
use std::sync::Arc;

/// As the documentation of Redis has it.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// `SET name value NX PX ttl_ms`.
pub(crate) fn set(name: &LockName, value: &str, ttl_ms: u64) -> Vec<Bytes> {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let words = ["SET", "", value, "NX", "PX"].map(|word| Bytes::from(word.to_owned()));
    let [set, _, value, nx, px] = words;
    vec![set, name, value, nx, px, Bytes::from(ttl_ms.to_string())]
}

/// Deletes a key if it has that value.
pub(crate) fn release(name: &LockName, value: &str) -> Vec<Bytes> {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let words = ["EVAL", RELEASE, "1", value].map(|word| Bytes::from(word.to_owned()));
    let [eval, script, keys, value] = words;
    vec![eval, script, keys, name, value]
}

/// A request on its way through the gateway.
pub(crate) struct RedisTask {
    pub(crate) call: CallId,
    task: JobTask,
    here: NodeFacilities,
}

impl RedisTask {
    /// None if it is nothing for the gateway.
    pub(crate) fn new(call: CallId, request: &[Bytes], scripts: Arc<Scripts>) -> Option<Self> {
        let Plan::Run(job) = Client::new(call.0, false).take(&request.to_vec()) else {
            return None;
        };
        Some(Self::of(call, job, scripts))
    }

    fn of(call: CallId, job: Job, scripts: Arc<Scripts>) -> Self {
        let mut task = JobTask::default();
        task.begin(job);
        Self { call, task, here: NodeFacilities { scripts, random: call.0 } }
    }

    /// Whether it was done, as far as its caller can tell.
    pub(crate) fn succeeded(mut self) -> bool {
        let replies = match self.task.take_outcome() {
            JobOutcome::Done(done) => done.replies,
            JobOutcome::Replies(replies) => replies,
            JobOutcome::Elsewhere(_) | JobOutcome::Failed(_) => Vec::new(),
        };
        matches!(replies.first(), Some(Reply::Status(_) | Reply::Integer(1)))
    }
}

impl Task for RedisTask {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        self.task.resume(view, &self.here, resume)
    }
}

/// The ticket that holds a lock under that value.
pub(crate) fn holder(state: &State, name: &LockName, value: &str) -> Option<Token> {
    let holders = state.lock_view(name, 1)?.holders;
    let named = |label: &[u8]| label == value.as_bytes();
    let held = holders.iter().find(|held| held.label.as_ref().is_some_and(|l| named(l.as_bytes())));
    held.map(|held| held.token)
}

struct NodeFacilities {
    scripts: Arc<Scripts>,
    random: u64,
}

impl Local for NodeFacilities {
    fn wall_ms(&self) -> u64 {
        0
    }

    fn random(&self) -> u64 {
        self.random
    }

    fn subscribers(&self, _: &[u8]) -> usize {
        0
    }

    fn channels(&self) -> Vec<(Bytes, usize)> {
        Vec::new()
    }

    fn patterns(&self) -> usize {
        0
    }

    fn facts(&self) -> NodeFacts {
        NodeFacts::default()
    }

    fn scripts(&self) -> &Scripts {
        &self.scripts
    }
}
