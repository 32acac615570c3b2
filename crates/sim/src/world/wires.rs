//! Virtual connections between callers and nodes, as TCP has them: what is sent arrives once and in
//! order, or the connection is lost. A partition holds messages back, and they are delivered when it
//! heals. The end of a process resets its connections; one that lost its power says nothing, and the
//! other side finds out when it sends again.

use super::{Event, World};
use crate::raw::{RawAnswer, RawCall};
use bytes::Bytes;
use holdfast_client::session::{ConnectionId, Query, QueryId, Reply, StreamId, WatchId};
use holdfast_node::NodeId;
use holdfast_proto::v1::{ToClient, ToServer, WatchEvent};
use std::collections::VecDeque;

/// A connection, numbered over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireId(pub(crate) u64);

/// Messages to a client that may be on their way; what is beyond waits in the server's queue.
const WINDOW: usize = 32;

/// Who is at the client's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A session's connection.
    Session {
        client: usize,
        life: u64,
        connection: ConnectionId,
    },
    /// The watch of a lock.
    Watch {
        client: usize,
        life: u64,
        watch: WatchId,
    },
    /// A call without a session.
    Raw(u64),
    ZooKeeper {
        client: usize,
        life: u64,
    },
}

impl End {
    /// Whose way it is that a partition may cut.
    fn client(self) -> usize {
        match self {
            Self::Session { client, .. } | Self::Watch { client, .. } => client,
            Self::Raw(number) => number as usize % super::CLIENTS,
            Self::ZooKeeper { client, .. } => client % super::CLIENTS,
        }
    }
}

/// What a status of gRPC says: its number and its message.
pub(crate) type Status = (i32, String);

/// From a client to a node.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up soon")]
pub(crate) enum Up {
    Connect,
    /// The first message of a session's stream.
    Begin(StreamId, ToServer),
    Message(StreamId, ToServer),
    Query(QueryId, Query),
    Watch(Bytes),
    /// A call, numbered within its connection.
    Call(u8, RawCall),
    /// Of the ZooKeeper door.
    Bytes(Vec<u8>),
    /// The client has closed the connection.
    Fin,
}

/// From a node to a client.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up soon")]
pub(crate) enum Down {
    Connected,
    Message(StreamId, ToClient),
    /// Without a status the server has just ended it.
    StreamEnded(StreamId, Option<Status>),
    Replied(QueryId, Result<Reply, Status>),
    Watched(WatchEvent),
    Answered(u8, RawAnswer),
    /// Of the ZooKeeper door.
    Bytes(Vec<u8>),
    /// The connection is lost.
    Reset,
}

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) end: End,
    pub(crate) node: NodeId,
    /// The start of the node that has accepted it; none until one has.
    epoch: Option<u64>,
    client_open: bool,
    up: Pipe<Up>,
    down: Pipe<Down>,
}

/// One direction.
#[derive(Debug)]
struct Pipe<T> {
    frames: VecDeque<T>,
    last_us: u64,
    /// Frames that would have arrived, but are held back.
    stalled: u64,
}

impl<T> Default for Pipe<T> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), last_us: 0, stalled: 0 }
    }
}

impl World {
    pub(super) fn connect(&mut self, end: End, node: NodeId) -> WireId {
        self.next_wire += 1;
        let id = WireId(self.next_wire);
        let (up, down) = (Pipe::default(), Pipe::default());
        self.wires.insert(id, Wire { end, node, epoch: None, client_open: true, up, down });
        self.send_up(id, Up::Connect);
        id
    }

    /// When something that is sent now arrives: what is lost is sent again.
    fn arrives_us(&mut self, last_us: u64) -> u64 {
        let mut in_us = self.network.delay_us(&mut self.rng);
        if self.rng.per_mille(self.network.weather.lost_per_mille) {
            in_us += self.rng.range(200_000, 1_200_000);
        }
        (self.now_us + in_us).max(last_us + 1)
    }

    pub(super) fn send_up(&mut self, id: WireId, frame: Up) {
        let Some(last_us) = self.wires.get(&id).map(|wire| wire.up.last_us) else { return };
        let at_us = self.arrives_us(last_us);
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.up.last_us = at_us;
            wire.up.frames.push_back(frame);
            self.schedule(at_us - self.now_us, Event::Up(id));
        }
    }

    pub(super) fn send_down(&mut self, id: WireId, frame: Down) {
        let Some(last_us) = self.wires.get(&id).map(|wire| wire.down.last_us) else { return };
        let at_us = self.arrives_us(last_us);
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.down.last_us = at_us;
            wire.down.frames.push_back(frame);
            self.schedule(at_us - self.now_us, Event::Down(id));
        }
    }

    /// Whether a server may write more to a connection now.
    pub(super) fn has_window(&self, id: WireId) -> bool {
        self.wires.get(&id).is_some_and(|wire| wire.down.frames.len() < WINDOW)
    }

    /// The client closes its side: it receives nothing more.
    pub(super) fn hang_up_wire(&mut self, id: WireId) {
        if let Some(wire) = self.wires.get_mut(&id)
            && std::mem::replace(&mut wire.client_open, false)
        {
            self.send_up(id, Up::Fin);
        }
    }

    /// A process closes a connection, or ends: nothing that was sent to it counts any more.
    pub(super) fn reset(&mut self, id: WireId) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.up = Pipe::default();
            wire.epoch = None;
            self.send_down(id, Down::Reset);
        }
    }

    /// A frame arrives at a node.
    pub(super) fn arrive_up(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let (client, node) = (wire.end.client(), wire.node);
        let Some(host) = self.hosts.get_mut(&node) else {
            return self.reset(id);
        };
        if self.network.holds_client(client, node, true) || host.dark {
            wire.up.stalled += 1;
            return;
        }
        let Some(frame) = wire.up.frames.pop_front() else { return };
        if matches!(frame, Up::Connect) && host.is_up() {
            wire.epoch = Some(host.epoch);
            return self.send_down(id, Down::Connected);
        }
        if !host.is_up() || wire.epoch != Some(host.epoch) {
            // Nobody is there who knows this connection.
            return if wire.client_open {
                self.reset(id);
            } else {
                self.wires.remove(&id);
            };
        }
        host.inbox.push((id, frame));
        self.wake(node);
    }

    /// A frame arrives at a client.
    pub(super) fn arrive_down(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if self.network.holds_client(wire.end.client(), wire.node, false) {
            wire.down.stalled += 1;
            return;
        }
        let Some(frame) = wire.down.frames.pop_front() else { return };
        let (end, node, open) = (wire.end, wire.node, wire.client_open);
        if matches!(frame, Down::Reset) {
            self.wires.remove(&id);
        } else if wire.epoch.is_some() {
            self.pump_wire(node, id);
        }
        if open {
            self.receive_down(id, end, frame);
        }
    }

    /// What was held back arrives, in order.
    pub(super) fn resume_wires(&mut self) {
        let mut events = Vec::new();
        for (id, wire) in &mut self.wires {
            let (up, down) = (&mut wire.up, &mut wire.down);
            for _ in 0..std::mem::take(&mut up.stalled) {
                events.push(Event::Up(*id));
            }
            for _ in 0..std::mem::take(&mut down.stalled) {
                events.push(Event::Down(*id));
            }
        }
        for (event, in_us) in events.into_iter().zip(100..) {
            self.schedule(in_us, event);
        }
    }

    /// A node's process ends. Unless it lost its power, its machine resets its connections.
    pub(super) fn drop_wires_of(&mut self, node: NodeId) {
        let dark = self.hosts.get(&node).is_some_and(|host| host.dark);
        let of_node = |wire: &Wire| wire.node == node && wire.epoch.is_some();
        let ids: Vec<WireId> =
            self.wires.iter().filter(|(_, wire)| of_node(wire)).map(|(id, _)| *id).collect();
        for id in ids {
            if !dark {
                self.reset(id);
            }
        }
    }

    /// Loses some connections of a node: both sides notice, each at its time.
    pub(super) fn lose_connections(&mut self, node: NodeId) -> bool {
        let of_node = |wire: &Wire| wire.node == node && wire.epoch.is_some();
        let ids: Vec<WireId> =
            self.wires.iter().filter(|(_, wire)| of_node(wire)).map(|(id, _)| *id).collect();
        for id in &ids {
            if self.rng.per_mille(600) {
                if let Some(host) = self.hosts.get_mut(&node) {
                    host.inbox.push((*id, Up::Fin));
                }
                self.reset(*id);
            }
        }
        self.wake(node);
        !ids.is_empty()
    }
}
