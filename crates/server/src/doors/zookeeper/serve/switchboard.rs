//! All clients of this node. What happens on the loop's thread (a watch fires, a session ends, a
//! task is done, a heartbeat is acknowledged) goes into the mailbox of the connection that it
//! concerns, in the order in which it happened.

use crate::engine::Listener;
use holdfast_gateway::SessionEvent;
use holdfast_node::Reply;
use holdfast_zookeeper::connection::Beaten;
use holdfast_zookeeper::four_letter::ConnectionInfo;
use holdfast_zookeeper::task::ClientTask;
use holdfast_zookeeper::{ClientId, Clients, Notice};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Letters that wait for one connection. A client that reads is never so far behind; one that does
/// not is disconnected, and asks again for what it watches.
const MAILBOX_MAX: usize = 16_384;

/// Bytes of the events that wait for one connection, and for all of them.
const MAILBOX_BYTES_MAX: usize = 8 << 20;
const MAILBOXES_BYTES_MAX: usize = 64 << 20;

/// Something on its way to a connection.
pub(super) struct Mail {
    pub(super) letter: Letter,
    _counted: Counted,
}

/// Bytes that count as waiting, for one connection and for all, until this is dropped.
struct Counted {
    bytes: usize,
    own: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Something for a connection.
pub(super) enum Letter {
    /// Its client must be told, or its connection must end.
    Notice(Notice),
    /// Its task is done.
    Finished(Box<ClientTask>),
    /// The cluster has replied to its heartbeat.
    Beaten(Beaten),
}

/// A connection as the others see it.
struct Line {
    mailbox: mpsc::Sender<Mail>,
    waiting_bytes: Arc<AtomicUsize>,
    info: Arc<Mutex<ConnectionInfo>>,
}

#[derive(Default)]
struct Inner {
    /// A client without a line has gone, or must go: nothing is kept for it.
    lines: BTreeMap<ClientId, Line>,
    clients: Clients,
    waiting_bytes: Arc<AtomicUsize>,
}

/// All clients of this node.
#[derive(Default)]
pub(super) struct Switchboard(Mutex<Inner>);

impl Switchboard {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection. Its mailbox ends when it has overflowed, or something was missed: then the
    /// connection must end too.
    pub(super) fn enter(
        &self,
        client: ClientId,
        info: Arc<Mutex<ConnectionInfo>>,
    ) -> mpsc::Receiver<Mail> {
        let (mailbox, letters) = mpsc::channel(MAILBOX_MAX);
        let waiting_bytes = Arc::default();
        self.inner().lines.insert(client, Line { mailbox, waiting_bytes, info });
        letters
    }

    /// A connection has ended.
    pub(super) fn leave(&self, client: ClientId) {
        self.inner().hang_up(client);
    }

    /// Lets a client's task do a step beside all clients. `None` if the client has gone.
    pub(super) fn with_clients<T>(
        &self,
        client: ClientId,
        step: impl FnOnce(&mut Clients) -> T,
    ) -> Option<T> {
        let mut inner = self.inner();
        inner.lines.contains_key(&client).then(|| step(&mut inner.clients))
    }

    pub(super) fn send(&self, client: ClientId, letter: Letter) {
        self.inner().send(client, letter);
    }

    /// What is known of the connections that have a session, and how many watches they have.
    pub(super) fn list(&self) -> (Vec<ConnectionInfo>, usize) {
        let inner = self.inner();
        let info = |line: &Line| line.info.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (inner.lines.values().map(info).collect(), inner.clients.watches())
    }
}

impl Inner {
    fn send(&mut self, client: ClientId, letter: Letter) {
        let Some(line) = self.lines.get(&client) else { return };
        let bytes = match &letter {
            Letter::Notice(Notice::Event(event)) => event.path.len(),
            _ => 0,
        };
        let (own, all) = (line.waiting_bytes.clone(), self.waiting_bytes.clone());
        let of_one = own.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let of_all = all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let mail = Mail { letter, _counted: Counted { bytes, own, all } };
        // If all of them have too much, those go that have more than their share.
        let share = MAILBOXES_BYTES_MAX / self.lines.len().max(1);
        let too_much = of_one > MAILBOX_BYTES_MAX || of_all > MAILBOXES_BYTES_MAX && of_one > share;
        if too_much || line.mailbox.try_send(mail).is_err() {
            self.hang_up(client);
        }
    }

    fn hang_up(&mut self, client: ClientId) {
        self.lines.remove(&client);
        self.clients.forget(client);
    }
}

impl Listener for Switchboard {
    fn receive(&self, event: SessionEvent) {
        let mut inner = self.inner();
        match event {
            SessionEvent::Effect { effect, .. } => {
                for (client, notice) in inner.clients.effect(&effect) {
                    inner.send(client, Letter::Notice(notice));
                }
            }
            SessionEvent::Reply { number, reply } => {
                let beaten = match reply {
                    Reply::Beat(true) => Beaten::Alive,
                    Reply::Beat(false) => Beaten::Ended,
                    _ => Beaten::Unknown,
                };
                inner.send(ClientId(number), Letter::Beaten(beaten));
            }
            SessionEvent::Refused { .. } | SessionEvent::Published(_) | SessionEvent::LostTrack => {
            }
        }
    }

    /// Clients may have missed events, so all of them must connect again.
    fn lost_track(&self) {
        let mut inner = self.inner();
        inner.lines.clear();
        inner.clients = Clients::default();
    }
}
