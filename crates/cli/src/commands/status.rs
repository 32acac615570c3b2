//! `holdfast status`: the nodes of a cluster, each asked directly.

use super::{Common, list, number, print_json};
use crate::exit::{Exit, Problem};
use crate::http::{Http, text};
use crate::table::{Cell, Colour, Table, say};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;

/// All nodes should name the same leader, and APPLIED should rise on all of them together.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast status
  holdfast status --json")]
pub(crate) struct Status {
    #[command(flatten)]
    common: Common,
}

impl Status {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let cluster = Cluster::ask(&self.common.server.http()?)?;
        if self.common.json {
            return print_json(&cluster.short());
        }
        let mut table = Table::new(&[">NODE", "ROLE", "HTTP", "PEERS", ">APPLIED", ">BEHIND"]);
        for node in &cluster.nodes {
            table.row(cluster.row(node));
        }
        table.print()?;
        let count = |field| number(&cluster.best, field).unwrap_or(0);
        let leader = cluster.leader.map_or("no leader".to_owned(), |id| format!("leader {id}"));
        say(&format!(
            "{leader}, term {}; {} locks, {} held, {} waits, {} sessions\n",
            count("term"),
            count("locks"),
            count("holders"),
            count("waiters"),
            count("sessions")
        ))?;
        Ok(Exit::Success)
    }
}

/// A member, as far as anything is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) role: String,
    pub(crate) http: Option<String>,
    pub(crate) peer: String,
    /// Its applied index, as reported by itself or by the leader.
    pub(crate) applied: Option<u64>,
    /// Whether it replied itself.
    pub(crate) answers: bool,
    /// Whether it reports that its disk is full.
    pub(crate) disk_full: bool,
}

/// The whole cluster, put together from the replies of all nodes that answered.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) leader: Option<u64>,
    pub(crate) nodes: Vec<Member>,
    /// The reply of the node that knows most.
    pub(crate) best: Value,
}

impl Cluster {
    /// Asks the given servers, then every other node that they know of.
    pub(crate) fn ask(http: &Http) -> Result<Self, Problem> {
        let named: Vec<String> = http.servers().to_vec();
        let mut replies = ask_all(http, &named);
        let Some(first) = best(replies.values()) else {
            // The error from asking them in turn says why.
            return http.get("/v1/status", &[]).and_then(|answer| Self::of(&[answer]));
        };
        let known = list(first, "nodes").iter().filter(|node| {
            let id = number(node, "id").unwrap_or(0);
            !replies.contains_key(&id)
        });
        let unasked: Vec<String> = known
            .map(|node| text(node, "http"))
            .filter(|http| !http.is_empty())
            .map(str::to_owned)
            .collect();
        replies.append(&mut ask_all(http, &unasked));
        Self::of(&replies.into_values().collect::<Vec<_>>())
    }

    fn of(replies: &[Value]) -> Result<Self, Problem> {
        let best = best(replies.iter()).cloned().unwrap_or_default();
        let members = list(&best, "nodes").iter().map(|node| {
            let id = number(node, "id").unwrap_or(0);
            let own = replies.iter().find(|replies| number(replies, "node") == Some(id));
            Member {
                id,
                role: text(node, "role").to_owned(),
                http: Some(text(node, "http").to_owned()).filter(|http| !http.is_empty()),
                peer: text(node, "peer").to_owned(),
                applied: own.and_then(|own| number(own, "applied")).or(number(node, "applied")),
                answers: own.is_some(),
                disk_full: own.is_some_and(|own| own["disk_full"] == true),
            }
        });
        Ok(Self { leader: number(&best, "leader"), nodes: members.collect(), best })
    }

    pub(crate) fn member(&self, id: u64) -> Option<&Member> {
        self.nodes.iter().find(|node| node.id == id)
    }

    fn short(&self) -> Value {
        let node = |node: &Member| {
            json!({
                "id": node.id, "role": node.role, "http": node.http, "applied": node.applied,
            })
        };
        json!({ "leader": self.leader, "nodes": self.nodes.iter().map(node).collect::<Vec<_>>() })
    }

    fn row(&self, node: &Member) -> Vec<Cell> {
        let furthest = self.nodes.iter().filter_map(|node| node.applied).max().unwrap_or(0);
        let colour = match node.role.as_str() {
            "leader" => Colour::Good,
            "learner" => Colour::Warn,
            _ => Colour::Plain,
        };
        let behind = match (node.applied, node.answers) {
            (_, false) => Cell::new("does not answer", Colour::Bad),
            (_, true) if node.disk_full => Cell::new("disk full", Colour::Bad),
            (Some(applied), true) => (furthest - applied).into(),
            (None, true) => "".into(),
        };
        vec![
            node.id.into(),
            Cell::new(&node.role, colour),
            node.http.as_deref().unwrap_or("-").into(),
            node.peer.as_str().into(),
            node.applied.map_or("-".to_owned(), |applied| applied.to_string()).into(),
            behind,
        ]
    }
}

/// The status of each server, by node id. All are asked at once.
fn ask_all(http: &Http, servers: &[String]) -> BTreeMap<u64, Value> {
    thread::scope(|scope| {
        let ask = |server: &String| {
            let one = http.at(server).with_short_timeout();
            scope.spawn(move || one.get("/v1/status", &[]).ok())
        };
        let asked: Vec<_> = servers.iter().map(ask).collect();
        let replies = asked.into_iter().filter_map(|thread| thread.join().ok().flatten());
        replies.map(|replies| (number(&replies, "node").unwrap_or(0), replies)).collect()
    })
}

/// The reply to trust: one that knows a leader, of the newest term, from the leader itself if
/// possible.
fn best<'a>(replies: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    replies.max_by_key(|replies| {
        let leader = number(replies, "leader");
        (leader.is_some(), number(replies, "term"), leader == number(replies, "node"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(node: u64, leader: Option<u64>, term: u64, applied: u64) -> Value {
        json!({
            "node": node, "leader": leader, "term": term, "applied": applied,
            "nodes": [
                { "id": 1, "role": "leader", "http": "http://a", "peer": "a:1", "applied": null },
                { "id": 2, "role": "follower", "http": null, "peer": "b:1", "applied": 7 },
            ],
        })
    }

    #[test]
    fn nodes_report_themselves_and_the_leader_the_rest() {
        let cluster = Cluster::of(&[replies(1, Some(1), 3, 9)]).unwrap();
        assert_eq!(
            cluster.short(),
            json!({ "leader": 1, "nodes": [
                { "id": 1, "role": "leader", "http": "http://a", "applied": 9 },
                { "id": 2, "role": "follower", "http": null, "applied": 7 },
            ]})
        );
        assert!(cluster.nodes[0].answers && !cluster.nodes[1].answers);
    }

    #[test]
    fn newest_term_decides_who_leads() {
        let all = [replies(1, Some(1), 3, 9), replies(2, None, 5, 9), replies(3, Some(2), 4, 9)];
        assert_eq!(best(all.iter()), Some(&all[2]));
    }
}
