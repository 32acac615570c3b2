//! All clients of one node: who has which session, and who must hear of what.

use crate::codec::WatchEvent;
use crate::connection::{HeartbeatReply, Message};
use crate::task::ClientTask;
use crate::watches::Watches;
use holdfast_core::{Effect, SessionId, State};
use holdfast_gateway::{Resume, SessionEvent, Step};
use holdfast_node::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Which client something is about: the driver never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What a client's connection must be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Something that it watches has changed.
    Event(WatchEvent),
    /// Its session has ended.
    SessionEnded,
    /// Another connection has gone on with its session.
    SessionMoved,
}

/// The clients of one node. Tasks and effects come to it on one thread, in order.
#[derive(Debug, Default)]
pub struct Clients {
    /// Those with a connection. Nothing is kept or done for others.
    present: BTreeSet<ClientId>,
    pub(crate) watches: Watches,
    /// Who speaks for a session, and since which attachment.
    sessions: BTreeMap<SessionId, Vec<(ClientId, u64)>>,
    of_client: BTreeMap<ClientId, SessionId>,
}

impl Clients {
    /// A connection has begun.
    pub fn register(&mut self, client: ClientId) {
        self.present.insert(client);
    }

    /// Lets a client's task do its next step. What a client that has gone asked for is not done: it
    /// would be kept for nobody.
    pub fn resume(&mut self, task: &mut ClientTask, state: &State, resume: Resume) -> Step {
        if self.present.contains(&task.client()) {
            task.resume(state, self, resume)
        } else {
            Step::Done
        }
    }

    /// Something came from the loop: which connections must be told what, in this order.
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

    /// This node may have missed events: all clients are forgotten, and must connect again.
    pub fn lost_track(&mut self) {
        *self = Self::default();
    }

    /// A client speaks for a session from this attachment on.
    pub(crate) fn bind(&mut self, client: ClientId, session: SessionId, attachment: u64) {
        self.sessions.entry(session).or_default().push((client, attachment));
        self.of_client.insert(client, session);
    }

    /// A client's connection has ended.
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

    /// Something happened: who must be told what, in this order.
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

    /// Those who spoke for a session before an attachment.
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
