//! The state machine: commands in, effects out.
//!
//! [`State`] puts together the [`Lines`] and the stores beside them, which know each other only
//! through [`StoreAccess`](crate::lines::StoreAccess). Here is what concerns all of them: the one
//! `match` over commands, time, questions, snapshots, invariants.

mod invariants;
mod load;
mod questions;
mod snapshot;

pub use load::SnapshotCheck;
pub use snapshot::{BadSnapshot, NotEncoded, Snapshot};

use crate::command::{Command, Proposal, RequestRef, Tick};
use crate::effect::{Answer, Effect, ProposalOutcome};
use crate::limits::Limits;
use crate::lines::{CannotRestore, Lines, Recalled, Restored, StepBudget};
use crate::refusal::Refusal;
use crate::stores::keys::Keys;
use crate::stores::tree::Tree;

/// All locks, sessions and tickets of a cluster, and what doors keep beside them, as of one log
/// position.
#[derive(Debug)]
pub struct State {
    lines: Lines,
    keys: Keys,
    tree: Tree,
}

impl State {
    /// An empty state. `hash_key` may differ between replicas and should be hard to guess.
    pub fn new(limits: Limits, hash_key: u64) -> Self {
        let (keys, tree) = (Keys::new(hash_key), Tree::new(hash_key));
        Self { lines: Lines::new(limits, hash_key), keys, tree }
    }

    /// Does everything as programs of this behaviour level do. A new state does as this program
    /// does; whoever applies entries of a cluster says which level is in force there.
    pub fn set_level(&mut self, level: u16) {
        self.lines.set_level(level);
    }

    /// Applies one proposal of an entry. What must be heard by others than the asker is added to
    /// `effects`.
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

    /// Runs a command, and lets the znodes follow what it did to the lines.
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
        let Self { lines, keys, tree } = self;
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
        }
    }

    /// Moves time, then does what is due in lines and stores, the earliest first, up to the bound of
    /// one command. What is left is done at the start of the next entries.
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

    /// How many milliseconds from now the next tick is needed; 0 if work is left over.
    pub fn next_due_in_ms(&self) -> Option<u64> {
        if self.lines.is_behind() || self.tree.is_behind() {
            return Some(0);
        }
        self.first_due().map(|(due_ms, _)| due_ms.saturating_sub(self.now_ms()))
    }

    /// When the first thing is due, and whose it is; of those due together, the lines' first.
    fn first_due(&self) -> Option<(u64, Due)> {
        let lines = self.lines.first_due_ms().map(|due_ms| (due_ms, Due::Lines));
        let keys = self.keys.first_due_ms().map(|due_ms| (due_ms, Due::Keys));
        let tree = self.tree.first_due_ms().map(|due_ms| (due_ms, Due::Tree));
        [lines, keys, tree].into_iter().flatten().min_by_key(|(due_ms, _)| *due_ms)
    }

    /// Makes a state that was loaded from a backup the beginning of a new cluster; `unix_s` is
    /// the wall clock. To be called once, before anything is applied, and not through the log:
    /// it takes as long as there are tickets, and nobody is there to hear effects.
    ///
    /// - The counters of tickets and sessions move far enough that no number is drawn that the old
    ///   cluster drew. Another restore of the same backup may draw the same ones: the two must not
    ///   share a fenced resource.
    /// - Every session ends, with the tickets that lived by it.
    /// - Every wait ends, whoever owned it: the old cluster may have served that number since,
    ///   and higher ones after it.
    /// - What had a deadline or a permanent lease stays held, with the logical time it had left.
    /// - Every lock that was held is marked "needs recovery", up to the bound of all such marks.
    /// - What is remembered under request ids stays, told as it is now; so does the register, and
    ///   whatever stores keep, but for znodes of sessions and tickets that have ended.
    pub fn restore(&mut self, unix_s: u64) -> Result<Restored, CannotRestore> {
        let restored = self.lines.restore(unix_s)?;
        self.tree.restore(&mut self.lines);
        Ok(restored)
    }
}

/// Whose turn it is when time moves.
enum Due {
    Lines,
    Keys,
    Tree,
}
