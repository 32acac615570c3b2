//! A job on the loop's thread: run with the state as it is there, proposed at once if it writes,
//! and run again if something has changed meanwhile.

use super::door::Door;
use super::words;
use crate::engine::{Errand, Next, Now, trouble};
use holdfast_core::Command;
use holdfast_gateway::SubmitError;
use holdfast_node::{Node, Reply as Told};
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Answered, Done, Job, Run, Seen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// How often a job may find that something has changed. Each time somebody else got on.
const TRIES_MAX: usize = 1_000;

/// A job that goes to the loop's thread and comes back over its connection's line.
pub(super) struct Work {
    door: Arc<Door>,
    line: mpsc::Sender<Box<Work>>,
    /// The connection's.
    number: u64,
    job: Option<Job>,
    tries: usize,
    /// What is on its way through the log.
    proposed: Option<Done>,
    outcome: Option<Outcome>,
    fate: Arc<Fate>,
}

/// What a connection and its work on the loop's thread know of each other.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// The connection does not wait any longer.
    given_up: AtomicBool,
    /// Something of the work may take effect.
    proposed: AtomicBool,
}

impl Fate {
    /// Nobody waits any longer.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether something may take effect.
    pub(super) fn is_proposed(&self) -> bool {
        self.proposed.load(Ordering::Relaxed)
    }
}

/// What became of a job.
pub(super) enum Outcome {
    /// It is applied, or read what is current.
    Done(Done),
    /// Nothing of it is done, and these are the replies.
    Replies(Vec<Reply>),
    /// It can't be done on the loop's thread, or its commands can't be done together.
    Otherwise(Job),
    /// Why it has no answer.
    SubmitError(SubmitError),
}

impl Work {
    pub(super) fn new(door: Arc<Door>, number: u64, line: mpsc::Sender<Box<Self>>) -> Box<Self> {
        Box::new(Self {
            door,
            line,
            number,
            job: None,
            tries: 0,
            proposed: None,
            outcome: None,
            fate: Arc::default(),
        })
    }

    /// What is known of it while it is away.
    pub(super) fn fate(&self) -> Arc<Fate> {
        self.fate.clone()
    }

    /// The next job.
    pub(super) fn begin(&mut self, job: Job) {
        self.job = Some(job);
        self.tries = 0;
        self.fate.given_up.store(false, Ordering::Relaxed);
        self.fate.proposed.store(false, Ordering::Relaxed);
    }

    /// What became of it.
    pub(super) fn outcome(&mut self) -> Outcome {
        self.outcome.take().unwrap_or(Outcome::SubmitError(SubmitError::Unknown))
    }

    /// Goes back to its connection; if that is gone, nobody wants to know.
    fn back(mut self: Box<Self>, outcome: Outcome) -> Next {
        self.outcome = Some(outcome);
        self.job = None;
        let line = self.line.clone();
        let _ = line.try_send(self);
        Next::Over
    }

    fn fails(self: Box<Self>, error: holdfast_redis::Error) -> Next {
        let count = self.job.as_ref().map_or(1, Job::replies);
        self.back(Outcome::Replies(vec![Reply::Error(error); count]))
    }

    fn otherwise(mut self: Box<Self>) -> Next {
        match self.job.take() {
            Some(job) => self.back(Outcome::Otherwise(job)),
            None => self.back(Outcome::SubmitError(SubmitError::Unknown)),
        }
    }

    /// Runs the job. If it writes, the core finds out whether the state was current; if it only
    /// reads, it must be.
    fn run(mut self: Box<Self>, node: &Node, current: bool) -> Next {
        self.door.keys.store(node.state().keys_len(), Ordering::Relaxed);
        let Some(job) = &self.job else { return Next::Over };
        let mut wanted = job.wanted();
        loop {
            if wanted.listing {
                return self.otherwise();
            }
            let seen = Seen::read(node.state(), &wanted);
            match job.run_without_lua(&seen, &*self.door) {
                Run::Need(more) => wanted = more,
                Run::Lua | Run::Apart => return self.otherwise(),
                Run::Block(_) if self.nobody_waits() => return self.gives_up(),
                // If the state is stale, what was put there meanwhile wakes it.
                Run::Block(block) => return Next::Sleep(self, block.names),
                Run::Done(mut done) => {
                    return match done.transaction.take() {
                        Some(transaction) => {
                            self.proposed = Some(done);
                            self.fate.proposed.store(true, Ordering::Relaxed);
                            Next::Ask(self, Command::Transact(transaction))
                        }
                        None if current || !done.reads => self.back(Outcome::Done(done)),
                        None => Next::Read(self),
                    };
                }
            }
        }
    }

    fn gives_up(self: Box<Self>) -> Next {
        self.back(Outcome::Replies(vec![Reply::NullArray]))
    }

    fn told(mut self: Box<Self>, node: &Node, told: Told) -> Next {
        let refusal = match (told, self.proposed.take()) {
            (Told::Current, _) => return self.run(node, true),
            (Told::Answer(Ok(_)), Some(done)) => return self.back(Outcome::Done(done)),
            (Told::Answer(Err(refusal)), Some(done)) => done.refused(&refusal),
            (told, _) => return self.back(Outcome::SubmitError(trouble(&told))),
        };
        match refusal {
            Answered::Again if self.tries >= TRIES_MAX || self.nobody_waits() => {
                self.fails(words::CONTENDED)
            }
            Answered::Again => {
                self.tries += 1;
                // The refusal came out of the log after the job began: what is read now is current.
                self.run(node, true)
            }
            // One of several commands is not possible: each is asked alone.
            Answered::Reply(_) if self.job.as_ref().is_some_and(|job| job.replies() > 1) => {
                self.otherwise()
            }
            Answered::Reply(reply) => self.back(Outcome::Replies(vec![reply])),
        }
    }
}

impl Errand for Work {
    fn step(self: Box<Self>, node: &Node, now: Now) -> Next {
        match now {
            Now::Woken if self.nobody_waits() => self.gives_up(),
            Now::Begun | Now::Woken => self.run(node, false),
            Now::Told(told) => self.told(node, told),
            Now::GivenUp => self.gives_up(),
            Now::NoRoom => self.fails(words::TOO_MANY_WAIT),
        }
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn nobody_waits(&self) -> bool {
        self.fate.given_up.load(Ordering::Relaxed) || self.line.is_closed()
    }
}
