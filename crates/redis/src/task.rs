//! A job on the loop's thread: runs against this node's local state, is submitted right away if it
//! writes, and runs again if something has changed meanwhile.

use crate::messages;
use crate::resp::Reply;
use crate::run::{Answered, Done, Job, Local, ReadSet, Run};
use holdfast_core::{Command, KeyKind};
use holdfast_gateway::{Resume, Step, SubmitError, View, submit_error};
use holdfast_node::Reply as NodeReply;

/// How often a job may be retried because something it read has changed. Each time, another client
/// has made progress.
const TRIES_MAX: usize = 1_000;

/// A job and its progress. After `Step::Done` it has an outcome, and another job can begin.
#[derive(Debug, Default)]
pub struct JobTask {
    job: Option<Job>,
    tries: usize,
    /// What is on its way through the log.
    proposed: Option<Done>,
    outcome: Option<JobOutcome>,
}

/// The outcome of a job.
#[derive(Debug)]
pub enum JobOutcome {
    /// It was applied, or it read current state.
    Done(Done),
    /// None of it was done, and these are the replies.
    Replies(Vec<Reply>),
    /// It can't run on the loop's thread, or its commands can't run together.
    Elsewhere(Job),
    /// Why there is no answer.
    Failed(SubmitError),
}

impl JobTask {
    /// Sets the next job.
    pub fn begin(&mut self, job: Job) {
        *self = Self { job: Some(job), ..Self::default() };
    }

    /// Takes the outcome, once `resume` has returned `Step::Done`.
    pub fn take_outcome(&mut self) -> JobOutcome {
        self.outcome.take().unwrap_or(JobOutcome::Failed(SubmitError::Unknown))
    }

    /// Runs the next step.
    pub fn resume(&mut self, view: &View<'_>, local: &dyn Local, resume: Resume) -> Step {
        match resume {
            Resume::Started | Resume::Woken => self.run(view, local, false),
            Resume::Replied(reply) => self.replied(view, local, &reply),
            Resume::TimedOut => self.done(JobOutcome::Replies(vec![Reply::NullArray])),
            Resume::NoRoom => self.fail(messages::TOO_MANY_WAIT),
        }
    }

    fn done(&mut self, outcome: JobOutcome) -> Step {
        self.outcome = Some(outcome);
        self.job = None;
        Step::Done
    }

    fn fail(&mut self, error: crate::Error) -> Step {
        let count = self.job.as_ref().map_or(1, Job::replies);
        self.done(JobOutcome::Replies(vec![Reply::Error(error); count]))
    }

    fn elsewhere(&mut self) -> Step {
        match self.job.take() {
            Some(job) => self.done(JobOutcome::Elsewhere(job)),
            None => self.done(JobOutcome::Failed(SubmitError::Unknown)),
        }
    }

    /// Runs the job. If it writes, the core checks that the state was current; if it only reads,
    /// the state must be current.
    fn run(&mut self, view: &View<'_>, local: &dyn Local, current: bool) -> Step {
        let Some(job) = &self.job else { return Step::Done };
        let mut wanted = job.wanted();
        loop {
            if wanted.listing {
                return self.elsewhere();
            }
            let seen = match ReadSet::read(view.caller, view.state, &wanted) {
                Ok(seen) => seen,
                // One of several commands was refused: each is run on its own.
                Err(_) if job.replies() > 1 => return self.elsewhere(),
                Err(refusal) => return self.fail(crate::Error::refused(&refusal)),
            };
            match job.run_without_lua(&seen, local) {
                Run::Need(more) => wanted = more,
                Run::Lua | Run::Apart => return self.elsewhere(),
                // If the state is stale, an item pushed meanwhile wakes it.
                Run::Block(block) => {
                    return Step::Block { names: block.names, kind: KeyKind::List };
                }
                Run::Done(mut done) => {
                    return match done.transaction.take() {
                        Some(transaction) => {
                            self.proposed = Some(done);
                            Step::Submit(Command::Transact(transaction))
                        }
                        None if current || !done.reads => self.done(JobOutcome::Done(done)),
                        None => Step::Read,
                    };
                }
            }
        }
    }

    fn replied(&mut self, view: &View<'_>, local: &dyn Local, reply: &NodeReply) -> Step {
        let refusal = match (reply, self.proposed.take()) {
            (NodeReply::Current, _) => return self.run(view, local, true),
            (NodeReply::Answer(Ok(_)), Some(done)) => return self.done(JobOutcome::Done(done)),
            (NodeReply::Answer(Err(refusal)), Some(done)) => done.refused(refusal),
            (reply, _) => return self.done(JobOutcome::Failed(submit_error(reply))),
        };
        match refusal {
            Answered::Again if self.tries >= TRIES_MAX => self.fail(messages::CONTENDED),
            Answered::Again => {
                self.tries += 1;
                // The refusal came out of the log after the job began, so what is read now is
                // current.
                self.run(view, local, true)
            }
            // One of several commands was refused: each is run on its own.
            Answered::Reply(_) if self.job.as_ref().is_some_and(|job| job.replies() > 1) => {
                self.elsewhere()
            }
            Answered::Reply(reply) => self.done(JobOutcome::Replies(vec![reply])),
        }
    }
}
