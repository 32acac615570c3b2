//! The ZooKeeper door of one host, around `holdfast_zookeeper`: what the server's sockets and queues
//! are there, is plain data here.

use crate::checks::Unacknowledged;
use crate::door::DoorTask;
use crate::host::{Host, VirtualSink};
use crate::world::WireId;
use holdfast_gateway::{CallId, Caller, Input, Resume, Step, Task, Topic, View};
use holdfast_zookeeper::connection::{Connection, Message, Settings};
use holdfast_zookeeper::task::ClientTask;
use holdfast_zookeeper::{ClientId, Clients};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// Messages that wait for a client that does not read: few, so that some overflow.
const MESSAGES_MAX: usize = 128;

/// A client's requests, as a task of the gateway.
pub(crate) struct ZooKeeperTask {
    pub(crate) call: CallId,
    pub(crate) task: Box<ClientTask>,
    clients: Rc<RefCell<Clients>>,
}

impl Task for ZooKeeperTask {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        self.clients.borrow_mut().resume(&mut self.task, view.state, resume)
    }
}

#[derive(Default)]
pub(crate) struct Door {
    /// Where the events of znodes go, and the replies to heartbeats.
    pub(crate) sink: Option<VirtualSink>,
    pub(crate) connections: BTreeMap<ClientId, DoorConnection>,
    clients: Rc<RefCell<Clients>>,
    /// Tasks for the next turn.
    starts: Vec<(CallId, DoorTask)>,
}

pub(crate) struct DoorConnection {
    pub(crate) wire: WireId,
    pub(crate) connection: Connection,
    /// What has come from the loop.
    pub(crate) messages: VecDeque<Message>,
    /// Until then its thread has other things to do.
    pub(crate) busy_until_us: u64,
    /// A task that waits until its client has read more.
    pub(crate) deferred: Option<Box<ClientTask>>,
    /// Since when no heartbeat has been acknowledged.
    pub(crate) unacknowledged_since_us: Option<u64>,
}

impl Door {
    pub(crate) fn client(&self, wire: WireId) -> Option<ClientId> {
        self.connections.iter().find(|(_, known)| known.wire == wire).map(|(client, _)| *client)
    }

    /// Something came from the loop: which connections it is for.
    pub(crate) fn receive(&mut self, event: &holdfast_gateway::SessionEvent) -> Vec<ClientId> {
        let messages = self.clients.borrow_mut().receive(event);
        let mut concerned = Vec::new();
        for (client, message) in messages {
            self.push(client, message);
            concerned.push(client);
        }
        concerned.dedup();
        concerned
    }

    pub(crate) fn push(&mut self, client: ClientId, message: Message) {
        if let Some(known) = self.connections.get_mut(&client) {
            known.messages.push_back(message);
        }
    }

    pub(crate) fn has_messages(&self, client: ClientId) -> bool {
        let waits = |known: &DoorConnection| !known.messages.is_empty() || known.deferred.is_some();
        self.connections.get(&client).is_some_and(waits)
    }

    pub(crate) fn has_overflowed(&self, client: ClientId) -> bool {
        self.connections.get(&client).is_some_and(|known| known.messages.len() > MESSAGES_MAX)
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, wire: WireId) {
        if let Some(client) = self.client(wire) {
            self.connections.remove(&client);
            self.clients.borrow_mut().forget(client);
        }
    }

    /// Events were missed: the connections that must end.
    pub(crate) fn lost_track(&mut self) -> Vec<WireId> {
        self.clients.borrow_mut().lost_track();
        self.connections.values().map(|known| known.wire).collect()
    }

    /// When time has something to do for a connection.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.connections.values().filter_map(|known| known.connection.next_due()).min()
    }

    pub(crate) fn due(&self, now: Duration) -> Vec<ClientId> {
        let due = self.connections.iter().filter(|(_, known)| {
            let due = known.connection.next_due();
            due.is_some_and(|due| due <= now)
        });
        due.map(|(client, _)| *client).collect()
    }
}

impl Host {
    /// Opens the ZooKeeper door, after a start.
    pub(crate) fn open_zookeeper(&mut self, now: Duration) {
        self.next_id += 1;
        let sink = VirtualSink(self.next_id);
        self.zookeeper.sink = Some(sink);
        self.handle(Input::Listen { sink, topics: vec![Topic::Znodes] }, now);
    }

    /// The client of a connection; the first bytes make it one.
    pub(crate) fn zookeeper_client(&mut self, wire: WireId) -> ClientId {
        if let Some(client) = self.zookeeper.client(wire) {
            return client;
        }
        let secret = self.secret();
        let client = ClientId(self.next_id);
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let connection = Connection::new(client, peer, Settings::default(), secret);
        self.zookeeper.clients.borrow_mut().register(client);
        let known = DoorConnection {
            wire,
            connection,
            messages: VecDeque::new(),
            busy_until_us: 0,
            deferred: None,
            unacknowledged_since_us: None,
        };
        self.zookeeper.connections.insert(client, known);
        client
    }

    pub(crate) fn start_zookeeper(&mut self, wire: WireId, task: Box<ClientTask>) {
        let call = self.pend(Some(wire), crate::door::Kind::ZooKeeper);
        let clients = self.zookeeper.clients.clone();
        let task = DoorTask::ZooKeeper(ZooKeeperTask { call, task, clients });
        self.zookeeper.starts.push((call, task));
    }

    /// Starts the tasks of connections: at the beginning of a turn, as in the server, where they go
    /// through the inbox. During a turn one could see what listeners have not been told yet.
    pub(crate) fn start_tasks(&mut self, now: Duration) {
        for (call, task) in std::mem::take(&mut self.zookeeper.starts) {
            self.handle(Input::Start { caller: Caller::NODE, call, task, block_for: None }, now);
        }
    }

    /// The open connections without an acknowledged heartbeat.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = Unacknowledged> + '_ {
        self.zookeeper.connections.values().filter_map(|known| {
            let (session, timeout) = known.connection.session()?;
            Some(Unacknowledged {
                node: self.id,
                session: session.id,
                since_us: known.unacknowledged_since_us?.max(self.paused_until_us),
                timeout_ms: timeout.as_millis() as u64,
            })
        })
    }
}
