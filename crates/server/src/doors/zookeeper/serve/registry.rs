//! All clients of this node. Events on the loop's thread (a watch fires, a session ends, a task is
//! done, a heartbeat is acknowledged) go into the queue of the connection that they concern, in the
//! order in which they happened.

use crate::engine::Listener;
use holdfast_core::State;
use holdfast_gateway::{Resume, SessionEvent, Step};
use holdfast_zookeeper::connection::Message;
use holdfast_zookeeper::four_letter::ConnectionInfo;
use holdfast_zookeeper::task::ClientTask;
use holdfast_zookeeper::{ClientId, Clients, Notice};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Messages that wait for one connection. A client that reads is never this far behind; one that
/// does not is disconnected, and sets its watches again when it reconnects.
const QUEUE_MAX: usize = 16_384;

/// Bytes of the events that wait for one connection, and for all of them.
const QUEUE_BYTES_MAX: usize = 8 << 20;
const QUEUES_BYTES_MAX: usize = 64 << 20;

/// A message in a connection's queue.
pub(super) struct Queued {
    pub(super) message: Message,
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

/// What others can see of a connection.
struct ClientEntry {
    queue: mpsc::Sender<Queued>,
    waiting_bytes: Arc<AtomicUsize>,
    info: Arc<Mutex<ConnectionInfo>>,
}

#[derive(Default)]
struct Inner {
    /// A client without an entry is disconnected or about to be: nothing is kept for it.
    entries: BTreeMap<ClientId, ClientEntry>,
    clients: Clients,
    waiting_bytes: Arc<AtomicUsize>,
}

/// All clients of this node.
#[derive(Default)]
pub(super) struct ClientRegistry(Mutex<Inner>);

impl ClientRegistry {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new connection. Its queue ends when it has overflowed or events were missed: then the
    /// connection must be closed.
    pub(super) fn register(
        &self,
        client: ClientId,
        info: Arc<Mutex<ConnectionInfo>>,
    ) -> mpsc::Receiver<Queued> {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let waiting_bytes = Arc::default();
        let mut inner = self.inner();
        inner.clients.register(client);
        inner.entries.insert(client, ClientEntry { queue, waiting_bytes, info });
        messages
    }

    /// Removes a connection that has ended.
    pub(super) fn unregister(&self, client: ClientId) {
        self.inner().disconnect(client);
    }

    /// Runs the next step of a client's task.
    pub(super) fn resume(&self, task: &mut ClientTask, state: &State, resume: Resume) -> Step {
        self.inner().clients.resume(task, state, resume)
    }

    pub(super) fn send(&self, client: ClientId, message: Message) {
        self.inner().send(client, message);
    }

    /// All connections, and the number of all clients' watches.
    pub(super) fn list(&self) -> (Vec<ConnectionInfo>, usize) {
        let inner = self.inner();
        let info =
            |entry: &ClientEntry| entry.info.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (inner.entries.values().map(info).collect(), inner.clients.watches())
    }
}

impl Inner {
    fn send(&mut self, client: ClientId, message: Message) {
        let Some(entry) = self.entries.get(&client) else { return };
        let bytes = match &message {
            Message::Notice(Notice::Event(event)) => event.path.len(),
            _ => 0,
        };
        let (own, all) = (entry.waiting_bytes.clone(), self.waiting_bytes.clone());
        let of_one = own.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let of_all = all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let queued = Queued { message, _counted: Counted { bytes, own, all } };
        // If all queues together are too large, clients with more than their share are
        // disconnected.
        let share = QUEUES_BYTES_MAX / self.entries.len().max(1);
        let too_much = of_one > QUEUE_BYTES_MAX || of_all > QUEUES_BYTES_MAX && of_one > share;
        if too_much || entry.queue.try_send(queued).is_err() {
            self.disconnect(client);
        }
    }

    fn disconnect(&mut self, client: ClientId) {
        self.entries.remove(&client);
        self.clients.forget(client);
    }
}

impl Listener for ClientRegistry {
    fn receive(&self, event: SessionEvent) {
        let mut inner = self.inner();
        for (client, message) in inner.clients.receive(&event) {
            inner.send(client, message);
        }
    }

    /// Disconnects all clients, because they may have missed events.
    fn lost_track(&self) {
        let mut inner = self.inner();
        inner.entries.clear();
        inner.clients.lost_track();
    }
}
