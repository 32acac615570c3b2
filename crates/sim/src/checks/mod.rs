//! The checkers, one file each. Each watches the run for one promise.
//!
//! An entry is judged when the first node applies it; what other nodes make of it is compared
//! with that.

pub(crate) mod damage_is_found;
mod delivered;
mod fence;
mod first_come;
mod guards;
mod in_order;
mod leader_time;
mod leases;
pub(crate) mod let_go;
mod linearizable;
pub(crate) mod liveness;
mod one_effect;
mod one_holder;
mod one_leader;
mod only_the_living;
pub(crate) mod readable;
mod replicas_agree;
mod request_ids;
pub(crate) mod restored;
mod tokens_rise;
mod withdrawn;
mod zookeeper;

pub(crate) use delivered::DOOR;
pub(crate) use guards::Belief;
pub(crate) use zookeeper::{ClientKey, SUFFIX_LEN, Unacknowledged, WatchKind, ZooKeeperChecks};

use bytes::Bytes;
use holdfast_core::{Effect, Label, LockName, SessionId, State, Token};
use holdfast_node::{NodeId, Position};

/// An entry, as the first node applied it.
pub(crate) struct Applied<'a> {
    pub(crate) at: Position,
    pub(crate) effects: &'a [Effect],
    /// The node's, which may have applied later entries as well.
    pub(crate) state: &'a State,
    /// Whether it has not.
    pub(crate) is_last: bool,
    /// The sessions of the node processes that run.
    pub(crate) living: &'a [SessionId],
    pub(crate) now_us: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    one_leader: one_leader::OneLeader,
    replicas_agree: replicas_agree::ReplicasAgree,
    leader_time: leader_time::LeaderTime,
    one_holder: one_holder::OneHolder,
    tokens_rise: tokens_rise::TokensRise,
    one_effect: one_effect::OneEffect,
    guards: guards::Guards,
    leases: leases::Leases,
    linearizable: linearizable::Linearizable,
    in_order: in_order::InOrder,
    only_the_living: only_the_living::OnlyTheLiving,
    delivered: delivered::DeliveredGrants,
    request_ids: request_ids::RequestIds,
    withdrawn: withdrawn::Withdrawn,
    /// What clients of the ZooKeeper door say, they say here.
    pub(crate) zookeeper: ZooKeeperChecks,
    /// Acquires without a session whose callers hung up, and when.
    abandoned: Vec<(Label, u64)>,
}

/// A promise that was broken, in words.
pub(crate) type Violation = String;

impl Checks {
    /// A node applied an entry, with this digest of all that it has computed; whether it is the first.
    pub(crate) fn is_news(
        &mut self,
        node: NodeId,
        at: Position,
        digest: u64,
    ) -> Result<bool, Violation> {
        self.replicas_agree.applied(node, at, digest)
    }

    /// An entry was applied for the first time; `beliefs` says who says now that it holds what.
    pub(crate) fn applied(
        &mut self,
        applied: &Applied<'_>,
        beliefs: &[Belief],
    ) -> Result<(), Violation> {
        self.leader_time.applied(applied, self.one_leader.since_us(applied.at.term))?;
        self.one_holder.applied(applied)?;
        self.tokens_rise.applied(applied)?;
        first_come::applied(applied)?;
        self.one_effect.applied(applied)?;
        self.only_the_living.applied(applied)?;
        self.delivered.applied(applied)?;
        self.withdrawn.applied(applied)?;
        self.leases.applied(applied)?;
        self.zookeeper.applied(applied)?;
        self.guards.applied(applied, beliefs)
    }

    /// A caller was told that the request with this label has no effect, and never will.
    pub(crate) fn withdrawn(&mut self, label: Label) -> Result<(), Violation> {
        self.withdrawn.withdrawn(label)
    }

    /// A caller without a session is told that it holds this.
    pub(crate) fn delivered(&mut self, token: Token) {
        self.delivered.delivered(token);
    }

    /// Nobody will be told what became of the acquires with these labels.
    pub(crate) fn abandoned(&mut self, labels: Vec<Label>, now_us: u64) {
        self.abandoned.extend(labels.into_iter().map(|label| (label, now_us)));
    }

    /// A minute after the last fault: what was abandoned a while ago is given up.
    pub(crate) fn ghosts(&self, state: &State, now_us: u64) -> Result<(), Violation> {
        let_go::ghosts(state, &self.abandoned, now_us)
    }

    /// A node leads a term; whether that is news.
    pub(crate) fn leads(
        &mut self,
        node: NodeId,
        term: u64,
        now_us: u64,
    ) -> Result<bool, Violation> {
        self.one_leader.leads(node, term, now_us)
    }

    /// The highest token that any client has been told of.
    pub(crate) fn floor(&self) -> u64 {
        self.linearizable.floor()
    }

    /// A client was told its token; `floor` was the highest told when it asked.
    pub(crate) fn drew(
        &mut self,
        client: usize,
        token: Token,
        floor: u64,
    ) -> Result<(), Violation> {
        self.linearizable.drew(client, token, floor)
    }

    /// One of two that were sent together was answered.
    pub(crate) fn pair(
        &mut self,
        pair: u64,
        second: bool,
        token: Option<Token>,
    ) -> Result<(), Violation> {
        token.map_or(Ok(()), |token| self.in_order.pair(pair, second, token))
    }

    /// A request under an id was answered; `other` if it is not what the id was first meant for.
    pub(crate) fn under_id(
        &mut self,
        key: &Bytes,
        other: bool,
        token: Option<Token>,
    ) -> Result<(), Violation> {
        token.map_or(Ok(()), |token| self.request_ids.answered(key, other, token))
    }

    /// A node said that its state is current, for a read asked for at `floor`.
    pub(crate) fn read(&mut self, counter: u64, floor: u64) -> Result<(), Violation> {
        self.linearizable.read(counter, floor)
    }

    /// A heartbeat that was sent at this time was acknowledged.
    pub(crate) fn beat(
        &mut self,
        session: SessionId,
        sent_us: u64,
        ttl_ms: u64,
    ) -> Result<(), Violation> {
        self.leases.beat(session, sent_us, ttl_ms)
    }

    /// Looks at all who say now that they hold something.
    pub(crate) fn guards(&self, beliefs: &[Belief], now_us: u64) -> Result<(), Violation> {
        self.guards.look(beliefs, now_us)
    }

    /// A caller that asked at that time was told that it holds a ticket.
    pub(crate) fn told_held(&self, token: Token, asked_us: u64) -> Result<(), Violation> {
        self.guards.told_held(token, asked_us)
    }

    /// A minute after the last fault: nobody says that it holds what is over.
    pub(crate) fn guards_at_the_end(
        &self,
        beliefs: &[Belief],
        now_us: u64,
    ) -> Result<(), Violation> {
        self.guards.judge_the_end(beliefs, now_us)
    }

    /// A client let go of a lock while it was certain to hold it, and was told that it did not.
    pub(crate) fn not_held(&self, client: usize, token: Token) -> Result<(), Violation> {
        self.guards.not_held(client, token)
    }

    /// A client was told that the ticket of one of its guards is over.
    pub(crate) fn lost(
        &self,
        client: usize,
        token: Token,
        how: holdfast_client::EndReason,
    ) -> Result<(), Violation> {
        self.guards.lost(client, token, how)
    }

    /// A register took a token.
    pub(crate) fn passed(
        &self,
        key: &LockName,
        token: Token,
        floor: Token,
    ) -> Result<(), Violation> {
        fence::passed(key, token, floor)
    }

    /// The last entry that any node has applied.
    pub(crate) fn last_applied(&self) -> u64 {
        self.replicas_agree.last()
    }
}
