//! The node's Prometheus metrics.

use holdfast_core::{Counts, Effect, EndReason};
use holdfast_node::{Node, NodeId};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::time::Duration;

/// Labels of the `endings` counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndingLabels {
    how: &'static str,
    /// Whether the ticket had been served.
    held: &'static str,
}

/// Label of the metrics that are kept per door.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabel {
    door: &'static str,
}

/// The metrics of one door.
#[derive(Debug, Clone, Default)]
pub(crate) struct DoorMetrics {
    /// Open connections.
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
}

/// Counters and histograms are updated as things happen; gauges are read when they are scraped.
pub(crate) struct Metrics {
    registry: Registry,
    grants: Counter,
    endings: Family<EndingLabels, Counter>,
    waits: Histogram,
    holds: Histogram,
    pub(crate) requests: Counter,
    pub(crate) answers: Histogram,
    pub(crate) entries: Counter,
    pub(crate) fsync: Histogram,
    pub(crate) apply: Histogram,
    pub(crate) turn: Histogram,
    connections: Family<DoorLabel, Gauge>,
    connections_refused: Family<DoorLabel, Counter>,
    commands: Family<DoorLabel, Counter>,
    /// In the order of [`GAUGES`].
    gauges: Vec<Gauge>,
}

/// Reads a gauge's value.
type Read = fn(&GaugeInputs) -> u64;

/// The gauges: name, help text, how the value is read.
const GAUGES: [(&str, &str, Read); 17] = [
    ("locks", "Locks that are held, waited for or remembered", |now| now.counts.locks as u64),
    ("holders", "Tickets that hold a lock", |now| now.counts.holders as u64),
    ("waiters", "Tickets in line", |now| now.counts.waiters as u64),
    ("longest_line", "Tickets in the longest line, those being served included", |now| {
        now.longest_line as u64
    }),
    ("sessions", "Sessions, those of the nodes included", |now| now.counts.sessions as u64),
    (
        "locks_needing_recovery",
        "Locks whose holder died and that nobody has recovered yet",
        |now| now.counts.deaths as u64,
    ),
    ("register_keys", "Keys of the fenced register", |now| now.counts.register_keys as u64),
    ("request_ids", "Request ids without a session that are remembered", |now| {
        now.counts.requests_alone as u64
    }),
    ("text_bytes", "Bytes of names, labels, notes, values and what is remembered", |now| {
        now.counts.bytes as u64
    }),
    ("last_token", "The last number drawn", |now| now.counts.counter),
    ("raft_term", "The Raft term of this node", |now| now.term),
    ("raft_leads", "1 if this node leads", |now| u64::from(now.leader == Some(now.id))),
    ("raft_has_leader", "1 if this node knows a leader", |now| u64::from(now.leader.is_some())),
    ("raft_committed_index", "The last committed log entry", |now| now.committed),
    ("raft_applied_index", "The last log entry applied on this node", |now| now.applied),
    ("raft_members", "Members of the cluster", |now| now.members as u64),
    ("raft_voters", "Voting members", |now| now.voters as u64),
];

/// Every way a ticket can end.
const HOWS: [EndReason; 7] = [
    EndReason::Released,
    EndReason::Expired,
    EndReason::Closed,
    EndReason::Forced,
    EndReason::Cancelled,
    EndReason::TimedOut,
    EndReason::Restored,
];

/// From 0.1ms to about 50s.
fn short() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 20))
}

/// From 1ms to about 4.5 hours.
fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 25))
}

/// Registers a metric under a name, and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("holdfast");
        let r = &mut registry;
        let gauges = GAUGES.iter().map(|(name, help, _)| add(r, name, help, Gauge::default()));
        let gauges = gauges.collect();
        let endings: Family<EndingLabels, Counter> = Family::default();
        for how in HOWS {
            for held in ["false", "true"] {
                // Created at startup, so that the first increment shows as a change.
                endings.get_or_create(&EndingLabels { how: word(how), held }).inc_by(0);
            }
        }
        Self {
            gauges,
            grants: add(r, "grants", "Tickets that were granted", Counter::default()),
            endings: add(r, "endings", "Tickets that ended, and how", endings),
            waits: add(
                r,
                "wait_seconds",
                "Logical time from joining the line to the grant",
                long(),
            ),
            holds: add(r, "hold_seconds", "Logical time from the grant to the end", long()),
            requests: add(
                r,
                "requests",
                "Write requests that this node accepted",
                Counter::default(),
            ),
            answers: add(
                r,
                "answer_seconds",
                "Time from accepting a write request to its reply: replicated, synced, applied",
                short(),
            ),
            entries: add(r, "entries", "Log entries applied", Counter::default()),
            fsync: add(r, "fsync_seconds", "Duration of log syncs", short()),
            apply: add(
                r,
                "apply_seconds",
                "Duration of the loop turns that applied entries",
                short(),
            ),
            turn: add(r, "turn_seconds", "Duration of all loop turns", short()),
            connections: add(
                r,
                "connections",
                "Open connections of clients, by door",
                Family::default(),
            ),
            connections_refused: add(
                r,
                "connections_refused",
                "Connections that were refused because there were too many, by door",
                Family::default(),
            ),
            commands: add(
                r,
                "commands",
                "Commands that clients sent, by door; HTTP and gRPC have none",
                Family::default(),
            ),
            registry,
        }
    }

    /// The metrics of a door.
    pub(crate) fn door(&self, door: &'static str) -> DoorMetrics {
        let label = DoorLabel { door };
        DoorMetrics {
            connections: self.connections.get_or_create(&label).clone(),
            connections_refused: self.connections_refused.get_or_create(&label).clone(),
        }
    }

    /// Commands received, at a door whose protocol has commands.
    pub(crate) fn commands(&self, door: &'static str) -> Counter {
        self.commands.get_or_create(&DoorLabel { door }).clone()
    }

    /// Counts an effect that was applied here.
    pub(crate) fn record(&self, effect: &Effect) {
        match effect {
            Effect::Granted(grant) => {
                self.grants.inc();
                self.waits.observe(seconds(grant.waited_ms));
            }
            Effect::Ended(ended) => {
                let held = if ended.held { "true" } else { "false" };
                self.endings.get_or_create(&EndingLabels { how: word(ended.how), held }).inc();
                if ended.held {
                    self.holds.observe(seconds(ended.for_ms));
                }
            }
            _ => {}
        }
    }

    /// All metrics in Prometheus text format, with the gauges set from `now`.
    pub(crate) fn text(&self, now: &GaugeInputs) -> String {
        for (gauge, (_, _, read)) in self.gauges.iter().zip(GAUGES) {
            gauge.set(i64::try_from(read(now)).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// A node's state as the gauges show it.
pub(crate) struct GaugeInputs {
    id: NodeId,
    counts: Counts,
    term: u64,
    leader: Option<NodeId>,
    longest_line: usize,
    committed: u64,
    applied: u64,
    members: usize,
    voters: usize,
}

impl GaugeInputs {
    pub(crate) fn of(node: &Node) -> Self {
        let members = node.cluster().members();
        Self {
            id: node.id(),
            counts: node.state().counts(),
            term: node.term(),
            leader: node.leader(),
            longest_line: node.state().longest_line(),
            committed: node.committed(),
            applied: node.applied().index,
            members: members.len(),
            voters: members.values().filter(|member| member.votes).count(),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn word(how: EndReason) -> &'static str {
    match how {
        EndReason::Released => "released",
        EndReason::Expired => "expired",
        EndReason::Closed => "closed",
        EndReason::Forced => "forced",
        EndReason::Cancelled => "cancelled",
        EndReason::TimedOut => "timed_out",
        EndReason::Restored => "restored",
    }
}
