//! A client hears of a change to what it watches before any reply shows a state that has the change,
//! its own changes among them. It hears of nothing else, a one-shot watch fires once, and no change goes
//! unheard unless the connection is lost.

use super::ClientKey;
use super::history::{Change, History};
use crate::checks::Violation;
use holdfast_core::{NodeEvent, parent_of};
use holdfast_zookeeper::codec::{WatchEvent, WatchEventType};
use std::collections::BTreeMap;

/// How long an event may take when nothing is wrong.
const HEARD_WITHIN_US: u64 = 5_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchKind {
    /// Of a znode that was there.
    Data,
    /// Of one that was not.
    Exist,
    Children,
    Persistent,
    Recursive,
}

impl WatchKind {
    fn is_one_shot(self) -> bool {
        matches!(self, Self::Data | Self::Exist | Self::Children)
    }

    /// The event that a change is for such a watch.
    fn event(self, watched: &str, change: &Change) -> Option<WatchEvent> {
        let here = *change.path == *watched;
        let child = parent_of(&change.path) == Some(watched);
        let own = match change.what {
            NodeEvent::Created => WatchEventType::Created,
            NodeEvent::Deleted => WatchEventType::Deleted,
            NodeEvent::DataChanged => WatchEventType::DataChanged,
        };
        let children = child && change.what != NodeEvent::DataChanged;
        let below = || change.path.strip_prefix(watched).is_some_and(|rest| rest.starts_with('/'));
        let what = match self {
            Self::Data | Self::Exist | Self::Persistent if here => own,
            Self::Children if here && change.what == NodeEvent::Deleted => own,
            Self::Children | Self::Persistent if children => WatchEventType::ChildrenChanged,
            Self::Recursive if here || below() => own,
            _ => return None,
        };
        let path = match what {
            WatchEventType::ChildrenChanged => watched.to_owned(),
            _ => change.path.to_string(),
        };
        Some(WatchEvent { what, path })
    }
}

#[derive(Debug, Default)]
pub(super) struct Watches(BTreeMap<ClientKey, OfClient>);

#[derive(Debug, Default)]
struct OfClient {
    /// Each with the first change that it may not have told yet.
    watches: BTreeMap<(String, WatchKind), usize>,
    /// The connection is lost, and they have not been set again.
    is_away: bool,
}

/// The first change from `at` on that a watch must tell.
fn next<'a>(
    path: &str,
    kind: WatchKind,
    at: &mut usize,
    history: &'a History,
) -> Option<(&'a Change, WatchEvent)> {
    while let Some(change) = history.change(*at) {
        if let Some(event) = kind.event(path, change) {
            return Some((change, event));
        }
        *at += 1;
    }
    None
}

impl Watches {
    fn of(&mut self, client: ClientKey) -> &mut OfClient {
        self.0.entry(client).or_default()
    }

    pub(super) fn set(
        &mut self,
        client: ClientKey,
        path: &str,
        kind: WatchKind,
        zxid: u64,
        history: &History,
    ) {
        // One that is there already stays as it is: both of its kinds are one for the server.
        let watches = &mut self.of(client).watches;
        let other = match kind {
            WatchKind::Data => WatchKind::Exist,
            WatchKind::Exist => WatchKind::Data,
            kind => kind,
        };
        let at = watches.remove(&(path.to_owned(), other));
        watches.entry((path.to_owned(), kind)).or_insert(at.unwrap_or(history.after(zxid)));
    }

    pub(super) fn forget(&mut self, client: ClientKey) {
        self.0.remove(&client);
    }

    pub(super) fn disconnected(&mut self, client: ClientKey) {
        self.of(client).is_away = true;
    }

    pub(super) fn event(
        &mut self,
        client: ClientKey,
        event: &WatchEvent,
        history: &History,
    ) -> Result<(), Violation> {
        let of_client = self.of(client);
        let is_away = of_client.is_away;
        let mut first = usize::MAX;
        let mut told = Vec::new();
        for ((path, kind), at) in &mut of_client.watches {
            let Some((_, expected)) = next(path, *kind, at, history) else { continue };
            // What is set again tells what has become of a znode, not how.
            let same = expected == *event || is_away && expected.path == event.path;
            if same {
                first = first.min(*at);
                told.push(((path.clone(), *kind), *at));
            }
        }
        if told.is_empty() {
            let watches = &of_client.watches;
            return Err(format!(
                "watches: client {client:?} was told {event:?}, which is not the next change of \
                 anything that it watches: {watches:?}"
            ));
        }
        for (watch, at) in told.into_iter().filter(|(_, at)| *at == first || is_away) {
            if watch.1.is_one_shot() {
                of_client.watches.remove(&watch);
            } else {
                of_client.watches.insert(watch, at + 1);
            }
        }
        Ok(())
    }

    /// A reply has shown a state with this zxid. `setWatches` tells the server what a client has seen,
    /// so not even a ping that is answered before it may show a change that the client has not been
    /// told of.
    pub(super) fn saw(
        &mut self,
        client: ClientKey,
        zxid: u64,
        history: &History,
    ) -> Result<(), Violation> {
        for ((path, kind), at) in &mut self.of(client).watches {
            if let Some((change, event)) =
                next(path, *kind, at, history).filter(|(change, _)| change.zxid <= zxid)
            {
                return Err(format!(
                    "watches: client {client:?} saw zxid {zxid} before it was told of {event:?}, zxid \
                     {}, which it watches ({kind:?} of {path})",
                    change.zxid
                ));
            }
        }
        Ok(())
    }

    /// `setWatches` was answered: every change since is told, but those of znodes that came and went,
    /// and those of watches that stay.
    pub(super) fn set_again(
        &mut self,
        client: ClientKey,
        zxid: u64,
        history: &History,
    ) -> Result<(), Violation> {
        let of_client = self.of(client);
        of_client.is_away = false;
        for ((path, kind), at) in &mut of_client.watches {
            let gone = history.last(path, zxid).is_none_or(|(_, what)| what == NodeEvent::Deleted);
            match kind {
                WatchKind::Exist if gone => *at = history.after(zxid),
                WatchKind::Persistent | WatchKind::Recursive => *at = history.after(zxid),
                _ => {}
            }
        }
        self.saw(client, zxid, history)
    }

    pub(super) fn judge_the_end(
        &mut self,
        history: &History,
        now_us: u64,
    ) -> Result<(), Violation> {
        for (client, of_client) in self.0.iter_mut().filter(|(_, of_client)| !of_client.is_away) {
            for ((path, kind), at) in &mut of_client.watches {
                if let Some((change, event)) = next(path, *kind, at, history)
                    && change.at_us + HEARD_WITHIN_US < now_us
                {
                    return Err(format!(
                        "watches: client {client:?} was never told of {event:?}, zxid {}, which it \
                         watches ({kind:?} of {path})",
                        change.zxid
                    ));
                }
            }
        }
        Ok(())
    }
}
