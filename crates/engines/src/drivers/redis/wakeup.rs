//! Wakes waiters when a lock is released. Redis does not notify anybody when a key is deleted, so a
//! release is also published on a channel named after the lock. That costs one small command and
//! changes no key. Other clients don't publish their releases, so waiters poll as well.

use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, ErrorKind, RedisResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;

/// Connecting or subscribing takes longer than this only if the server does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to leave a server alone after its subscriptions failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long the connection is kept when nobody is waiting any more.
const LINGER: Duration = Duration::from_secs(10);

/// The subscriptions of one `Locks`. With several servers, one that answers is enough: a release is
/// published on all of them.
pub(super) struct Wakeups {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Vec<Client>,
    channels: Mutex<Channels>,
    changed: Notify,
}

#[derive(Default)]
struct Channels {
    waited_for: BTreeMap<String, Waiters>,
    /// Channels that may have to be subscribed to or unsubscribed from.
    changed: BTreeSet<String>,
    /// Whether the task that keeps the subscriptions is running.
    running: bool,
}

struct Waiters {
    count: usize,
    released: Arc<Notify>,
}

impl Wakeups {
    pub(super) fn new(servers: Vec<Client>) -> Self {
        let (channels, changed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { servers, channels, changed }) }
    }

    pub(super) fn channel(name: &str) -> String {
        format!("holdfast-locks:{name}")
    }

    /// Listens for releases of a lock until the result is dropped.
    pub(super) fn listen(&self, name: &str) -> Listening {
        let channel = Self::channel(name);
        let mut channels = self.shared.lock();
        let new = || Waiters { count: 0, released: Arc::new(Notify::new()) };
        let waiters = channels.waited_for.entry(channel.clone()).or_insert_with(new);
        waiters.count += 1;
        let released = waiters.released.clone();
        if waiters.count == 1 {
            channels.changed.insert(channel.clone());
            self.shared.changed.notify_one();
        }
        if !std::mem::replace(&mut channels.running, true) {
            tokio::spawn(run(self.shared.clone()));
        }
        drop(channels);
        Listening { shared: self.shared.clone(), channel, released }
    }
}

/// One waiter that wants to be woken.
pub(super) struct Listening {
    shared: Arc<Shared>,
    channel: String,
    released: Arc<Notify>,
}

impl Listening {
    /// Resolves when the lock was released and it is this waiter's turn to try: only one waiter of
    /// this process is woken.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut channels = self.shared.lock();
        let Some(waiters) = channels.waited_for.get_mut(&self.channel) else { return };
        waiters.count -= 1;
        if waiters.count == 0 {
            channels.waited_for.remove(&self.channel);
            channels.changed.insert(self.channel.clone());
            self.shared.changed.notify_one();
        } else {
            // The wake-up may have been meant for this waiter: pass it on.
            waiters.released.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, channel: &str) {
        if let Some(waiters) = self.lock().waited_for.get(channel) {
            waiters.released.notify_one();
        }
    }

    /// Whether nobody is waiting; then the task has to end.
    fn end_if_idle(&self) -> bool {
        let mut channels = self.lock();
        let idle = channels.waited_for.is_empty();
        if idle {
            channels.changed.clear();
            channels.running = false;
        }
        idle
    }
}

/// Keeps the subscriptions until nobody has waited for a while. Failures are ignored: waiters poll
/// as well.
async fn run(shared: Arc<Shared>) {
    let mut next = 0;
    loop {
        let Some(server) = shared.servers.get(next % shared.servers.len().max(1)) else { return };
        next += 1;
        if let Ok(Ok(connection)) = timeout(TIMEOUT, server.get_async_pubsub()).await {
            let (sink, stream) = connection.split();
            {
                let mut channels = shared.lock();
                channels.changed = channels.waited_for.keys().cloned().collect();
            }
            if let Some(Idle) = keep(&shared, sink, stream).await {
                return;
            }
        } else if shared.end_if_idle() {
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Nobody is waiting any more, and the task is marked as ended.
struct Idle;

/// Uses one connection until it fails.
async fn keep(shared: &Shared, mut sink: PubSubSink, mut stream: PubSubStream) -> Option<Idle> {
    let mut subscribed = BTreeSet::new();
    loop {
        let changed = std::mem::take(&mut shared.lock().changed);
        for channel in changed {
            let wanted = shared.lock().waited_for.contains_key(&channel);
            if wanted && subscribed.insert(channel.clone()) {
                settle(sink.subscribe(&channel)).await?;
                // It may have been released before.
                shared.wake(&channel);
            } else if !wanted && subscribed.remove(&channel) {
                settle(sink.unsubscribe(&channel)).await?;
            }
        }
        let idle = subscribed.is_empty();
        tokio::select! {
            message = stream.next() => shared.wake(message?.get_channel_name()),
            () = shared.changed.notified() => {}
            () = sleep(LINGER), if idle => if shared.end_if_idle() { return Some(Idle) },
        }
    }
}

/// `None` if the connection can no longer be used. A refusal is ignored: this user may not
/// subscribe, or not to this channel.
async fn settle(call: impl Future<Output = RedisResult<()>>) -> Option<()> {
    match timeout(TIMEOUT, call).await {
        Ok(Ok(())) => Some(()),
        Ok(Err(error)) => matches!(error.kind(), ErrorKind::Server(_)).then_some(()),
        Err(_) => None,
    }
}
