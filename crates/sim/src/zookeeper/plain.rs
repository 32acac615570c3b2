//! Reads and writes of a few znodes that all clients share, with watches, several requests at a time.

use super::client::{Client, Context};
use super::{Purpose, create, delete};
use crate::checks::ClientKey;
use holdfast_core::{NodeData, NodeKind, NodeOp};
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{AddWatchMode, Reply, ReplyBody, Request};
use std::collections::BTreeMap;

/// The directory of the znodes that clients share.
const ROOT: &str = "/shared";
const NODES: u64 = 3;
/// Requests that may be on their way.
const OUTSTANDING_MAX: usize = 4;

pub(crate) struct Plain {
    next_us: u64,
    /// Whether the directory was created.
    began: bool,
    /// Whether the session is being closed.
    pub(super) closes: bool,
    versions: BTreeMap<String, i32>,
}

impl Plain {
    pub(super) fn new(now_us: u64) -> Self {
        Self { next_us: now_us, began: false, closes: false, versions: BTreeMap::new() }
    }

    pub(super) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// What a client sends now.
    pub(super) fn request(client: &mut Client, context: &mut Context<'_>) -> Option<Request> {
        let outstanding = client.outstanding(Purpose::Plain);
        let (tag, number, is_idle) = (client.tag(), client.number, client.lock.is_idle());
        let plain = &mut client.plain;
        if plain.closes || context.now_us < plain.next_us {
            return None;
        }
        // Some come together.
        if !context.rng.per_mille(400) {
            plain.next_us = context.now_us + context.rng.range(20_000, 2_500_000);
        }
        if context.rests || outstanding >= OUTSTANDING_MAX {
            plain.next_us = context.now_us + 500_000;
            return None;
        }
        if !std::mem::replace(&mut plain.began, true) {
            return Some(create(ROOT, "", NodeKind::Persistent, false));
        }
        let node = |context: &mut Context<'_>| format!("{ROOT}/{}", context.rng.range(0, NODES));
        let path = node(context);
        let version = plain.versions.get(&path).copied().filter(|_| context.rng.per_mille(500));
        let data = NodeData::parse(tag.as_bytes()).ok();
        let set = |path: String| NodeOp::SetData { path, data: data.clone(), version };
        Some(match context.rng.range(0, 100) {
            0..12 => create(&path, &tag, NodeKind::Persistent, false),
            12..32 => Request::Write { op: set(path), stat: false },
            32..39 => delete(&path),
            39..46 => {
                let other = node(context);
                let check = NodeOp::Check { path: ROOT.to_owned(), version: None };
                let delete = NodeOp::Delete { path: other, version: None };
                Request::Multi([set(path), check, delete].map(|op| (op, false)).to_vec())
            }
            46..58 => Request::GetData { path, watch: true },
            58..66 => Request::Exists { path, watch: true },
            66..76 => Request::GetChildren { path: ROOT.to_owned(), watch: true, stat: true },
            76..81 => Request::Sync { path },
            81..85 => {
                let recursive = context.rng.per_mille(500);
                let mode = match recursive {
                    true => AddWatchMode::PersistentRecursive,
                    false => AddWatchMode::Persistent,
                };
                Request::AddWatch { path: ROOT.to_owned(), mode }
            }
            85..90 => create(&format!("{ROOT}/of-{number}"), &tag, NodeKind::Ephemeral, false),
            90..93 => delete(&format!("{ROOT}/of-{number}")),
            93..95 if is_idle => {
                plain.closes = true;
                Request::CloseSession
            }
            _ => Request::GetData { path, watch: false },
        })
    }

    pub(super) fn replied(
        &mut self,
        client: ClientKey,
        request: &Request,
        reply: &Reply,
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        let (Request::GetData { path, .. } | Request::Exists { path, .. }) = request else {
            return Ok(());
        };
        let stat = match &reply.result {
            Ok(ReplyBody::DataStat(_, stat) | ReplyBody::Stat(stat)) => Some(stat),
            Err(Code::NoNode) => None,
            _ => return Ok(()),
        };
        self.versions.extend(stat.map(|stat| (path.clone(), stat.version)));
        let mzxid = stat.map(|stat| stat.mzxid);
        context.checks.read(client, path, reply.zxid.cast_unsigned(), mzxid)
    }
}
