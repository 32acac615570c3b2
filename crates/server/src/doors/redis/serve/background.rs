//! Jobs that take too long for the loop's thread: Lua, listing all keys, large pipelines. The keys
//! are read on the loop's thread, the job runs on a thread of its own, and its writes are submitted
//! as usual.

use super::door::Door;
use super::door::NodeView;
use crate::engine::Engine;
use holdfast_core::{Command, LockName};
use holdfast_gateway::SubmitError;
use holdfast_node::Node;
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Answered, Done, Job, Listing, ReadRequest, ReadSet, Run};
use holdfast_redis::{Error, messages};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a job may take, including all its attempts. A job that goes through all keys has this
/// long for each step.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often a job may be retried because something it read has changed.
const TRIES_MAX: usize = 100;

/// A job that runs in the background.
pub(super) struct Background {
    door: Arc<Door>,
    /// On behalf of the client.
    engine: Engine,
    job: Arc<Job>,
    /// The list of all keys, once it exists: it may be reused.
    listing: Option<Listing>,
    until: Instant,
    /// Whether the state has been confirmed as current since the job began.
    current: bool,
    /// Whether a transaction may be on its way through the log.
    wrote: bool,
}

/// The outcome of a job: its result, or else a single reply.
type CallOutcome = Result<Done, Reply>;

/// Runs a job, with retries.
pub(super) async fn run(door: &Arc<Door>, engine: &Engine, job: Job) -> CallOutcome {
    let wanted = job.wanted();
    let mut background = Background {
        door: door.clone(),
        engine: engine.clone(),
        job: Arc::new(job),
        listing: None,
        until: Instant::now() + TIMEOUT,
        current: false,
        wrote: false,
    };
    // Jobs on the same key run one after the other, so that they do not keep invalidating each
    // other.
    let first: Option<LockName> = wanted.names.first().cloned();
    let Ok(_turn) = timeout_at(background.until, door.turn_for(first.as_ref())).await else {
        return Err(Reply::Error(messages::SCRIPTS_BUSY));
    };
    for _ in 0..TRIES_MAX {
        if let Some(outcome) = background.once(wanted.clone()).await {
            return outcome;
        }
    }
    Err(Reply::Error(messages::CONTENDED))
}

impl Background {
    /// One attempt, with all its steps; `None` if something it read has changed meanwhile.
    async fn once(&mut self, mut wanted: ReadRequest) -> Option<CallOutcome> {
        loop {
            let seen = match self.read(&wanted).await {
                Ok(seen) => seen,
                Err(error) => return Some(Err(Reply::Error(error))),
            };
            let (mut done, seen) = match self.compute(seen).await {
                Ok((Run::Need(more), seen)) => {
                    self.listing = seen.into_listing();
                    wanted = more;
                    continue;
                }
                Ok((Run::Done(done), seen)) => (done, seen),
                // None of these runs in the background.
                Ok((Run::Block(_) | Run::Lua | Run::Apart, _)) => {
                    return Some(Err(Reply::NullArray));
                }
                Err(error) => return Some(Err(Reply::Error(error))),
            };
            if let Some(transaction) = done.transaction.take() {
                if Instant::now() > self.until {
                    return Some(Err(Reply::Error(messages::SCRIPTS_BUSY)));
                }
                match self.propose(Command::Transact(transaction)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(refusal)) => match done.refused(&refusal) {
                        Answered::Again => {
                            // A job that goes through the keys step by step continues with its
                            // list.
                            self.listing = seen.into_listing().filter(|_| self.wrote);
                            return None;
                        }
                        Answered::Reply(reply) => return Some(Err(reply)),
                    },
                    Err(error) => return Some(Err(Reply::Error(error))),
                }
            }
            if !done.again {
                return Some(Ok(done));
            }
            self.listing = seen.into_rest();
            self.until = Instant::now() + TIMEOUT;
            self.wrote = true;
            wanted = self.job.wanted();
        }
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, SubmitError>>,
    ) -> Result<T, Error> {
        match timeout_at(self.until, asked).await {
            Ok(answered) => answered.map_err(|trouble| self.trouble(trouble)),
            Err(_) => Err(messages::no_leader(self.wrote)),
        }
    }

    /// The error for a failed step; what was withdrawn may be the last of several steps.
    fn trouble(&self, trouble: SubmitError) -> Error {
        match trouble {
            SubmitError::Withdrawn => messages::no_leader(self.wrote),
            // "Nothing was done" is only true of the last step.
            SubmitError::DiskFull | SubmitError::QueueFull if self.wrote => {
                messages::trouble(SubmitError::Unknown)
            }
            trouble => messages::trouble(trouble),
        }
    }

    fn engine(&self) -> Engine {
        self.engine.clone()
    }

    /// Reads the wanted keys from a state that has been current since the job began.
    async fn read(&mut self, wanted: &ReadRequest) -> Result<ReadSet, Error> {
        let engine = self.engine();
        if !self.current {
            self.within(engine.read(|_| ())).await?;
            self.current = true;
        }
        if wanted.listing && self.listing.is_none() {
            self.listing = Some(self.list().await?);
        }
        let (wanted, listing) = (wanted.clone(), self.listing.take().filter(|_| wanted.listing));
        let caller = engine.caller().clone();
        let read = move |node: &Node| ReadSet::read_with(&caller, node.state(), &wanted, listing);
        let read = self.within(engine.peek(read)).await?;
        read.map_err(|refusal| Error::refused(&refusal))
    }

    /// Lists all keys, one page per turn of the loop.
    async fn list(&self) -> Result<Listing, Error> {
        let engine = self.engine();
        let mut listing = self.within(engine.peek(|node| Listing::begin(node.state()))).await?;
        loop {
            let caller = engine.caller().clone();
            let page = engine.peek(move |node| {
                let more = listing.more(&caller, node.state());
                (listing, more)
            });
            let more;
            (listing, more) = self.within(page).await?;
            if !more {
                return Ok(listing);
            }
        }
    }

    /// Runs the job with these keys, on a thread that may block.
    async fn compute(&self, seen: ReadSet) -> Result<(Run, ReadSet), Error> {
        let stopped = |_| messages::trouble(SubmitError::Stopped);
        let room = self.door.room_for_scripts.clone().acquire_owned();
        let Ok(permit) = timeout_at(self.until, room).await else {
            return Err(messages::SCRIPTS_BUSY);
        };
        let permit = permit.map_err(|_| messages::trouble(SubmitError::Stopped))?;
        let channels = self.within(self.engine().channels()).await?;
        let (job, door, engine) = (self.job.clone(), self.door.clone(), self.engine.clone());
        let computing = tokio::task::spawn_blocking(move || {
            let view = NodeView { door: &door, caller: engine.caller(), channels: &channels };
            let run = job.run(&seen, &view);
            drop(permit);
            (run, seen)
        });
        computing.await.map_err(stopped)
    }

    async fn propose(
        &mut self,
        command: Command,
    ) -> Result<Result<(), holdfast_core::Refusal>, Error> {
        match self.engine().submit(None, command).await {
            Ok(answer) => Ok(answer.map(|_| ())),
            Err(trouble) => Err(self.trouble(trouble)),
        }
    }
}
