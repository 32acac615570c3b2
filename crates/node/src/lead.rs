//! What only a leader does: gather proposals, append entries, advance logical time, and end silent
//! sessions.

use crate::batch::{BATCH_BYTES_MAX, Batch, Item, encoded_bytes};
use crate::cluster::Change;
use crate::consensus::{ELECTION_MS, MemberStep};
use crate::io::{NotChanged, Output, Reply, RequestTag};
use crate::liveness::Liveness;
use crate::node::Node;
use crate::types::NodeId;
use holdfast_core::{Command, Proposal, Term};
use holdfast_storage::Position;
use std::collections::{BTreeSet, VecDeque};

/// Bytes that a leader gathers; anything beyond is dropped, and sent again by its node.
const GATHERED_BYTES_MAX: usize = 16 * BATCH_BYTES_MAX;

/// How long the next entry waits until the last one is applied: whatever arrives in the meantime
/// goes together, and a batch costs the cluster little more than a single request. Where a majority
/// is further away than that, entries are appended before the previous ones are acknowledged.
const TOGETHER_MS: u64 = 5;

/// How long it then waits for more, at most.
const GATHER_MS_MAX: u64 = 2;

/// While any deadline is pending, an entry is appended at least this often, so that a change of
/// leader loses no more time than that.
const TIME_ENTRY_MS: u64 = 1_000;

/// A member that was heard from within this time counts as answering. It is sent a heartbeat every
/// 100ms.
const ANSWERS_MS: u64 = ELECTION_MS;

/// Sessions ended in one batch: a mass death must not make one huge entry.
const ENDED_PER_BATCH_MAX: usize = 4_096;

/// A leader's own memory: none of it is replicated or survives its term.
#[derive(Debug)]
pub(crate) struct Leading {
    term: u64,
    since_ms: u64,
    pub(crate) liveness: Liveness,
    gathered: VecDeque<(Item, usize)>,
    gathered_bytes: usize,
    /// The time up to which entries have advanced logical time.
    logged_ms: u64,
    /// The last entry that it appended, when, and how many items it has.
    appended: u64,
    appended_at_ms: u64,
    appended_items: usize,
    /// What is known about the next entry, once the last one is applied.
    next: Option<Next>,
}

/// The next entry: a client that has just been answered is likely to send its next request
/// immediately.
#[derive(Debug)]
struct Next {
    until_ms: u64,
    items_expected: usize,
}

impl Leading {
    /// Whether enough items are likely to arrive that the next entry should wait for them. It never
    /// waits for longer than the last one took.
    fn awaits_more(&mut self, now_ms: u64) -> bool {
        let here = self.gathered.len();
        let next = self.next.get_or_insert_with(|| Next {
            until_ms: now_ms + (now_ms - self.appended_at_ms).min(GATHER_MS_MAX),
            items_expected: self.appended_items + here,
        });
        now_ms < next.until_ms && here * 4 < next.items_expected * 3
    }
}

impl Node {
    /// Starts or stops acting as leader when the role has changed.
    pub(crate) fn follow_role(&mut self) {
        let leads = self.consensus.is_leader().then(|| self.consensus.term());
        if self.leading.as_ref().map(|leading| leading.term) == leads {
            return;
        }
        self.read_index.drop_heartbeats();
        self.leading = leads.map(|term| Leading {
            term,
            since_ms: self.seen_ms,
            liveness: Liveness::begin(self.state.session_ttls(), self.seen_ms),
            gathered: VecDeque::new(),
            gathered_bytes: 0,
            logged_ms: self.seen_ms,
            appended: self.consensus.last_index(),
            appended_at_ms: self.seen_ms,
            appended_items: 0,
            next: None,
        });
    }

    /// Takes items for the next entry, if they are meant for this term.
    pub(crate) fn gather_in(&mut self, term: u64, items: Vec<Item>) {
        if self.leading.as_ref().is_some_and(|leading| leading.term == term) {
            self.gather(items);
        }
    }

    /// Takes items for the next entry.
    pub(crate) fn gather(&mut self, items: Vec<Item>) {
        let Some(leading) = &mut self.leading else { return };
        for item in items {
            let bytes = encoded_bytes(&item);
            if bytes > BATCH_BYTES_MAX {
                // No node sends such an item. It would hold up all heartbeats behind it.
                continue;
            }
            if leading.gathered_bytes + bytes > GATHERED_BYTES_MAX {
                return;
            }
            leading.gathered_bytes += bytes;
            leading.gathered.push_back((item, bytes));
        }
    }

    /// Appends the next entry, if there is a reason to and the last one has got far enough.
    pub(crate) fn lead(&mut self) {
        // What is taken here must be appended: the end of a silent session is decided only once.
        if !self.consensus.takes_batches() {
            return;
        }
        let due = self.due_in_ms() == Some(0);
        let Some(leading) = &mut self.leading else { return };
        let on_disk = self.consensus.persisted_index() >= leading.appended;
        let applied = self.applied.index >= leading.appended;
        let waited = self.seen_ms.saturating_sub(leading.appended_at_ms) >= TOGETHER_MS;
        if !on_disk || !(applied || waited) {
            return;
        }
        if applied && !due && leading.awaits_more(self.seen_ms) {
            return;
        }
        let mut items = Vec::new();
        for _ in 0..ENDED_PER_BATCH_MAX {
            let Some(session) = leading.liveness.take_silent(self.seen_ms) else { break };
            let decided_in = Term(leading.term);
            let expire = Command::ExpireSession { session, decided_in };
            items.push(Item::Propose(Proposal::from(expire)));
        }
        let mut bytes = 0;
        while let Some((_, next)) = leading.gathered.front() {
            if bytes > 0 && bytes + next > BATCH_BYTES_MAX {
                break;
            }
            bytes += next;
            items.extend(leading.gathered.pop_front().map(|(item, _)| item));
        }
        leading.gathered_bytes -= bytes;
        // Whatever is due by the time already appended will come with the entries in flight.
        if items.is_empty() && !(due && applied) {
            return;
        }
        let elapsed_ms = self.seen_ms - leading.logged_ms;
        let count = items.len();
        let batch = Batch { elapsed_ms, wall_ms: self.wall_ms, items };
        if self.consensus.propose(batch.encode()) {
            leading.logged_ms = self.seen_ms;
            leading.appended = self.consensus.last_index();
            leading.appended_at_ms = self.seen_ms;
            leading.appended_items = count;
            leading.next = None;
        } else {
            // This leader has forgotten what it took; the next one has not.
            self.consensus.step_down();
        }
    }

    /// Whether items that could be appended are waiting for more.
    pub(crate) fn gathers(&self) -> bool {
        let leading = self.leading.as_ref();
        leading.is_some_and(|leading| leading.next.is_some() && !leading.gathered.is_empty())
    }

    /// How long until a leader must append without any request: something is due, or logical time
    /// must advance. `None` if this node does not lead or nothing is pending.
    pub(crate) fn due_in_ms(&self) -> Option<u64> {
        let leading = self.leading.as_ref().filter(|_| self.consensus.takes_batches())?;
        let unlogged_ms = self.seen_ms - leading.logged_ms;
        let due = self
            .state
            .next_due_in_ms()
            .map(|due_ms| due_ms.min(TIME_ENTRY_MS).saturating_sub(unlogged_ms));
        let silent =
            leading.liveness.next_silent_at_ms().map(|at_ms| at_ms.saturating_sub(self.seen_ms));
        due.into_iter().chain(silent).min()
    }

    pub(crate) fn change(
        &mut self,
        ask: RequestTag,
        change: Change,
        force: bool,
        out: &mut Vec<Output>,
    ) {
        let refused = if !self.consensus.is_leader() {
            Err(NotChanged::NotLeader)
        } else if self.changing.is_some() {
            Err(NotChanged::NotNow)
        } else {
            let sensible = self.cluster.check(&change).map_err(NotChanged::Refused);
            sensible.and_then(|()| self.keeps_majority(&change, force))
        };
        let proposed = refused.and_then(|()| {
            let data = postcard::to_allocvec(&change).unwrap_or_default();
            if self.consensus.propose_change(member_step(&change), data) {
                Ok(())
            } else {
                Err(NotChanged::NotNow)
            }
        });
        match proposed {
            Ok(()) => {
                let at =
                    Position { index: self.consensus.last_index(), term: self.consensus.term() };
                self.changing = Some((ask, at));
            }
            Err(why) => out.push(Output::Reply { ask, reply: Reply::Changed(Err(why)) }),
        }
    }

    /// Whether enough voters answer for a change. The current voters must commit it: without a
    /// majority of them it would wait in the log and take effect whenever they come back, so that
    /// is refused even with `force`. A majority of the remaining voters must answer too, or the
    /// cluster would stop serving. Only the leader can tell, because every member answers its
    /// heartbeats.
    fn keeps_majority(&self, change: &Change, force: bool) -> Result<(), NotChanged> {
        let before: BTreeSet<NodeId> = self.cluster.voters().collect();
        let after: BTreeSet<NodeId> = match change {
            Change::AddLearner { .. } => before.clone(),
            Change::Promote(node) => before.iter().copied().chain([*node]).collect(),
            Change::Remove(node) => before.iter().copied().filter(|id| id != node).collect(),
        };
        let silent_of = |voters: &BTreeSet<NodeId>| -> Vec<NodeId> {
            voters.iter().copied().filter(|id| !self.answers(*id)).collect()
        };
        let (silent, left_silent) = (silent_of(&before), silent_of(&after));
        let refused = if silent.len() * 2 >= before.len() {
            NotChanged::NotCommittable(silent)
        } else if !force && left_silent.len() * 2 >= after.len() {
            NotChanged::NoMajority(left_silent)
        } else {
            return Ok(());
        };
        let leads_ms = self.leading.as_ref().map_or(0, |leading| self.seen_ms - leading.since_ms);
        // At first they may not have had time to answer yet.
        Err(if leads_ms < 2 * ANSWERS_MS { NotChanged::NotNow } else { refused })
    }

    /// Whether a member was heard from lately. Only meaningful at the leader, whose heartbeats
    /// every member answers.
    pub fn answers(&self, id: NodeId) -> bool {
        let last_message_ms = self.last_message_ms.get(&id);
        id == self.id || last_message_ms.is_some_and(|ms| self.seen_ms - ms <= ANSWERS_MS)
    }
}

pub(crate) fn member_step(change: &Change) -> MemberStep {
    match change {
        Change::AddLearner { node, .. } => MemberStep::AddLearner(*node),
        Change::Promote(node) => MemberStep::Promote(*node),
        Change::Remove(node) => MemberStep::Remove(*node),
    }
}
