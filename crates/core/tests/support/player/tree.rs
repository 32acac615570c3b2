//! Changes to znodes.

use super::super::moves::{NodeMove, NodePick, TreeMove};
use super::Player;
use super::commands::WRONG;
use holdfast_core::{
    Acl, Command, NodeData, NodeKind, NodeOp, SessionKind, SessionRef, State, TreeCommand,
    TreeWrite,
};

/// Directories whose names are locks, and others.
const DIRECTORIES: [&str; 6] = ["/a", "/b", "/a/b", "/p", "/k", "/c"];
/// Other paths, some of them invalid.
const OTHERS: [&str; 7] = ["/c/x", "/c/y", "/a/x", "/c/x/z", "bad", "/a//b", "/c/"];
/// Of recipes, and one that is not a marker.
const MARKERS: [&str; 6] = ["m__lock__", "m__rlock__", "lock-", "n-", "m__WRIT__", "clock-"];

impl Player {
    pub(super) fn tree(&mut self, tree: &TreeMove, state: &State) -> Option<Command> {
        let clients = self.living().filter(|session| session.kind == SessionKind::Client);
        let clients: Vec<SessionRef> = clients.map(|session| session.owner).collect();
        let mut session = *tree.session.of(&clients)?;
        if !tree.right {
            session.secret = WRONG;
        }
        if tree.ops.is_empty() {
            return Some(Command::Tree(TreeCommand::Attach(session)));
        }
        let attachment = if tree.newest { state.attachment(session.id) } else { 1 };
        let ops = tree.ops.iter().filter_map(|op| node_op(op, state)).collect();
        let write = TreeWrite { session, attachment, ids: Vec::new(), ops };
        Some(Command::Tree(TreeCommand::Write(write)))
    }

    /// Commands that delete every znode, the deepest first.
    pub(crate) fn remove_nodes(&self, state: &State) -> Vec<Command> {
        let Some(session) = self.living_sessions().first().copied() else { return Vec::new() };
        let mut paths = state.node_paths();
        paths.retain(|path| &**path != "/" && !path.starts_with("/zookeeper"));
        paths.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
        let attachment = state.attachment(session.id);
        let remove = |path: std::sync::Arc<str>| {
            let ops = vec![NodeOp::Delete { path: path.to_string(), version: None }];
            let write = TreeWrite { session, attachment, ids: Vec::new(), ops };
            Command::Tree(TreeCommand::Write(write))
        };
        paths.into_iter().map(remove).collect()
    }
}

fn node_op(op: &NodeMove, state: &State) -> Option<NodeOp> {
    let NodeMove { what, path: pick, version, data, closed } = *op;
    let data = NodeData::parse(vec![b'x'; usize::from(data)]).ok();
    // A znode whose children can't be created can still be deleted.
    let acl = vec![Acl { perms: if closed { 1 | 8 | 16 } else { 31 }, ..Acl::open() }];
    if let NodePick::Create(kind, sequential) = what {
        let paths: Vec<&str> = DIRECTORIES.into_iter().chain(DIRECTORIES).chain(OTHERS).collect();
        let path = (*pick.of(&paths)?).to_owned();
        return Some(NodeOp::Create { path, data, acl, kind, sequential });
    }
    if let NodePick::Contend(marker, ephemeral) = what {
        let path = format!("{}/{}", pick.of(&DIRECTORIES[..5])?, marker.of(&MARKERS)?);
        let kind = if ephemeral { NodeKind::Ephemeral } else { NodeKind::Persistent };
        return Some(NodeOp::Create { path, data, acl, kind, sequential: true });
    }
    let mut paths = state.node_paths();
    if !matches!(what, NodePick::Delete | NodePick::Check) {
        paths.retain(|path| &**path != "/" && !path.starts_with("/zookeeper"));
    }
    let path = pick.of(&paths).map_or("/nowhere".to_owned(), ToString::to_string);
    let stat = state.node(&path).map(|node| node.stat).unwrap_or_default();
    let is = if matches!(what, NodePick::Acl) { stat.aversion } else { stat.version };
    let version = version.map(|right| if right { is } else { is + 1 });
    Some(match what {
        NodePick::Delete => NodeOp::Delete { path, version },
        NodePick::Set => NodeOp::SetData { path, data, version },
        NodePick::Revoke => {
            NodeOp::SetData { path, data: NodeData::parse("__REVOKE__").ok(), version }
        }
        NodePick::Acl => NodeOp::SetAcl { path, acl, version },
        NodePick::Check | NodePick::Create(..) | NodePick::Contend(..) => {
            NodeOp::Check { path, version }
        }
    })
}
