//! Reads from this node's state, and the watches that they set.

use crate::auth;
use crate::clients::{ClientId, Clients};
use crate::code::Code;
use crate::codec::{
    AddWatchMode, ReadOp, ReadResult, ReplyBody, Request, SetWatches, WatchEvent, WatchEventType,
};
use crate::watches::Kind;
use holdfast_core::{
    AuthId, NodeView, PATH_BYTES_MAX, SessionId, State, is_allowed, perms, shown_acl, validate_path,
};
use holdfast_gateway::Caller;
use std::sync::Arc;

/// The longest reply, in bytes: about 65,000 children with names of the usual length. Building one
/// takes a few milliseconds of the loop's thread, and every client may leave one unread.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// The most reads in a `multiRead`; the same as the most changes in a `multi`.
const READS_MAX: usize = 512;

/// The length that precedes a string in a reply.
const TEXT_HEAD_BYTES: usize = 4;

/// The size of a Stat in a reply, with the header of a read in a `multiRead`.
const STAT_BYTES: usize = 80;

/// How many more bytes a reply may have.
struct ReplyBudget(usize);

impl ReplyBudget {
    /// Takes bytes from the budget. Once something does not fit, nothing does, so that the reads of
    /// an oversized `multiRead` are not all measured in vain.
    fn take(&mut self, bytes: usize) -> Result<(), Code> {
        match self.0.checked_sub(bytes) {
            Some(left) => self.0 = left,
            None => {
                self.0 = 0;
                return Err(Code::QuotaExceeded);
            }
        }
        Ok(())
    }

    fn texts<'a>(&mut self, all: impl Iterator<Item = &'a Arc<str>>) -> Result<Vec<String>, Code> {
        let mut texts = Vec::new();
        for text in all {
            self.take(text.len().saturating_add(TEXT_HEAD_BYTES))?;
            texts.push(text.to_string());
        }
        Ok(texts)
    }
}

/// The context of a read: the client, its session and the state.
pub(crate) struct Reading<'a> {
    pub(crate) state: &'a State,
    pub(crate) clients: &'a mut Clients,
    pub(crate) client: ClientId,
    pub(crate) caller: &'a Caller,
    pub(crate) session: SessionId,
    pub(crate) ids: &'a [AuthId],
    /// For `getAllChildrenNumber`: how many znodes were counted below the path.
    pub(crate) descendants: usize,
    /// Events to send before the reply.
    pub(crate) events: Vec<WatchEvent>,
}

impl<'a> Reading<'a> {
    /// The reply to a request that changes no znode.
    pub(crate) fn answer(&mut self, request: &Request) -> Result<ReplyBody, Code> {
        match request {
            Request::Exists { path, watch } => {
                // A watch on a missing znode waits for its creation.
                self.watch(path, *watch, Kind::Data)?;
                self.node(path).map(|node| ReplyBody::Stat(node.stat))
            }
            Request::GetData { path, watch } => {
                let node = self.readable(path)?;
                let body = ReplyBody::DataStat(node.data.cloned(), node.stat);
                self.watch(path, *watch, Kind::Data)?;
                Ok(body)
            }
            Request::GetChildren { path, watch, stat } => {
                let node_stat = self.readable(path)?.stat;
                let names = self.children(path, &mut ReplyBudget(REPLY_BYTES_MAX))?;
                self.watch(path, *watch, Kind::Children)?;
                Ok(if *stat {
                    ReplyBody::ChildrenStat(names, node_stat)
                } else {
                    ReplyBody::Texts(names)
                })
            }
            Request::GetAcl { path } => {
                let node = self.node(path)?;
                self.check(&node, perms::READ | perms::ADMIN)?;
                Ok(ReplyBody::Acl(shown_acl(node.acl, self.ids), node.stat))
            }
            Request::MultiRead(ops) => {
                if ops.len() > READS_MAX {
                    return Err(Code::BadArguments);
                }
                let mut left = ReplyBudget(REPLY_BYTES_MAX);
                let read = |op| self.read(op, &mut left).unwrap_or_else(ReadResult::Error);
                Ok(ReplyBody::MultiRead(ops.iter().map(read).collect()))
            }
            Request::SetWatches(set) => self.set_watches(set),
            Request::AddWatch { path, mode } => {
                validate_path(path).map_err(|_| Code::BadArguments)?;
                self.may_watch(path, *mode)?;
                for half in Kind::halves(*mode) {
                    self.watch(path, true, half)?;
                }
                // Like ZooKeeper, the body repeats the error code, which is 0.
                Ok(ReplyBody::Number(0))
            }
            Request::Watches { path, kind, remove } => {
                let found = self.clients.watches.find(self.client, path, *kind, *remove);
                if found { Ok(ReplyBody::Empty) } else { Err(Code::NoWatcher) }
            }
            Request::WhoAmI => Ok(ReplyBody::WhoAmI(self.ids.iter().map(auth::user_of).collect())),
            Request::GetEphemerals { prefix } => {
                let paths = self.state.ephemeral_nodes(self.session);
                let paths = paths.filter(|path| path.starts_with(prefix.as_str()));
                ReplyBudget(REPLY_BYTES_MAX).texts(paths).map(ReplyBody::Texts)
            }
            Request::GetAllChildrenNumber { path } => {
                self.readable(path)?;
                if !self.caller.may_look_below(self.state, path) {
                    return Err(Code::NoAuth);
                }
                Ok(ReplyBody::Number(i32::try_from(self.descendants).unwrap_or(i32::MAX)))
            }
            Request::Sync { path } => Ok(ReplyBody::Path(path.clone())),
            Request::Ping
            | Request::Write { .. }
            | Request::Multi(_)
            | Request::Auth(_)
            | Request::CloseSession
            | Request::Unknown => Err(Code::Unimplemented),
        }
    }

    fn node(&self, path: &str) -> Result<NodeView<'a>, Code> {
        if !self.caller.may_look(self.state, path) {
            return Err(Code::NoAuth);
        }
        self.state.node(path).ok_or(Code::NoNode)
    }

    fn check(&self, node: &NodeView<'_>, wanted: u32) -> Result<(), Code> {
        if is_allowed(node.acl, wanted, self.ids) { Ok(()) } else { Err(Code::NoAuth) }
    }

    fn readable(&self, path: &str) -> Result<NodeView<'a>, Code> {
        let node = self.node(path)?;
        self.check(&node, perms::READ)?;
        Ok(node)
    }

    fn children(&self, path: &str, left: &mut ReplyBudget) -> Result<Vec<String>, Code> {
        let children = self.state.node_children(path);
        if self.caller.may_look_below(self.state, path) {
            return left.texts(children);
        }
        let parent = path.trim_end_matches('/');
        let may_look =
            |name: &&Arc<str>| self.caller.may_look(self.state, &format!("{parent}/{name}"));
        left.texts(children.filter(may_look))
    }

    fn read(&self, op: &ReadOp, left: &mut ReplyBudget) -> Result<ReadResult, Code> {
        let (ReadOp::GetChildren { path } | ReadOp::GetData { path }) = op;
        let node = self.readable(path)?;
        left.take(STAT_BYTES)?;
        match op {
            ReadOp::GetChildren { path } => self.children(path, left).map(ReadResult::Children),
            ReadOp::GetData { .. } => {
                left.take(node.data.map_or(0, |data| data.as_bytes().len()))?;
                Ok(ReadResult::DataStat(node.data.cloned(), node.stat))
            }
        }
    }

    fn watch(&mut self, path: &str, wanted: bool, kind: Kind) -> Result<(), Code> {
        if !wanted {
            return Ok(());
        }
        if !self.caller.may_look(self.state, path) {
            return Err(Code::NoAuth);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(Code::BadArguments);
        }
        if !self.clients.watches.has_room(self.client) {
            return Err(Code::QuotaExceeded);
        }
        self.clients.watches.set(self.client, path, kind, self.state.zxid());
        Ok(())
    }

    /// Restores watches that the client had on another connection. Those that would have fired in
    /// the meantime fire at once.
    fn set_watches(&mut self, set: &SetWatches) -> Result<ReplyBody, Code> {
        let seen = u64::try_from(set.zxid).unwrap_or(0);
        let state = self.state;
        let named = set.data.iter().chain(&set.exist).chain(&set.child);
        if named.into_iter().any(|path| !self.caller.may_look(state, path)) {
            return Err(Code::NoAuth);
        }
        for path in &set.data {
            let stat = state.node(path).map(|node| node.stat);
            match stat {
                None => self.push_event(path, WatchEventType::Deleted),
                Some(stat) if stat.mzxid > seen => {
                    self.push_event(path, WatchEventType::DataChanged)
                }
                Some(_) => self.watch(path, true, Kind::Data)?,
            }
        }
        for path in &set.exist {
            match state.node(path) {
                Some(_) => self.push_event(path, WatchEventType::Created),
                None => self.watch(path, true, Kind::Data)?,
            }
        }
        for path in &set.child {
            let stat = state.node(path).map(|node| node.stat);
            match stat {
                None => self.push_event(path, WatchEventType::Deleted),
                Some(stat) if stat.pzxid > seen => {
                    self.push_event(path, WatchEventType::ChildrenChanged)
                }
                Some(_) => self.watch(path, true, Kind::Children)?,
            }
        }
        for (paths, mode) in set.persistent.iter().flat_map(|(persistent, recursive)| {
            [(persistent, AddWatchMode::Persistent), (recursive, AddWatchMode::PersistentRecursive)]
        }) {
            for path in paths {
                self.may_watch(path, mode)?;
                for half in Kind::halves(mode) {
                    self.watch(path, true, half)?;
                }
            }
        }
        Ok(ReplyBody::Empty)
    }

    fn may_watch(&self, path: &str, mode: AddWatchMode) -> Result<(), Code> {
        let allowed = match mode {
            AddWatchMode::Persistent => self.caller.may_look(self.state, path),
            AddWatchMode::PersistentRecursive => {
                self.caller.may_look(self.state, path)
                    && self.caller.may_look_below(self.state, path)
            }
        };
        if allowed { Ok(()) } else { Err(Code::NoAuth) }
    }

    fn push_event(&mut self, path: &str, what: WatchEventType) {
        self.events.push(WatchEvent { what, path: path.to_owned() });
    }
}
