//! Drives the clients of the ZooKeeper door.

use super::wires::{Down, End, Up, WireId};
use super::{CLIENTS, Event, World};
use crate::checks::Belief;
use crate::zookeeper::{Client, Context, Do};
use holdfast_core::Token;
use holdfast_node::NodeId;

/// Clients of the ZooKeeper door in a run.
pub(crate) const ZOOKEEPER_CLIENTS: usize = 3;

/// So many sends in a thousand arrive in two parts.
const SPLIT_PER_MILLE: u64 = 50;

/// What checkers that know all clients call one of these.
fn number_of(client: usize) -> usize {
    CLIENTS + 1 + client
}

impl World {
    pub(super) fn wake_zookeeper_client(&mut self, number: usize) {
        let Some(client) = self.zookeeper_clients.get(number) else { return };
        let due_us = match client.inbox.is_empty() {
            true => client.next_turn_us().max(self.now_us + 1),
            false => client.paused_until_us.max(self.now_us + 20),
        };
        match client.turn {
            Some((turn_us, _)) if turn_us <= due_us => return,
            Some(later) => {
                self.queue.remove(&later);
            }
            None => {}
        }
        let key = self.schedule_keyed(due_us - self.now_us, Event::ZooKeeperClient(number));
        if let Some(client) = self.zookeeper_clients.get_mut(number) {
            client.turn = Some(key);
        }
    }

    pub(super) fn zookeeper_client_turn(&mut self, number: usize) {
        let (now_us, floor) = (self.now_us, self.checks.floor());
        let rests = now_us < self.idle_until_us;
        let Some(client) = self.zookeeper_clients.get_mut(number) else { return };
        client.turn = None;
        if now_us < client.paused_until_us {
            return self.wake_zookeeper_client(number);
        }
        let (held, done) = (client.belief(0, now_us).map(|belief| belief.token), client.done);
        let mut context = Context {
            now_us,
            rests,
            floor,
            checks: &mut self.checks.zookeeper,
            drew: Vec::new(),
            synced: Vec::new(),
            beats: Vec::new(),
            rng: &mut self.rng,
            out: Vec::new(),
        };
        let judged = client.turn(&mut context);
        let Context { drew, synced, beats, out, .. } = context;
        self.operations += client.done.saturating_sub(done);
        let holds = client.belief(0, now_us).map(|belief| belief.token);
        let new = holds.filter(|_| holds != held);
        let judged = judged.and_then(|()| {
            for (token, floor) in drew {
                self.checks.drew(number_of(number), Token(token), floor)?;
            }
            for (zxid, floor) in synced {
                self.checks.read(zxid, floor)?;
            }
            beats.into_iter().try_for_each(|(session, sent_us, timeout_ms)| {
                self.checks.beat(session, sent_us, timeout_ms)
            })
        });
        let judged = judged.and_then(|()| match new {
            Some(_) => self.checks.guards(&self.beliefs(), now_us),
            None => Ok(()),
        });
        if let Err(violation) = judged {
            return self.fail(violation);
        }
        for act in out {
            self.trace.talk(now_us, || format!("zookeeper client {number} > {act:?}"));
            self.zookeeper_client_does(number, act);
        }
        self.wake_zookeeper_client(number);
    }

    fn zookeeper_client_does(&mut self, number: usize, act: Do) {
        match act {
            Do::Connect(node) => self.zookeeper_client_connects(number, node),
            Do::Send(wire, bytes) => self.send_bytes(wire, bytes),
            Do::HangUp(wire) => self.hang_up_wire(wire),
        }
    }

    fn zookeeper_client_connects(&mut self, number: usize, node: NodeId) {
        let Some(life) = self.zookeeper_clients.get(number).map(|client| client.life) else {
            return;
        };
        let wire = self.connect(End::ZooKeeper { client: number, life }, node);
        let now_us = self.now_us;
        if let Some(client) = self.zookeeper_clients.get_mut(number) {
            let first = client.connecting(wire, now_us);
            self.send_bytes(wire, first);
        }
    }

    fn send_bytes(&mut self, wire: WireId, mut bytes: Vec<u8>) {
        if self.rng.per_mille(SPLIT_PER_MILLE) {
            let at = self.rng.range(0, bytes.len() as u64) as usize;
            let rest = bytes.split_off(at);
            self.send_up(wire, Up::Bytes(bytes));
            bytes = rest;
        }
        self.send_up(wire, Up::Bytes(bytes));
    }

    /// Something arrives at such a client.
    pub(super) fn zookeeper_client_received(
        &mut self,
        number: usize,
        life: u64,
        wire: WireId,
        frame: Down,
    ) {
        let client = self.zookeeper_clients.get_mut(number).filter(|client| client.life == life);
        let Some(client) = client else { return };
        let bytes = match frame {
            Down::Bytes(bytes) => Some(bytes),
            Down::Reset => None,
            _ => return,
        };
        self.trace.talk(self.now_us, || format!("zookeeper client {number} < {bytes:?}"));
        client.inbox.push_back((wire, bytes));
        self.wake_zookeeper_client(number);
    }

    /// A client's process ends, and another one begins.
    pub(super) fn restart_zookeeper_client(&mut self, number: usize) {
        let nodes = self.known_nodes();
        let Some(client) = self.zookeeper_clients.get_mut(number) else { return };
        self.checks.zookeeper.forget(client.key());
        let (life, done, turn) = (client.life + 1, client.done, client.turn);
        let wire = client.wire();
        let mut next = Client::new(number, life, self.now_us, &mut self.rng, &nodes);
        (next.done, next.turn) = (done, turn);
        *client = next;
        if let Some(wire) = wire {
            self.hang_up_wire(wire);
        }
        self.wake_zookeeper_client(number);
    }

    /// Clients that believe now that they hold a lock.
    pub(super) fn zookeeper_beliefs(&self) -> impl Iterator<Item = Belief> + '_ {
        let now_us = self.now_us;
        let clients = self.zookeeper_clients.iter();
        clients.filter_map(move |client| client.belief(number_of(client.number), now_us))
    }
}
