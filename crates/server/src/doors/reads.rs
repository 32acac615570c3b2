//! What a caller may see of the locks.

use holdfast_core::{LockName, LockPage, Right, State, Why, WhyLink};
use holdfast_gateway::Caller;

/// A page of the locks whose names begin with `prefix` and that the caller may look at. No name that
/// it may not look at has an influence on it.
pub(crate) fn list(
    caller: &Caller,
    state: &State,
    prefix: &[u8],
    after: Option<&LockName>,
    limit: usize,
) -> LockPage {
    let mut page = LockPage { locks: Vec::new(), next_after: None };
    for readable in caller.readable_prefixes(state) {
        let prefix = match (readable.starts_with(prefix), prefix.starts_with(&readable)) {
            (true, _) => &readable,
            (false, true) => prefix,
            (false, false) => continue,
        };
        let room = limit.saturating_sub(page.locks.len());
        let part = state.list(prefix, after, room.max(1));
        if room == 0 {
            if !part.locks.is_empty() {
                page.next_after = page.locks.last().map(|lock| lock.name.clone());
                break;
            }
            continue;
        }
        page.locks.extend(part.locks);
        if part.next_after.is_some() {
            page.next_after = part.next_after;
            break;
        }
    }
    page
}

/// Why a line is not moving, without what happens in lines that the caller may not look at.
pub(crate) fn why(caller: &Caller, state: &State, name: &LockName) -> Why {
    let mut why = state.why(name);
    let hidden = |link: &WhyLink| match link {
        WhyLink::Behind { name, .. } => !caller.may(state, Right::Read, name.as_bytes()),
        WhyLink::Kept { .. } => false,
    };
    if why.links.iter().any(hidden) {
        // What is kept, and what forms a circle, may be about the hidden ones.
        why.links.retain(|link| !hidden(link) && matches!(link, WhyLink::Behind { .. }));
        why.circles.clear();
        why.cut = true;
    }
    why
}
