//! What the ZooKeeper door of a server does: bytes and messages go to connections, and what these say
//! is done.

use super::wires::{Down, WireId};
use super::{Event, World};
use crate::checks::ZooKeeperChecks;
use crate::host::VirtualSink;
use crate::zookeeper::{Door, ZooKeeperTask};
use holdfast_gateway::{Input, SessionEvent};
use holdfast_node::NodeId;
use holdfast_zookeeper::ClientId;
use holdfast_zookeeper::connection::{Action, HeartbeatReply, Message};
use std::time::Duration;

/// So many messages in a thousand find the thread of their connection busy.
const BUSY_PER_MILLE: u64 = 20;

impl World {
    fn zookeeper(&mut self, id: NodeId) -> Option<&mut Door> {
        self.hosts.get_mut(&id).map(|host| &mut host.zookeeper)
    }

    pub(super) fn is_zookeeper_sink(&self, id: NodeId, sink: VirtualSink) -> bool {
        self.hosts.get(&id).is_some_and(|host| host.zookeeper.sink == Some(sink))
    }

    pub(super) fn zookeeper_bytes(
        &mut self,
        id: NodeId,
        wire: WireId,
        bytes: &[u8],
        now: Duration,
    ) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let client = host.zookeeper_client(wire);
        let Some(known) = host.zookeeper.connections.get_mut(&client) else { return };
        let actions = known.connection.receive(bytes, now);
        self.zookeeper_act(id, client, actions, now);
    }

    pub(super) fn zookeeper_event(&mut self, id: NodeId, event: &SessionEvent, now: Duration) {
        let Some(door) = self.zookeeper(id) else { return };
        for client in door.receive(event) {
            self.pump_zookeeper(id, client, now);
        }
    }

    pub(super) fn zookeeper_finished(&mut self, id: NodeId, task: ZooKeeperTask, now: Duration) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.calls.remove(&task.call).is_some() {
            let client = task.task.client();
            if let Some(failure) = task.task.failure() {
                let say = || format!("node {id} can't serve a ZooKeeper client: {failure:?}");
                self.trace.talk(self.now_us, say);
            }
            host.zookeeper.push(client, Message::Finished(task.task));
            self.pump_zookeeper(id, client, now);
        }
    }

    /// This node may have missed events: its clients must connect again.
    pub(super) fn zookeeper_lost_track(&mut self, id: NodeId, now: Duration) {
        let Some(door) = self.zookeeper(id) else { return };
        for wire in door.lost_track() {
            self.close_zookeeper(id, wire, now);
        }
    }

    fn close_zookeeper(&mut self, id: NodeId, wire: WireId, now: Duration) {
        if let Some(host) = self.hosts.get_mut(&id) {
            host.forget(wire, now);
        }
        self.reset(wire);
    }

    /// Hands messages to a connection, in order, as far as its client reads.
    pub(super) fn pump_zookeeper(&mut self, id: NodeId, client: ClientId, now: Duration) {
        let busy = self.rng.per_mille(BUSY_PER_MILLE);
        let busy_us = self.rng.range(500, 100_000);
        let now_us = self.now_us;
        let Some(door) = self.zookeeper(id) else { return };
        let overflowed = door.has_overflowed(client);
        let Some(known) = door.connections.get_mut(&client) else { return };
        let wire = known.wire;
        if overflowed {
            return self.close_zookeeper(id, wire, now);
        }
        if now_us < known.busy_until_us {
            return;
        }
        if busy {
            known.busy_until_us = now_us + busy_us;
            return self.schedule(busy_us, Event::PumpZooKeeper(id, client));
        }
        while self.has_window(wire) {
            let Some(door) = self.zookeeper(id) else { return };
            let Some(known) = door.connections.get_mut(&client) else { return };
            if let Some(task) = known.deferred.take() {
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.start_zookeeper(wire, task);
                    self.wake(id);
                }
                continue;
            }
            let Some(message) = known.messages.pop_front() else { return };
            if let Message::HeartbeatReply(HeartbeatReply::Alive) = &message {
                known.unacknowledged_since_us = None;
            }
            let actions = known.connection.message(message, now);
            self.zookeeper_act(id, client, actions, now);
        }
    }

    /// A connection's thread has time again. Its node takes what follows in its next turn.
    pub(super) fn pump_zookeeper_later(&mut self, id: NodeId, client: ClientId) {
        let Some(host) = self.hosts.get(&id).filter(|host| host.is_up()) else { return };
        if self.now_us < host.paused_until_us {
            let in_us = host.paused_until_us - self.now_us;
            return self.schedule(in_us, Event::PumpZooKeeper(id, client));
        }
        let now = host.now(self.now_us);
        self.pump_zookeeper(id, client, now);
        self.wake(id);
    }

    fn zookeeper_act(&mut self, id: NodeId, client: ClientId, actions: Vec<Action>, now: Duration) {
        for action in actions {
            let now_us = self.now_us;
            let Some(host) = self.hosts.get_mut(&id) else { return };
            let Some(known) = host.zookeeper.connections.get_mut(&client) else { return };
            let wire = known.wire;
            match action {
                Action::Send(frame) => self.send_down(wire, Down::Bytes(frame)),
                Action::Start(task) => {
                    known.deferred = Some(task);
                    if self.has_window(wire)
                        && let Some(host) = self.hosts.get_mut(&id)
                        && let Some(known) = host.zookeeper.connections.get_mut(&client)
                        && let Some(task) = known.deferred.take()
                    {
                        host.start_zookeeper(wire, task);
                        self.wake(id);
                    }
                }
                Action::Heartbeat(session) => {
                    known.unacknowledged_since_us.get_or_insert(now_us);
                    if let Some(sink) = host.zookeeper.sink {
                        let number = client.0;
                        host.handle(Input::HeartbeatOn { sink, number, session }, now);
                    }
                }
                Action::Answer(_) | Action::Close => return self.close_zookeeper(id, wire, now),
            }
        }
    }

    /// Time has passed for the connections of a node.
    pub(super) fn tick_zookeeper(&mut self, id: NodeId, now: Duration) {
        let Some(door) = self.zookeeper(id) else { return };
        for client in door.due(now) {
            let Some(door) = self.zookeeper(id) else { return };
            let Some(known) = door.connections.get_mut(&client) else { continue };
            let actions = known.connection.tick(now);
            self.zookeeper_act(id, client, actions, now);
        }
        let Some(host) = self.hosts.get(&id) else { return };
        if let Err(violation) = ZooKeeperChecks::open(host.unacknowledged(), self.now_us) {
            self.fail(violation);
        }
    }
}
