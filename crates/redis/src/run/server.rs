//! Server commands that a job can answer.

use super::{Overlay, RunResult};
use crate::command::{PubSub, Server, describe};
use crate::glob;
use crate::resp::Reply;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Settings that clients and their tools look up.
const SETTINGS: &[(&str, &str)] = &[
    ("appendonly", "yes"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("proto-max-bulk-len", "524288"),
    ("save", ""),
    ("timeout", "0"),
];

/// The version of Redis that is emulated: clients decide by it what they send.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(super) fn run(command: &Server, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    Ok(match command {
        Server::Command(what) => describe(what)?,
        Server::Info(sections) => Reply::Verbatim(*b"txt", Bytes::from(info(sections, overlay))),
        Server::ConfigGet(patterns) => {
            let wanted = |name: &str| {
                let fits =
                    |pattern: &Bytes| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes());
                patterns.iter().any(fits)
            };
            let found = SETTINGS.iter().filter(|(name, _)| wanted(name));
            Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
        }
        Server::Time => {
            let ms = overlay.local.wall_ms();
            Reply::bulks([(ms / 1000).to_string(), (ms % 1000 * 1000).to_string()])
        }
        Server::Role => {
            Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())])
        }
    })
}

/// This node's subscriptions.
pub(super) fn listeners(command: &PubSub, overlay: &Overlay<'_>) -> Reply {
    match command {
        PubSub::Channels(pattern) => {
            let fits = |channel: &Bytes| {
                pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, channel))
            };
            let channels = overlay.local.channels().into_iter().map(|(channel, _)| channel);
            Reply::Array(channels.filter(fits).map(Reply::Bulk).collect())
        }
        PubSub::NumSub(channels) => {
            let listening: BTreeMap<Bytes, usize> = overlay.local.channels().into_iter().collect();
            let count =
                |channel: &Bytes| Reply::count(listening.get(channel).copied().unwrap_or(0));
            let pair = |channel: &Bytes| [Reply::Bulk(channel.clone()), count(channel)];
            Reply::Array(channels.iter().flat_map(pair).collect())
        }
        PubSub::NumPat => Reply::count(overlay.local.patterns()),
        _ => super::not_here().into(),
    }
}

fn info(sections: &[Bytes], overlay: &Overlay<'_>) -> String {
    let facts = overlay.local.facts();
    let (days, uptime_s) = (facts.uptime_s / 86_400, facts.uptime_s);
    let all = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nholdfast_version:{}\r\nredis_mode:standalone\r\n\
                 os:{}\r\narch_bits:64\r\nrun_id:{}\r\ntcp_port:{}\r\n\
                 uptime_in_seconds:{uptime_s}\r\nuptime_in_days:{days}\r\n",
                facts.version,
                std::env::consts::OS,
                facts.run_id,
                facts.port,
            ),
        ),
        (
            "Clients",
            format!("connected_clients:{}\r\nblocked_clients:{}\r\n", facts.clients, facts.blocked),
        ),
        ("Persistence", "loading:0\r\naof_enabled:1\r\n".to_owned()),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        (
            "Keyspace",
            if facts.keys == 0 {
                String::new()
            } else {
                format!("db0:keys={},expires=0,avg_ttl=0\r\n", facts.keys)
            },
        ),
    ];
    let asked = |name: &str| {
        sections.is_empty()
            || sections.iter().any(|section| {
                [name, "all", "default", "everything"]
                    .iter()
                    .any(|word| section.eq_ignore_ascii_case(word.as_bytes()))
            })
    };
    let mut text = String::new();
    for (name, lines) in all.iter().filter(|(name, _)| asked(name)) {
        let between = if text.is_empty() { "" } else { "\r\n" };
        let _ = write!(text, "{between}# {name}\r\n{lines}");
    }
    text
}
