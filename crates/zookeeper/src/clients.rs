//! All clients of one node: who has which session, and who must hear of what.

use crate::codec::WatchEvent;
use crate::watches::Watches;
use holdfast_core::{Effect, SessionId};
use std::collections::BTreeMap;

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
    pub(crate) watches: Watches,
    /// Who speaks for a session, and since which attachment.
    sessions: BTreeMap<SessionId, Vec<(ClientId, u64)>>,
    of_client: BTreeMap<ClientId, SessionId>,
}

impl Clients {
    /// A client speaks for a session from this attachment on.
    pub(crate) fn bind(&mut self, client: ClientId, session: SessionId, attachment: u64) {
        self.sessions.entry(session).or_default().push((client, attachment));
        self.of_client.insert(client, session);
    }

    /// A client's connection has ended.
    pub fn forget(&mut self, client: ClientId) {
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
