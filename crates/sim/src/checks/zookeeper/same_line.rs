//! A directory shows the line of its lock: each ticket has a child, whose czxid is the token, and the
//! children's numbers have the order of the line.

use crate::checks::{Applied, Violation};
use holdfast_core::{Effect, LockName, State, Token, parent_of};
use std::collections::BTreeSet;

/// Digits at the end of a sequential child's name.
pub(crate) const SUFFIX_LEN: usize = 10;
/// More than are ever in one line here.
const TICKETS_MAX: usize = 1_000;

pub(super) fn applied(applied: &Applied<'_>) -> Result<(), Violation> {
    let mut names: BTreeSet<LockName> = BTreeSet::new();
    for effect in applied.effects {
        match effect {
            Effect::NodeChanged { path, .. } => {
                let directory = parent_of(path).and_then(|parent| parent.strip_prefix('/'));
                names.extend(directory.and_then(|name| LockName::parse(name).ok()));
            }
            Effect::Granted(grant) => names.extend(grant.names.as_slice().iter().cloned()),
            Effect::Ended(ended) => names.extend(ended.names.as_slice().iter().cloned()),
            _ => {}
        }
    }
    names.iter().try_for_each(|name| judge(name, applied.state))
}

fn judge(name: &LockName, state: &State) -> Result<(), Violation> {
    let directory = format!("/{name}");
    let mut children: Vec<&str> = state.node_children(&directory).map(|name| &**name).collect();
    children.retain(|child| child.contains("lock__"));
    if children.is_empty() {
        return Ok(());
    }
    children.sort_by_key(|child| child.get(child.len().saturating_sub(SUFFIX_LEN)..));
    let czxid = |child: &&str| {
        let node = state.node(&format!("{directory}/{child}"));
        node.map_or(Token(0), |node| Token(node.stat.czxid))
    };
    let view = state.lock_view(name, TICKETS_MAX);
    // The child of a holder that died stays as long as its death holds up the line.
    let is_delayed = view.as_ref().is_some_and(|view| view.delayed_until_ms.is_some());
    let line = view.into_iter().flat_map(|view| [view.holders, view.waiters]).flatten();
    let mut line: Vec<Token> = line.map(|ticket| ticket.token).collect();
    line.sort_unstable();
    let mut shown: Vec<Token> = children.iter().map(czxid).collect();
    if is_delayed {
        shown.retain(|token| line.contains(token));
    }
    if shown == line {
        return Ok(());
    }
    Err(format!("same line: {name} has the tickets {line:?}, and its directory shows {shown:?}"))
}
