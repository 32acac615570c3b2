//! All clients of one node: which session each has, and which events to notify them of.

use crate::codec::WatchEvent;
use crate::connection::{HeartbeatReply, Message};
use crate::task::ClientTask;
use crate::watches::Watches;
use holdfast_core::{Effect, SessionId, State};
use holdfast_gateway::{Resume, SessionEvent, Step};
use holdfast_node::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Identifies a client. The driver never reuses a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A notice for a client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Something that it watches has changed.
    Event(WatchEvent),
    /// Its session has ended.
    SessionEnded,
    /// Another connection has attached its session.
    SessionMoved,
}

/// The clients of one node. Must receive tasks and effects on one thread, in order.
#[derive(Debug, Default)]
pub struct Clients {
    /// Clients with a connection. Nothing is kept or done for others.
    present: BTreeSet<ClientId>,
    pub(crate) watches: Watches,
    /// The clients bound to each session, each with its attachment.
    sessions: BTreeMap<SessionId, Vec<(ClientId, u64)>>,
    of_client: BTreeMap<ClientId, SessionId>,
}

impl Clients {
    /// Adds a client that has connected.
    pub fn register(&mut self, client: ClientId) {
        self.present.insert(client);
    }

    /// Runs the next step of a client's task. Does nothing for a client that has disconnected,
    /// since nobody would clean up after it.
    pub fn resume(&mut self, task: &mut ClientTask, state: &State, resume: Resume) -> Step {
        if self.present.contains(&task.client()) {
            task.resume(state, self, resume)
        } else {
            Step::Done
        }
    }

    /// Converts an event of the loop into messages for connections, in order.
    pub fn receive(&mut self, event: &SessionEvent) -> Vec<(ClientId, Message)> {
        match event {
            SessionEvent::Effect { effect, .. } => {
                let notices = self.effect(effect).into_iter();
                notices.map(|(client, notice)| (client, Message::Notice(notice))).collect()
            }
            SessionEvent::Reply { number, reply } => {
                let reply = match reply {
                    Reply::Beat(true) => HeartbeatReply::Alive,
                    Reply::Beat(false) => HeartbeatReply::Ended,
                    _ => HeartbeatReply::Unknown,
                };
                vec![(ClientId(*number), Message::HeartbeatReply(reply))]
            }
            SessionEvent::Refused { .. } | SessionEvent::Published(_) | SessionEvent::LostTrack => {
                Vec::new()
            }
        }
    }

    /// Forgets all clients, which must connect again, because this node may have missed events.
    pub fn lost_track(&mut self) {
        *self = Self::default();
    }

    /// Binds a client to a session, from this attachment on.
    pub(crate) fn bind(&mut self, client: ClientId, session: SessionId, attachment: u64) {
        self.sessions.entry(session).or_default().push((client, attachment));
        self.of_client.insert(client, session);
    }

    /// Removes a client whose connection has ended.
    pub fn forget(&mut self, client: ClientId) {
        self.present.remove(&client);
        self.watches.forget(client);
        let Some(session) = self.of_client.remove(&client) else { return };
        if let Some(clients) = self.sessions.get_mut(&session) {
            clients.retain(|(known, _)| *known != client);
            if clients.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }

    /// How many watches there are.
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// The notices that follow from an effect, in order.
    pub fn effect(&mut self, effect: &Effect) -> Vec<(ClientId, Notice)> {
        match effect {
            Effect::NodeChanged { path, what, zxid } => {
                let events = self.watches.fire(path, *what, *zxid);
                events.into_iter().map(|(client, event)| (client, Notice::Event(event))).collect()
            }
            Effect::SessionEnded { session, .. } => {
                self.notices_for(*session, u64::MAX, &Notice::SessionEnded)
            }
            Effect::SessionAttached { session, attachment } => {
                self.notices_for(*session, *attachment, &Notice::SessionMoved)
            }
            _ => Vec::new(),
        }
    }

    /// The same notice for each client whose attachment of the session is older than `before`.
    fn notices_for(
        &self,
        session: SessionId,
        before: u64,
        notice: &Notice,
    ) -> Vec<(ClientId, Notice)> {
        let clients = self.sessions.get(&session).into_iter().flatten();
        let earlier = clients.filter(|(_, attachment)| *attachment < before);
        earlier.map(|(client, _)| (*client, notice.clone())).collect()
    }
}
