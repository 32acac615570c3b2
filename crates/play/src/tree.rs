//! Lines about znodes: changing several at once, and looking at them.

use crate::parse::{Error, duration_ms};
use holdfast_core::{Acl, Effect, NodeData, NodeEvent, NodeKind, NodeOp, NodeResult, Stat, State};

/// `create /locks; create /locks/x__lock__ ana ephemeral sequential; delete /old version=2`
pub(crate) fn ops(words: &[String]) -> Result<Vec<NodeOp>, Error> {
    let mut ops = Vec::new();
    let mut one = Vec::new();
    for word in words {
        match word.strip_suffix(';') {
            Some(last) => {
                if !last.is_empty() {
                    one.push(last.to_owned());
                }
                ops.push(op(&std::mem::take(&mut one))?);
            }
            None => one.push(word.clone()),
        }
    }
    if !one.is_empty() || ops.is_empty() {
        ops.push(op(&one)?);
    }
    Ok(ops)
}

fn op(words: &[String]) -> Result<NodeOp, Error> {
    let [verb, path, rest @ ..] = words else {
        return Err("say what to do with which path, for instance: create /locks".to_owned());
    };
    let (mut texts, mut version) = (Vec::new(), None);
    let (mut kind, mut sequential, mut acl) = (NodeKind::Persistent, false, vec![Acl::open()]);
    for word in rest {
        match word.as_str() {
            "ephemeral" => kind = NodeKind::Ephemeral,
            "container" => kind = NodeKind::Container,
            "sequential" => sequential = true,
            "read-only" => acl = vec![Acl { perms: holdfast_core::perms::READ, ..Acl::open() }],
            word => match word.split_once('=') {
                Some(("ttl", ms)) => kind = NodeKind::Ttl { ms: duration_ms(ms)? },
                Some(("version", text)) => {
                    version = Some(text.parse().map_err(|_| format!("{text} is no version"))?);
                }
                _ => texts.push(word.to_owned()),
            },
        }
    }
    let data = texts.first().map_or("", String::as_str);
    let data = Some(NodeData::parse(data).map_err(|error| error.to_string())?);
    let path = path.clone();
    Ok(match verb.as_str() {
        "create" => NodeOp::Create { path, data, acl, kind, sequential },
        "delete" => NodeOp::Delete { path, version },
        "set" => NodeOp::SetData { path, data, version },
        "acl" => NodeOp::SetAcl { path, acl, version },
        "check" => NodeOp::Check { path, version },
        _ => return Err(format!("{verb}? It is create, delete, set, acl or check")),
    })
}

pub(crate) fn effect(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::NodeChanged { path, what, zxid } => {
            let what = match what {
                NodeEvent::Created => "created",
                NodeEvent::Deleted => "deleted",
                NodeEvent::DataChanged => "has other data",
            };
            format!("{path} {what}, zxid={zxid}")
        }
        Effect::SessionAttached { session, attachment } => {
            format!("session {session} goes on elsewhere, attachment={attachment}")
        }
        _ => return None,
    })
}

pub(crate) fn written(results: &[NodeResult]) -> String {
    let one = |result: &NodeResult| match result {
        NodeResult::Created { path, .. } => format!("created {path}"),
        NodeResult::Deleted => "deleted".to_owned(),
        NodeResult::Set(stat) => {
            format!("set, version={} aversion={}", stat.version, stat.aversion)
        }
        NodeResult::Checked => "checked".to_owned(),
    };
    results.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// All znodes from a path on, with their properties. Built-in ones are left out.
pub(crate) fn nodes(state: &State, from: &str) -> Vec<String> {
    let paths = state.node_paths();
    let shown =
        paths.iter().filter(|path| path.starts_with(from) && !path.starts_with("/zookeeper"));
    shown.filter_map(|path| node(path, state)).collect()
}

fn node(path: &str, state: &State) -> Option<String> {
    let node = state.node(path)?;
    let Stat {
        czxid,
        mzxid,
        pzxid,
        version,
        cversion,
        aversion,
        ephemeral_owner,
        num_children,
        ..
    } = node.stat;
    let data = node.data.map_or("null".to_owned(), |data| format!("{data:?}"));
    let owner = match ephemeral_owner {
        0 => String::new(),
        owner => format!(" owner={owner}"),
    };
    Some(format!(
        "{path} {data} czxid={czxid} mzxid={mzxid} pzxid={pzxid} version={version} \
         cversion={cversion} aversion={aversion} children={num_children}{owner}"
    ))
}
