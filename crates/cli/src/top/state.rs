//! What is known about the cluster, sorted for display.

use crate::commands::status::{Cluster, Member};
use crate::http::text;
use serde_json::Value;
use std::cmp::Reverse;

/// More rows than any terminal has.
const ROWS_MAX: usize = 200;

/// A lock that is held or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockRow {
    pub(super) name: String,
    pub(super) waiting: u64,
    pub(super) token: Option<u64>,
    pub(super) holder: String,
    pub(super) held_ms: u64,
}

/// A ticket in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitRow {
    pub(super) waited_ms: u64,
    pub(super) name: String,
    pub(super) place: usize,
    pub(super) who: String,
}

/// A holder that died, if nobody has recovered since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeathRow {
    pub(super) token: u64,
    pub(super) name: String,
    pub(super) how: String,
    pub(super) who: String,
    pub(super) note: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) wall_ms: u64,
    /// The error, if the last poll failed.
    pub(super) trouble: Option<String>,
    pub(super) leader: Option<u64>,
    pub(super) term: u64,
    pub(super) nodes: Vec<Member>,
    pub(super) locks: u64,
    pub(super) holders: u64,
    pub(super) waiters: u64,
    pub(super) sessions: u64,
    pub(super) grants_per_second: Option<f64>,
    /// Whether there are more locks than were fetched.
    pub(super) more: bool,
    /// The longest line first.
    pub(super) lines: Vec<LockRow>,
    /// The longest wait first.
    pub(super) waits: Vec<WaitRow>,
    /// The newest first.
    pub(super) deaths: Vec<DeathRow>,
}

impl State {
    pub(super) fn of(cluster: &Cluster, locks: &[Value]) -> Self {
        let count = |field| number(&cluster.best, field);
        let mut state = Self {
            leader: cluster.leader,
            term: count("term"),
            nodes: cluster.nodes.clone(),
            locks: count("locks"),
            holders: count("holders"),
            waiters: count("waiters"),
            sessions: count("sessions"),
            ..Self::default()
        };
        for lock in locks {
            state.add(lock);
        }
        state.lines.sort_by_key(|line| (Reverse(line.waiting), Reverse(line.held_ms)));
        state.waits.sort_by_key(|wait| Reverse(wait.waited_ms));
        state.deaths.sort_by_key(|death| Reverse(death.token));
        state.lines.truncate(ROWS_MAX);
        state.waits.truncate(ROWS_MAX);
        state.deaths.truncate(ROWS_MAX);
        state
    }

    fn add(&mut self, lock: &Value) {
        let name = text(lock, "name").to_owned();
        let holder = lock["holders"].get(0);
        if holder.is_some() || number(lock, "waiting") > 0 {
            self.lines.push(LockRow {
                name: name.clone(),
                waiting: number(lock, "waiting"),
                token: holder.map(|holder| number(holder, "token")),
                holder: holder.map_or("", |holder| text(holder, "label")).to_owned(),
                held_ms: holder.map_or(0, |holder| number(holder, "for_ms")),
            });
        }
        for (at, waiter) in lock["waiters"].as_array().into_iter().flatten().enumerate() {
            self.waits.push(WaitRow {
                waited_ms: number(waiter, "for_ms"),
                name: name.clone(),
                place: at + 1,
                who: text(waiter, "label").to_owned(),
            });
        }
        if let Some(death) = lock.get("needs_recovery").filter(|death| !death.is_null()) {
            self.deaths.push(DeathRow {
                token: number(death, "token"),
                name,
                how: text(death, "how").to_owned(),
                who: text(death, "label").to_owned(),
                note: text(death, "note").to_owned(),
            });
        }
    }
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or(0)
}
