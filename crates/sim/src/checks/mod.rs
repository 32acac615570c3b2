//! The checkers, one file each. Each watches the run for one promise.
//!
//! An entry is judged when the first node applies it; what other nodes make of it is compared
//! with that.

pub(crate) mod damage_is_found;
mod first_come;
mod heard;
mod in_order;
mod leases;
mod linearizable;
pub(crate) mod liveness;
pub(crate) mod nothing_lost;
mod one_effect;
mod one_holder;
mod one_leader;
mod only_the_living;
mod replicas_agree;
mod time_stands_still;
mod tokens_rise;
mod withdrawn;

pub(crate) use heard::DOOR;
pub(crate) use leases::Belief;

use holdfast_core::{Effect, Label, SessionId, State, Token};
use holdfast_node::{NodeId, Position, Reply};

/// An entry as a node applied it.
pub(crate) struct Applied<'a> {
    pub(crate) node: NodeId,
    pub(crate) at: Position,
    /// What the node computed up to and with this entry.
    pub(crate) digest: u64,
    pub(crate) effects: &'a [Effect],
    pub(crate) state: &'a State,
    /// The sessions of the node processes that run.
    pub(crate) living: &'a [SessionId],
    pub(crate) now_us: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    one_leader: one_leader::OneLeader,
    replicas_agree: replicas_agree::ReplicasAgree,
    time_stands_still: time_stands_still::TimeStandsStill,
    one_holder: one_holder::OneHolder,
    tokens_rise: tokens_rise::TokensRise,
    one_effect: one_effect::OneEffect,
    leases: leases::Leases,
    linearizable: linearizable::Linearizable,
    in_order: in_order::InOrder,
    only_the_living: only_the_living::OnlyTheLiving,
    heard: heard::Heard,
    withdrawn: withdrawn::Withdrawn,
}

/// A promise that was broken, in words.
pub(crate) type Violation = String;

impl Checks {
    /// An entry was applied; `beliefs` says which clients believe to hold which lock now.
    pub(crate) fn applied(
        &mut self,
        applied: &Applied<'_>,
        beliefs: &[Belief],
    ) -> Result<(), Violation> {
        if !self.replicas_agree.applied(applied)? {
            return Ok(());
        }
        self.time_stands_still.applied(applied, self.one_leader.since_us(applied.at.term))?;
        self.one_holder.applied(applied)?;
        self.tokens_rise.applied(applied)?;
        first_come::applied(applied)?;
        self.one_effect.applied(applied)?;
        self.only_the_living.applied(applied)?;
        self.heard.applied(applied)?;
        self.withdrawn.applied(applied)?;
        self.leases.applied(applied, beliefs)
    }

    /// A node said that the request with this label was withdrawn.
    pub(crate) fn withdrawn(&mut self, label: Label) -> Result<(), Violation> {
        self.withdrawn.withdrawn(label)
    }

    /// A caller without a session was told that it holds this.
    pub(crate) fn heard(&mut self, token: Token) {
        self.heard.heard(token);
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

    /// A client was told its token; `floor` was the highest told when it first asked.
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
        client: usize,
        pair: u64,
        second: bool,
        reply: &Reply,
    ) -> Result<(), Violation> {
        self.in_order.pair(client, pair, second, reply)
    }

    /// A node said that its state is current, for a read first asked for at `floor`.
    pub(crate) fn read(&mut self, node: NodeId, counter: u64, floor: u64) -> Result<(), Violation> {
        self.linearizable.read(node, counter, floor)
    }

    /// A heartbeat that was sent at this time was acknowledged.
    pub(crate) fn beat(&mut self, session: SessionId, sent_us: u64, ttl_ms: u64) {
        self.leases.beat(session, sent_us, ttl_ms);
    }

    /// The last entry that any node has applied.
    pub(crate) fn last_applied(&self) -> u64 {
        self.replicas_agree.last()
    }
}
