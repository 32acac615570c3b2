//! Applies committed entries, identically on every node.

use crate::batch::{Batch, Item};
use crate::cluster::{Change, REPORT_EVERY, Report};
use crate::digest::{self, mix};
use crate::io::{NotChanged, Output, Reply};
use crate::lead::member_step;
use crate::node::{Node, too_old};
use crate::proposals;
use holdfast_core::{Answer, Command, Effect, Proposal, ProposalOutcome, Term, Tick};
use holdfast_storage::{EntryKind, LogEntry};

/// How many of its own digests a node keeps until the others' reports arrive.
const DIGESTS_KEPT: usize = 8;

impl Node {
    pub(crate) fn apply_entry(&mut self, entry: LogEntry, out: &mut Vec<Output>) {
        let mut effects = Vec::new();
        self.applied = entry.at;
        let mut changed = Err(NotChanged::NotNow);
        match entry.kind {
            EntryKind::Membership => changed = self.apply_change(&entry, out),
            EntryKind::Batch if entry.data.is_empty() => {}
            EntryKind::Batch => match Batch::decode(&entry.data) {
                Some(batch) => self.apply_batch(batch, Term(entry.at.term), &mut effects, out),
                None => {
                    let why =
                        format!("entry {} can't be read: a newer program wrote it", entry.at.index);
                    return self.stop(why, out);
                }
            },
        }
        self.cluster.digest = mix(self.cluster.digest, entry.at.index);
        if entry.at.index.is_multiple_of(REPORT_EVERY) {
            self.report(entry.at.index);
        }
        self.settle_change(changed, out);
        out.push(Output::Applied { at: entry.at, effects, digest: self.cluster.digest });
    }

    fn apply_batch(
        &mut self,
        batch: Batch,
        term: Term,
        effects: &mut Vec<Effect>,
        out: &mut Vec<Output>,
    ) {
        let Batch { elapsed_ms, wall_ms, items } = batch;
        let tick = Command::Tick(Tick { elapsed_ms, wall_ms, term });
        self.apply_proposal(tick.into(), effects, out);
        for item in items {
            match item {
                Item::Propose(proposal) => self.apply_proposal(proposal, effects, out),
                Item::Report(report) => self.compare(report, out),
                Item::Birth { node, birth } => self.cluster.know_birth(node, birth),
                Item::Level { node, level } => {
                    self.cluster.know_level(node, level);
                    self.state.set_level(self.cluster.level);
                    if self.cluster.level > self.level {
                        self.stop(too_old(self.cluster.level, self.level), out);
                    }
                }
            }
            if self.stopped {
                return;
            }
        }
    }

    fn apply_proposal(
        &mut self,
        proposal: Proposal,
        effects: &mut Vec<Effect>,
        out: &mut Vec<Output>,
    ) {
        let own_number = match (proposal.from, self.proposals.session) {
            (Some(from), Some(own)) if from.session == own.id => Some(from.number),
            _ => None,
        };
        let nothing = proposals::is_nothing(&proposal.command);
        let opened = match &proposal.command {
            Command::OpenSession(open) => Some((open.secret, open.ttl_ms)),
            _ => None,
        };
        let before = effects.len();
        let taken = self.state.apply(proposal, effects);
        let came_out = effects.get(before..).unwrap_or_default();
        self.cluster.digest =
            digest::after(self.cluster.digest, self.cluster.level, &taken, came_out);
        for effect in effects.iter().skip(before) {
            if let Effect::SessionEnded { session, .. } = effect {
                for ask in self.proposals.session_ended(*session) {
                    out.push(Output::Reply { ask, reply: Reply::Withdrawn });
                }
                if let Some(leading) = &mut self.leading {
                    leading.liveness.close(*session);
                }
            }
        }
        let ProposalOutcome::Answered(answer) = taken else { return };
        if let (Some((secret, ttl_ms)), Ok(Answer::SessionOpened(id))) = (opened, &answer) {
            if let Some(leading) = &mut self.leading {
                leading.liveness.open(*id, ttl_ms, self.seen_ms);
            }
            if self.proposals.opened(secret, *id) {
                self.introduce();
            }
        }
        if let Some(ask) =
            own_number.and_then(|number| self.proposals.applied(number, self.seen_ms))
        {
            let reply = if nothing { Reply::Withdrawn } else { Reply::Answer(answer) };
            out.push(Output::Reply { ask, reply });
        }
    }

    /// Tells the others what they do not know about this node yet.
    pub(crate) fn introduce(&mut self) {
        self.proposals.introduced_ms = self.seen_ms;
        let Some(member) = self.cluster.members.get(&self.id) else { return };
        if member.level != self.level || self.cluster.can_rise() {
            self.proposals.add_loose(Item::Level { node: self.id, level: self.level });
        }
        if member.birth == 0 && self.birth != 0 {
            self.proposals.add_loose(Item::Birth { node: self.id, birth: self.birth });
        }
    }

    /// Reports to the others what this node computed up to an agreed index.
    fn report(&mut self, index: u64) {
        let counts = self.state.counts();
        for count in [counts.locks, counts.holders, counts.waiters, counts.sessions, counts.bytes] {
            self.cluster.digest = mix(self.cluster.digest, count as u64);
        }
        self.cluster.digest = mix(self.cluster.digest, self.state.now_ms());
        self.digests.insert(index, self.cluster.digest);
        while self.digests.len() > DIGESTS_KEPT {
            self.digests.pop_first();
        }
        let report = Report { node: self.id, index, digest: self.cluster.digest };
        self.proposals.add_loose(Item::Report(report));
    }

    /// Compares reports: a node whose result differs from a majority's can't be trusted, and stops.
    fn compare(&mut self, report: Report, out: &mut Vec<Output>) {
        let Some(majority) = self.cluster.note(report) else { return };
        if self.digests.get(&report.index).is_some_and(|own| *own != majority) {
            let why = format!(
                "at entry {} this node's result differs from the majority's: its memory, disk or \
                 program is faulty; replace it with a new member",
                report.index
            );
            self.stop(why, out);
        }
    }

    /// Changes the membership; returns the reason if nothing was changed.
    fn apply_change(&mut self, entry: &LogEntry, out: &mut Vec<Output>) -> Result<(), NotChanged> {
        let change: Option<Change> = postcard::from_bytes(&entry.data).ok();
        let change = change.ok_or("it can't be read");
        // A change that made sense when it was proposed may no longer do so.
        let change = change
            .and_then(|change| self.cluster.check(&change).map(|()| change))
            .map_err(NotChanged::Refused);
        self.consensus.apply_change(change.as_ref().ok().map(member_step));
        let change = change?;
        self.cluster.apply(&change);
        let cluster = &self.cluster;
        self.last_message_ms.retain(|id, _| cluster.members.contains_key(id));
        if change == Change::Remove(self.id) {
            self.stop("this node was removed from the cluster".to_owned(), out);
        }
        Ok(())
    }

    /// Replies to the request for a change once its position in the log is applied.
    fn settle_change(&mut self, changed: Result<(), NotChanged>, out: &mut Vec<Output>) {
        let applied = self.applied;
        let Some((ask, at)) = self.changing.take_if(|(_, at)| at.index <= applied.index) else {
            return;
        };
        let done = if at == applied { changed } else { Err(NotChanged::Lost) };
        out.push(Output::Reply { ask, reply: Reply::Changed(done) });
    }
}
