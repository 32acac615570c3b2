//! Jobs that take too long for the loop's thread: Lua, lists of all keys, much at once. Keys are
//! read there, the job runs on a thread of its own, and what it wrote is submitted as usual.

use super::door::AtNode;
use super::door::Door;
use crate::engine::Engine;
use holdfast_core::{Command, LockName};
use holdfast_gateway::SubmitError;
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Answered, Done, Job, Listing, Run, Seen, Wanted};
use holdfast_redis::{Error, messages};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a job may take, with all its tries. One that goes through all keys has so long for
/// each step.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often a job may find that something has changed.
const TRIES_MAX: usize = 100;

/// A job that is done in the background.
pub(super) struct Background {
    door: Arc<Door>,
    job: Arc<Job>,
    /// The list of all keys, once it was made: it may be used again.
    listing: Option<Listing>,
    until: Instant,
    /// Whether the state has been current since the job began.
    current: bool,
    /// Whether something may be on its way through the log.
    wrote: bool,
}

/// What a job comes to: what is done, or else the one reply.
type Outcome = Result<Done, Reply>;

/// Does a job.
pub(super) async fn run(door: &Arc<Door>, job: Job) -> Outcome {
    let wanted = job.wanted();
    let mut background = Background {
        door: door.clone(),
        job: Arc::new(job),
        listing: None,
        until: Instant::now() + TIMEOUT,
        current: false,
        wrote: false,
    };
    // One after the other, so that they do not undo each other's work again and again.
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
    /// One try, with all its steps; none if something has changed meanwhile.
    async fn once(&mut self, mut wanted: Wanted) -> Option<Outcome> {
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
                // None of these is done in the background.
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
                            // A job that is at it step by step goes on with its list.
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

    /// What was withdrawn may be the last of several steps.
    fn trouble(&self, trouble: SubmitError) -> Error {
        match trouble {
            SubmitError::Withdrawn => messages::no_leader(self.wrote),
            // That nothing was done is true of the last step only.
            SubmitError::DiskFull | SubmitError::QueueFull if self.wrote => {
                messages::trouble(SubmitError::Unknown)
            }
            trouble => messages::trouble(trouble),
        }
    }

    fn engine(&self) -> Engine {
        self.door.engine.clone()
    }

    /// Reads what is wanted from a state that is current, or has been since the job began.
    async fn read(&mut self, wanted: &Wanted) -> Result<Seen, Error> {
        let engine = self.engine();
        if !self.current {
            self.within(engine.read(|_| ())).await?;
            self.current = true;
        }
        if wanted.listing && self.listing.is_none() {
            self.listing = Some(self.list().await?);
        }
        let (wanted, listing) = (wanted.clone(), self.listing.take().filter(|_| wanted.listing));
        self.within(engine.peek(move |node| Seen::read_with(node.state(), &wanted, listing))).await
    }

    /// Lists all keys, a page in each turn of the loop.
    async fn list(&self) -> Result<Listing, Error> {
        let engine = self.engine();
        let mut listing = self.within(engine.peek(|node| Listing::begin(node.state()))).await?;
        loop {
            let page = engine.peek(move |node| {
                let more = listing.more(node.state());
                (listing, more)
            });
            let more;
            (listing, more) = self.within(page).await?;
            if !more {
                return Ok(listing);
            }
        }
    }

    /// Runs the job with these keys, on a thread where it may take its time.
    async fn compute(&self, seen: Seen) -> Result<(Run, Seen), Error> {
        let stopped = |_| messages::trouble(SubmitError::Stopped);
        let room = self.door.room_for_scripts.clone().acquire_owned();
        let Ok(permit) = timeout_at(self.until, room).await else {
            return Err(messages::SCRIPTS_BUSY);
        };
        let permit = permit.map_err(|_| messages::trouble(SubmitError::Stopped))?;
        let channels = self.within(self.engine().channels()).await?;
        let (job, door) = (self.job.clone(), self.door.clone());
        let computing = tokio::task::spawn_blocking(move || {
            let run = job.run(&seen, &AtNode { door: &door, channels: &channels });
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
