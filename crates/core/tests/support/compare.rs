//! Compares the core with the model.

use super::model::{Happened, Model};
use super::player::{fence_keys, lock_names};
use super::run::Wrong;
use holdfast_core::{
    Acl, Effect, EndReason, KeyKind, LockName, NodeData, ProposalOutcome, Refusal, Stat, State,
};
use std::fmt::Debug;

/// A path, its data, its access control list, its Stat and the names of its children.
pub(crate) type ShownNode = (String, Option<NodeData>, Vec<Acl>, Stat, Vec<String>);

/// More than there ever are in one line here.
const ALL: usize = 10_000;

/// How many events the history drops at once.
const EVENTS_IN_A_BLOCK: usize = 256;

fn same<T: PartialEq + Debug>(check: &'static str, core: &T, model: &T) -> Result<(), Wrong> {
    if core == model {
        return Ok(());
    }
    Err(Wrong { check, what: format!("\n  core:  {core:?}\n  model: {model:?}") })
}

pub(crate) fn answers(
    model: &Model,
    core: &ProposalOutcome,
    expected: &ProposalOutcome,
) -> Result<(), Wrong> {
    let deadlock = |taken: &ProposalOutcome| match taken {
        ProposalOutcome::Answered(Err(Refusal::WouldDeadlock(links))) => Some(links.clone()),
        _ => None,
    };
    let (Some(links), Some(_)) = (deadlock(core), deadlock(expected)) else {
        return same("answer", core, expected);
    };
    // There may be several cycles; the core must report one of them.
    match &model.deadlocked {
        None => Ok(()),
        Some(asker) => model
            .check_circle(asker, &links)
            .map_err(|what| Wrong { check: "circle", what: format!("{what}: {links:?}") }),
    }
}

/// Each name has the same effects in the same order, and their causes happened in the same order.
/// Tickets that the same event serves in different lines may be served in any order.
pub(crate) fn effects(core: &[Effect], expected: &[Effect]) -> Result<(), Wrong> {
    same("effects", &causes(core), &causes(expected))?;
    for name in lock_names() {
        let of_name = |effects: &[Effect]| -> Vec<Effect> {
            effects.iter().filter(|effect| effect.names().contains(&name)).cloned().collect()
        };
        same("effects", &of_name(core), &of_name(expected))?;
    }
    Ok(())
}

/// Without grants, and without the ends of shared tickets that belong to the grant of an upgrade.
fn causes(effects: &[Effect]) -> Vec<&Effect> {
    let served = |effect: &Effect| match effect {
        Effect::Granted(_) => true,
        Effect::Ended(ended) => ended.how == EndReason::Released,
        _ => false,
    };
    effects.iter().filter(|effect| !served(effect)).collect()
}

/// Compares everything that can be queried.
pub(crate) fn views(state: &State, model: &Model) -> Result<(), Wrong> {
    same("time", &state.now_ms(), &model.now_ms)?;
    let counts = state.counts();
    same("counts", &counts, &model.counts(counts.bytes))?;
    for name in lock_names() {
        same("view", &state.lock_view(&name, ALL), &model.lock_view(&name))?;
    }
    for prefix in ["", "a", "p/"] {
        let mut expected = model.lock_names();
        expected.retain(|name| name.as_bytes().starts_with(prefix.as_bytes()));
        same("list", &listed(state, prefix.as_bytes()), &expected)?;
    }
    for name in lock_names() {
        same("key", &state.key(&name), &model.key(&name))?;
        same("stamp", &state.stamp(&name), &model.stamp(&name))?;
    }
    same("keys", &listed_keys(state), &model.keys())?;
    same("number of keys", &state.keys_len(), &model.keys().len())?;
    same("keys changed", &state.keys_changed(), &model.keys_changed())?;
    same("sessions", &state.sessions(None, ALL, ALL), &model.session_views())?;
    for key in fence_keys() {
        let kept = model.register.iter().find(|(known, _)| *known == key);
        same("fence", &state.fence(&key), &kept.map(|(_, fence)| fence))?;
    }
    same("znodes", &all_nodes(state), &model.shown_nodes())?;
    same("next due", &state.next_due_in_ms(), &model.next_due_in_ms())
}

/// All znodes, with everything that can be read.
fn all_nodes(state: &State) -> Vec<ShownNode> {
    let paths = state.node_paths();
    let shown = paths.iter().filter_map(|path| {
        let node = state.node(path)?;
        let children = state.node_children(path).map(ToString::to_string).collect();
        Some((path.to_string(), node.data.cloned(), node.acl.to_vec(), node.stat, children))
    });
    shown.collect()
}

/// All names with a prefix, page by page.
fn listed(state: &State, prefix: &[u8]) -> Vec<LockName> {
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = state.list(prefix, after.as_ref(), 2);
        names.extend(page.locks.into_iter().map(|lock| lock.name));
        match page.next_after {
            Some(next) => after = Some(next),
            None => return names,
        }
    }
}

/// All keys, page by page.
fn listed_keys(state: &State) -> Vec<(LockName, KeyKind)> {
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let page = state.keys(b"", after.as_ref(), 2);
        keys.extend(page.keys);
        match page.next_after {
            Some(next) => after = Some(next),
            None => return keys,
        }
    }
}

/// The events from this number on, name by name; returns the number of the next one.
pub(crate) fn history(state: &State, model: &Model, from: u64) -> Result<u64, Wrong> {
    let mut core: Vec<Happened> = Vec::new();
    let mut next = from;
    for event in state.events().filter(|event| event.number >= from) {
        same("history", &event.number, &next)?;
        next += 1;
        core.push(Happened {
            at_ms: event.at_ms,
            wall_ms: event.wall_ms,
            name: event.name.clone(),
            token: event.token,
            label: event.label.clone(),
            what: event.what.clone(),
        });
    }
    let known = usize::try_from(from).unwrap_or(usize::MAX).min(model.events.len());
    let mut expected = model.events[known..].to_vec();
    // As with effects, only the order within a name is fixed.
    core.sort_by(|one, other| one.name.cmp(&other.name));
    expected.sort_by(|one, other| one.name.cmp(&other.name));
    same("history", &core, &expected)?;
    check_ring(state, next)?;
    Ok(next)
}

/// The history keeps as many events as it may, and drops the oldest, a block at a time.
fn check_ring(state: &State, ever: u64) -> Result<(), Wrong> {
    let (kept, max) = (state.events().count(), state.limits().history_max);
    let least = usize::try_from(ever).unwrap_or(usize::MAX).min(max);
    if (least..=max.saturating_add(EVENTS_IN_A_BLOCK)).contains(&kept) {
        return Ok(());
    }
    let what = format!("{kept} of {ever} events are kept, {max} may be");
    Err(Wrong { check: "history", what })
}
