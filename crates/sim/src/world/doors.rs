//! Waits of callers without a session, over HTTP or Redis: what a real driver does for them. The
//! node's process is all that knows of such a wait, and it tells its caller only after the grant is
//! confirmed.

use super::{Event, World};
use crate::checks::Belief;
use crate::client::Sent;
use crate::host::Asker;
use holdfast_core::{Answer, Command, Effect, Grant, Lease, LockName, Mode, Proof, Secret};
use holdfast_core::{Standing, Target, Token};
use holdfast_node::{NodeId, Reply};

/// What a driver could not confirm is tried again so often.
const RETRY_US: u64 = 200_000;

/// A caller who waits at a node.
#[derive(Debug, Clone)]
pub(crate) struct DoorWait {
    pub(crate) client: usize,
    pub(crate) name: LockName,
    pub(crate) secret: Secret,
}

/// A caller who was told that it holds a lock.
#[derive(Debug)]
pub(super) struct Told {
    wait: DoorWait,
    believes_until_us: u64,
}

impl World {
    /// What became of the acquire of a caller without a session.
    pub(super) fn door_answered(
        &mut self,
        id: NodeId,
        wait: DoorWait,
        sent_us: u64,
        reply: &Reply,
    ) {
        match reply {
            Reply::Answer(Ok(Answer::Standing(Standing::Held(grant)))) => {
                self.tell(grant.token, wait, sent_us, grant.lease);
            }
            Reply::Answer(Ok(Answer::Standing(Standing::Waiting { token, .. }))) => {
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.door_waits.insert(*token, wait);
                }
            }
            _ => {}
        }
    }

    /// A node heard of a grant or an end: somebody may wait for it there.
    pub(super) fn door_hears(&mut self, id: NodeId, effect: &Effect) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        match effect {
            Effect::Ended(ended) => {
                host.door_waits.remove(&ended.token);
            }
            Effect::Granted(grant) if matches!(grant.lease, Lease::Unconfirmed { .. }) => {
                if !host.door_waits.contains_key(&grant.token) {
                    return;
                }
                self.confirm(id, Box::new(grant.clone()));
            }
            Effect::Granted(grant) => {
                if let Some(wait) = host.door_waits.remove(&grant.token) {
                    self.tell(grant.token, wait, 0, grant.lease);
                }
            }
            _ => {}
        }
    }

    pub(super) fn confirm_again(&mut self, id: NodeId, epoch: u64, grant: Box<Grant>) {
        if self.hosts.get(&id).is_some_and(|host| host.epoch == epoch) {
            self.confirm(id, grant);
        }
    }

    fn confirm(&mut self, id: NodeId, grant: Box<Grant>) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let own = host.node.as_ref().and_then(|node| node.own_session());
        let (Some(own), Lease::Unconfirmed { ttl_ms }) = (own, grant.lease) else { return };
        let Some(name) = grant.names.as_slice().first().cloned() else { return };
        if Some(own.id) != grant.session || !host.door_waits.contains_key(&grant.token) {
            return;
        }
        let target = Target { name, token: Some(grant.token) };
        let command = Command::Renew { target, proof: Proof::Secret(own.secret), ttl_ms };
        let asker = Asker::Confirm { grant, sent_us: self.now_us };
        host.ask(asker, Sent::Ask { request: None, command });
        self.wake(id);
    }

    /// The deadline of a grant counts, or not: only then the caller is told.
    pub(super) fn confirmed(&mut self, id: NodeId, grant: Box<Grant>, sent_us: u64, reply: &Reply) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        match reply {
            Reply::Answer(Ok(_)) => {
                if let Some(wait) = host.door_waits.remove(&grant.token) {
                    self.tell(grant.token, wait, sent_us, grant.lease);
                }
            }
            Reply::Answer(Err(_)) => {}
            _ => {
                let epoch = host.epoch;
                self.schedule(RETRY_US, Event::ConfirmAgain { node: id, epoch, grant });
            }
        }
    }

    /// A caller learns that it holds a lock, and lets go some time later.
    fn tell(&mut self, token: Token, wait: DoorWait, from_us: u64, lease: Lease) {
        let (Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms }) = lease else { return };
        self.checks.heard(token);
        let believes_until_us = from_us + ttl_ms * 1_000 * 9 / 10;
        self.told.insert(token, Told { wait, believes_until_us });
        let in_us = self.rng.range(1_000, 4_000_000);
        self.schedule(in_us, Event::DoorReleases(token));
    }

    pub(super) fn door_releases(&mut self, token: Token) {
        let Some(Told { wait, .. }) = self.told.remove(&token) else { return };
        let up = self.up();
        let Some(id) = self.rng.pick(&up).copied() else { return };
        let target = Target { name: wait.name, token: Some(token) };
        let command = Command::Release { target, proof: Proof::Secret(wait.secret) };
        if let Some(host) = self.hosts.get_mut(&id) {
            host.ask(Asker::Nobody, Sent::Ask { request: None, command });
            self.wake(id);
        }
    }

    /// Callers without a session who believe now that they hold something.
    pub(super) fn door_beliefs(&self) -> impl Iterator<Item = Belief> + '_ {
        let now_us = self.now_us;
        let believe = move |told: &Told| now_us < told.believes_until_us;
        self.told.iter().filter(move |(_, told)| believe(told)).map(|(token, told)| Belief {
            client: told.wait.client,
            name: told.wait.name.clone(),
            token: *token,
            mode: Mode::Exclusive,
        })
    }
}
