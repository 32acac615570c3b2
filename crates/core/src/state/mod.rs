//! The state machine: commands in, effects out.
//!
//! [`State`] combines the [`Lines`] and the stores next to them, which know each other only through
//! [`StoreAccess`](crate::lines::StoreAccess). This module contains what concerns all of them: the
//! one `match` over commands, time, queries, snapshots, invariants.

mod invariants;
mod load;
mod operate;
mod questions;
mod snapshot;

pub use load::SnapshotCheck;
pub use snapshot::{BadSnapshot, NotEncoded, Snapshot};

use crate::command::{Command, Proposal, RequestRef, Tick};
use crate::effect::{Answer, Effect, ProposalOutcome};
use crate::limits::Limits;
use crate::lines::{CannotRestore, Lines, Recalled, Restored, StepBudget};
use crate::refusal::Refusal;
use crate::stores::access::Access;
use crate::stores::keys::Keys;
use crate::stores::tree::Tree;

/// All locks, sessions and tickets of a cluster, and what doors store besides them, as of one log
/// position.
#[derive(Debug)]
pub struct State {
    lines: Lines,
    keys: Keys,
    tree: Tree,
    access: Access,
}

impl State {
    /// An empty state. `hash_key` may differ between replicas and should be hard to guess.
    pub fn new(limits: Limits, hash_key: u64) -> Self {
        let (keys, tree) = (Keys::new(hash_key), Tree::new(hash_key));
        Self { lines: Lines::new(limits, hash_key), keys, tree, access: Access::default() }
    }

    /// Makes everything behave as in programs of this behaviour level. A new state has this
    /// program's level; the code that applies a cluster's entries sets the level in force there.
    pub fn set_level(&mut self, level: u16) {
        self.lines.set_level(level);
    }

    /// Applies one proposal of an entry. What others than the requesting client must learn is added
    /// to `effects`.
    pub fn apply(&mut self, proposal: Proposal, effects: &mut Vec<Effect>) -> ProposalOutcome {
        let Proposal { from, request, command } = proposal;
        if let Some(from) = from
            && let Some(not_taken) = self.lines.not_taken(from)
        {
            return not_taken;
        }
        ProposalOutcome::Answered(match request {
            None => self.decide(command, None, effects),
            Some(request) => self.decide_once(&request, command, effects),
        })
    }

    /// Runs a command that may be a retry.
    fn decide_once(
        &mut self,
        request: &RequestRef,
        command: Command,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        match self.lines.recall_request(request, &command)? {
            Recalled::Ran(result) => result,
            Recalled::New(fingerprint) => {
                let result = self.decide(command, Some(request), effects);
                self.lines.remember_request(request, &result, fingerprint);
                result
            }
        }
    }

    /// Runs a command, and updates the znodes to match the lines.
    fn decide(
        &mut self,
        command: Command,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let from = effects.len();
        let answer = self.dispatch(command, request, effects);
        self.tree.follow(from, &answer, &mut self.lines, effects);
        answer
    }

    /// The table of contents of everything that the core does.
    fn dispatch(
        &mut self,
        command: Command,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let Self { lines, keys, tree, .. } = self;
        match command {
            Command::Tick(tick) => Ok(self.tick(tick, effects)),
            Command::OpenSession(open) => lines.open_session(open, effects),
            Command::CloseSession(session) => lines.close_session(session, effects),
            Command::ExpireSession { session, decided_in } => {
                lines.expire_session(session, decided_in, effects)
            }
            Command::Acquire(acquire) => {
                lines.acquire(acquire, |name| keys.check_no_object(name), request, effects)
            }
            Command::Upgrade { target, proof, wait, claims } => {
                lines.upgrade(&target, &proof, wait, claims, request, effects)
            }
            Command::Downgrade { target, proof } => lines.downgrade(&target, &proof, effects),
            Command::Cancel { target, proof } => lines.cancel(&target, &proof, effects),
            Command::Release { target, proof } => lines.release(&target, &proof, effects),
            Command::Renew { target, proof, ttl_ms } => lines.renew(&target, &proof, ttl_ms),
            Command::Persist { target, proof } => lines.persist(&target, &proof),
            Command::Note { target, proof, note } => lines.note(&target, &proof, note, effects),
            Command::Recovered { target, proof } => lines.recovered(&target, &proof, effects),
            Command::Revoke(revoke) => lines.revoke(revoke, effects),
            Command::Force { name, token, by, reason } => {
                lines.force(&name, token, by, reason, effects)
            }
            Command::Outcome(request) => lines.outcome(&request),
            Command::Put { key, value, token, mode } => lines.put(key, value, token, mode),
            Command::Raise { key, token, mode } => lines.raise(key, token, mode),
            Command::Transact(transaction) => keys.transact(transaction, lines, effects),
            Command::Tree(command) => {
                tree.command(command, |name| keys.check_no_object(name), lines, effects)
            }
            Command::Operate { by, operation } => self.operate(by, *operation, effects),
        }
    }

    /// Advances time, then does what is due in lines and stores, earliest first, up to the limit of
    /// one command. The rest is done at the start of the next entries.
    fn tick(&mut self, tick: Tick, effects: &mut Vec<Effect>) -> Answer {
        self.lines.move_time(tick);
        let mut steps = StepBudget::new(self.limits().steps_max);
        self.lines.finish_pending(&mut steps, effects);
        while let Some((due_ms, whose)) = self.first_due() {
            if due_ms > self.now_ms() || !steps.take() {
                break;
            }
            match whose {
                Due::Lines => self.lines.run_first_due(&mut steps, effects),
                Due::Keys => self.keys.end_first_due(&mut self.lines, effects),
                Due::Tree => self.tree.end_first_due(&mut self.lines, effects),
            }
        }
        self.lines.forget();
        Answer::Ticked
    }

    /// How many milliseconds from now the next tick is needed; 0 if there is pending work, `None`
    /// if nothing is due.
    pub fn next_due_in_ms(&self) -> Option<u64> {
        if self.lines.is_behind() || self.tree.is_behind() {
            return Some(0);
        }
        self.first_due().map(|(due_ms, _)| due_ms.saturating_sub(self.now_ms()))
    }

    /// When the next thing is due, and where; if several are due at the same time, lines come
    /// first.
    fn first_due(&self) -> Option<(u64, Due)> {
        let lines = self.lines.first_due_ms().map(|due_ms| (due_ms, Due::Lines));
        let keys = self.keys.first_due_ms().map(|due_ms| (due_ms, Due::Keys));
        let tree = self.tree.first_due_ms().map(|due_ms| (due_ms, Due::Tree));
        [lines, keys, tree].into_iter().flatten().min_by_key(|(due_ms, _)| *due_ms)
    }

    /// Turns a state that was loaded from a backup into the start of a new cluster; `unix_s` is the
    /// wall clock. Must be called once, before anything is applied, and not through the log: it
    /// takes time proportional to the tickets, and there are no clients to notify yet.
    ///
    /// - The counters of tickets and sessions advance far enough that no number of the old cluster is
    ///   drawn again. Another restore of the same backup may draw the same numbers: the two must not
    ///   share a fenced resource.
    /// - Every session ends, with the tickets that depend on it.
    /// - Every wait ends, whoever owned it: the old cluster may have served that number since, and
    ///   higher ones after it.
    /// - A lock with a deadline or a permanent lease stays held, with the logical time that it had
    ///   left.
    /// - Every lock that was held is marked "needs recovery", up to the limit of such marks.
    /// - Remembered request ids stay, with their current outcome; so do the register, users and
    ///   the content of stores, except for znodes of sessions and tickets that have ended.
    pub fn restore(&mut self, unix_s: u64) -> Result<Restored, CannotRestore> {
        let restored = self.lines.restore(unix_s)?;
        self.tree.restore(&mut self.lines);
        Ok(restored)
    }
}

/// Which part has something due.
enum Due {
    Lines,
    Keys,
    Tree,
}
