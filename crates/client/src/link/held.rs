//! The tickets that are held. There may be very many that live by the session; those with a lease
//! of their own are looked at again and again, so they are known apart.

use super::asked::Asked;
use super::watched::Watcher;
use crate::error::How;
use crate::fate::Fate;
use crate::hold::Hold;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A ticket that is held.
pub(super) struct Followed {
    pub(super) fate: Arc<Fate>,
    /// For one with a lease of its own: what it takes to renew it.
    pub(super) own_lease: Option<proto::Own>,
    /// What proves that a request comes from its holder.
    secret: Bytes,
    /// The secret of the session that it was taken in: the server tells only that one what happens
    /// to it. Not its number, which a cluster that begins anew draws again.
    pub(super) session: Bytes,
    /// For one that has outlived its session.
    pub(super) watcher: Option<Watcher>,
    /// It may be over: it is to be renewed before that is due.
    pub(super) renew_now: bool,
    /// A renewal is on its way.
    pub(super) renewing: bool,
    /// Its lease may be past already: it is renewed before it is handed out.
    pub(super) hand_out: Option<(Asked, Hold)>,
}

impl Followed {
    pub(super) fn new(
        fate: Arc<Fate>,
        secret: Bytes,
        own_lease: Option<proto::Own>,
        session: Bytes,
    ) -> Self {
        Self {
            fate,
            secret,
            own_lease,
            session,
            watcher: None,
            renew_now: false,
            renewing: false,
            hand_out: None,
        }
    }
}

#[derive(Default)]
pub(super) struct Held {
    all: HashMap<u64, Followed>,
    with_own_lease: HashSet<u64>,
}

impl Held {
    pub(super) fn insert(&mut self, token: u64, followed: Followed) {
        if followed.own_lease.is_some() {
            self.with_own_lease.insert(token);
        } else {
            self.with_own_lease.remove(&token);
        }
        if let Some(older) = self.all.insert(token, followed) {
            // No number is drawn twice: the cluster that it was taken in is no more.
            older.fate.lose(How::Unknown);
        }
    }

    /// Whether this very ticket is held.
    pub(super) fn has(&self, own: &proto::Own) -> bool {
        self.all.get(&own.token).is_some_and(|followed| followed.secret == own.secret)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Followed> {
        self.with_own_lease.remove(&token);
        self.all.remove(&token)
    }

    pub(super) fn get(&self, token: u64) -> Option<&Followed> {
        self.all.get(&token)
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Followed> {
        self.all.get_mut(&token)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.all.values_mut()
    }

    /// Those whose asker still waits for its guard.
    pub(super) fn not_handed_out(&mut self) -> impl Iterator<Item = &mut Asked> {
        let all = self.all.values_mut();
        all.filter_map(|followed| Some(&mut followed.hand_out.as_mut()?.0))
    }

    /// Those that nobody has heard of yet.
    pub(super) fn take_not_handed_out(&mut self) -> Vec<(Asked, Hold)> {
        self.all.values_mut().filter_map(|followed| followed.hand_out.take()).collect()
    }

    /// Those whose asker went before its guard was handed out.
    pub(super) fn take_unwanted(&mut self) -> Vec<Hold> {
        let mut unwanted = Vec::new();
        for token in &self.with_own_lease {
            let Some(followed) = self.all.get_mut(token) else { continue };
            let gone = followed.hand_out.take_if(|(asked, _)| asked.is_abandoned());
            unwanted.extend(gone.map(|(_, hold)| hold));
        }
        unwanted
    }

    pub(super) fn has_own_lease(&self, token: u64) -> bool {
        self.with_own_lease.contains(&token)
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.all.keys().copied()
    }

    pub(super) fn in_session(&self) -> impl Iterator<Item = &Followed> {
        self.all.values().filter(|followed| followed.own_lease.is_none())
    }

    pub(super) fn with_own_lease(&self) -> impl Iterator<Item = (u64, &Followed)> {
        self.with_own_lease.iter().filter_map(|token| Some((*token, self.all.get(token)?)))
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Followed) -> bool) {
        self.all.retain(|token, followed| {
            let kept = keep(followed);
            if !kept {
                self.with_own_lease.remove(token);
            }
            kept
        });
    }
}
