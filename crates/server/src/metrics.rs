//! What the node counts and measures, for Prometheus.

use holdfast_core::{Counts, Effect, How};
use holdfast_node::{Node, NodeId};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// How a ticket ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ending {
    how: &'static str,
    /// Whether it had been served.
    held: &'static str,
}

/// Everything that is counted as it happens; the rest is read when it is asked for.
pub(crate) struct Metrics {
    registry: Registry,
    grants: Counter,
    endings: Family<Ending, Counter>,
    waits: Histogram,
    holds: Histogram,
    pub(crate) requests: Counter,
    pub(crate) entries: Counter,
    pub(crate) fsync: Histogram,
    pub(crate) turn: Histogram,
    gauges: Gauges,
}

#[derive(Default)]
struct Gauges {
    locks: Gauge,
    holders: Gauge,
    waiters: Gauge,
    sessions: Gauge,
    needs_recovery: Gauge,
    term: Gauge,
    leads: Gauge,
    has_leader: Gauge,
    applied: Gauge,
    members: Gauge,
    voters: Gauge,
}

/// From a tenth of a millisecond to about a minute and a half.
fn short() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 20))
}

/// From a millisecond to about nine hours.
fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 25))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("holdfast");
        let metrics = Self {
            grants: Counter::default(),
            endings: Family::default(),
            waits: long(),
            holds: long(),
            requests: Counter::default(),
            entries: Counter::default(),
            fsync: short(),
            turn: short(),
            gauges: Gauges::default(),
            registry: Registry::default(),
        };
        let r = &mut registry;
        r.register("grants", "Tickets that were served", metrics.grants.clone());
        r.register("endings", "Tickets that ended, and how", metrics.endings.clone());
        r.register(
            "wait_seconds",
            "Logical time from joining the line to the grant",
            metrics.waits.clone(),
        );
        r.register("hold_seconds", "Logical time from the grant to the end", metrics.holds.clone());
        r.register("requests", "Requests that this node took", metrics.requests.clone());
        r.register("entries", "Log entries applied", metrics.entries.clone());
        r.register("fsync_seconds", "How long the log's syncs took", metrics.fsync.clone());
        r.register(
            "turn_seconds",
            "How long the turns of the loop took, applying included",
            metrics.turn.clone(),
        );
        let g = &metrics.gauges;
        r.register("locks", "Locks that are held, waited for or remembered", g.locks.clone());
        r.register("holders", "Tickets being served", g.holders.clone());
        r.register("waiters", "Tickets in line", g.waiters.clone());
        r.register("sessions", "Sessions", g.sessions.clone());
        r.register(
            "locks_needing_recovery",
            "Locks whose holder died and nobody put right",
            g.needs_recovery.clone(),
        );
        r.register("raft_term", "The term that this node is in", g.term.clone());
        r.register("raft_leads", "1 if this node leads", g.leads.clone());
        r.register("raft_has_leader", "1 if this node knows a leader", g.has_leader.clone());
        r.register("raft_applied_index", "The last entry applied here", g.applied.clone());
        r.register("raft_members", "Members of the cluster", g.members.clone());
        r.register("raft_voters", "Members whose votes count", g.voters.clone());
        Self { registry, ..metrics }
    }

    /// An effect was applied here.
    pub(crate) fn hear(&self, effect: &Effect) {
        match effect {
            Effect::Granted(grant) => {
                self.grants.inc();
                self.waits.observe(seconds(grant.waited_ms));
            }
            Effect::Ended(ended) => {
                let held = if ended.held { "true" } else { "false" };
                self.endings.get_or_create(&Ending { how: word(ended.how), held }).inc();
                if ended.held {
                    self.holds.observe(seconds(ended.for_ms));
                }
            }
            _ => {}
        }
    }

    /// Everything as text, with how things stand now.
    pub(crate) fn text(&self, now: &Now) -> String {
        let set = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let g = &self.gauges;
        set(&g.locks, now.counts.locks as u64);
        set(&g.holders, now.counts.holders as u64);
        set(&g.waiters, now.counts.waiters as u64);
        set(&g.sessions, now.counts.sessions as u64);
        set(&g.needs_recovery, now.counts.deaths as u64);
        set(&g.term, now.term);
        set(&g.leads, u64::from(now.leader == Some(now.id)));
        set(&g.has_leader, u64::from(now.leader.is_some()));
        set(&g.applied, now.applied);
        set(&g.members, now.members as u64);
        set(&g.voters, now.voters as u64);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// How things stand on a node.
pub(crate) struct Now {
    id: NodeId,
    counts: Counts,
    term: u64,
    leader: Option<NodeId>,
    applied: u64,
    members: usize,
    voters: usize,
}

impl Now {
    pub(crate) fn of(node: &Node) -> Self {
        let members = node.cluster().members();
        Self {
            id: node.id(),
            counts: node.state().counts(),
            term: node.term(),
            leader: node.leader(),
            applied: node.applied().index,
            members: members.len(),
            voters: members.values().filter(|member| member.votes).count(),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn word(how: How) -> &'static str {
    match how {
        How::Released => "released",
        How::Expired => "expired",
        How::Closed => "closed",
        How::Forced => "forced",
        How::Cancelled => "cancelled",
        How::TimedOut => "timed_out",
        How::Restored => "restored",
    }
}
