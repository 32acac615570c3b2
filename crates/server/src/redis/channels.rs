//! Who hears what is published. The loop's thread says it, in the order of the log; it never waits
//! for a slow listener.

use bytes::Bytes;
use holdfast_core::{Channel, Message};
use holdfast_redis::client::Client;
use holdfast_redis::glob;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Messages that may wait for one listener.
const MESSAGES_MAX: usize = 16_384;

/// Bytes of all messages that wait for one listener.
const BYTES_MAX: usize = 8 << 20;

/// What was published.
#[derive(Debug)]
pub(crate) struct Said {
    pub(super) channel: Channel,
    pub(super) message: Message,
}

impl Said {
    fn bytes(&self) -> usize {
        self.channel.as_bytes().len().saturating_add(self.message.as_bytes().len())
    }
}

/// A listener, as the loop's thread sees it.
#[derive(Debug)]
pub(super) struct Ear {
    words: mpsc::Sender<Arc<Said>>,
    waiting_bytes: AtomicUsize,
    broken: AtomicBool,
    bell: Notify,
}

impl Ear {
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Arc<Said>>) {
        let (words, receiver) = mpsc::channel(MESSAGES_MAX);
        let (waiting_bytes, broken, bell) = Default::default();
        (Arc::new(Self { words, waiting_bytes, broken, bell }), receiver)
    }

    fn say(&self, said: &Arc<Said>) {
        let waiting = self.waiting_bytes.fetch_add(said.bytes(), Ordering::Relaxed);
        if waiting > BYTES_MAX || self.words.try_send(said.clone()).is_err() {
            self.break_off();
        }
    }

    fn break_off(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// A message was taken.
    pub(super) fn took(&self, said: &Said) {
        self.waiting_bytes.fetch_sub(said.bytes(), Ordering::Relaxed);
    }

    /// Resolves when something was left out: then the connection must end.
    pub(super) async fn breaks(&self) {
        while !self.broken.load(Ordering::Relaxed) {
            self.bell.notified().await;
        }
    }
}

/// Everybody who listens on this node.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// How many do: if nobody, nothing costs anything.
    listening: AtomicUsize,
    ears: Mutex<Ears>,
}

/// What one connection listens to.
#[derive(Debug)]
struct Listener {
    ear: Arc<Ear>,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
}

#[derive(Debug, Default)]
struct Ears {
    by_connection: BTreeMap<u64, Listener>,
    channels: HashMap<Bytes, BTreeSet<u64>>,
    patterns: BTreeMap<Bytes, BTreeSet<u64>>,
}

impl Channels {
    fn ears(&self) -> MutexGuard<'_, Ears> {
        // Nobody panics while holding it; if somebody did, what is in it is still whole.
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was published.
    pub(crate) fn say(&self, channel: &Channel, message: &Message) {
        if self.listening.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ears = self.ears();
        let hearing = ears.hearing(channel.as_bytes());
        if hearing.is_empty() {
            return;
        }
        let said = Arc::new(Said { channel: channel.clone(), message: message.clone() });
        for number in hearing {
            if let Some(listener) = ears.by_connection.get(&number) {
                listener.ear.say(&said);
            }
        }
    }

    /// This node does not know what was published meanwhile.
    pub(crate) fn lose_track(&self) {
        for listener in self.ears().by_connection.values() {
            listener.ear.break_off();
        }
    }

    /// A connection listens to what its client says now.
    pub(super) fn listen(&self, client: &Client, ear: &Arc<Ear>) {
        let mut ears = self.ears();
        ears.forget(client.id);
        if !client.channels.is_empty() || !client.patterns.is_empty() {
            let (channels, patterns) = (client.channels.clone(), client.patterns.clone());
            for channel in &channels {
                ears.channels.entry(channel.clone()).or_default().insert(client.id);
            }
            for pattern in &patterns {
                ears.patterns.entry(pattern.clone()).or_default().insert(client.id);
            }
            let listener = Listener { ear: ear.clone(), channels, patterns };
            ears.by_connection.insert(client.id, listener);
        }
        self.listening.store(ears.by_connection.len(), Ordering::Relaxed);
    }

    /// A connection has ended.
    pub(super) fn forget(&self, number: u64) {
        let mut ears = self.ears();
        ears.forget(number);
        self.listening.store(ears.by_connection.len(), Ordering::Relaxed);
    }

    /// How many connections hear that channel.
    pub(super) fn subscribers(&self, channel: &[u8]) -> usize {
        if self.listening.load(Ordering::Relaxed) == 0 { 0 } else { self.ears().count(channel) }
    }

    pub(super) fn channels(&self) -> Vec<(Bytes, usize)> {
        let ears = self.ears();
        ears.channels.iter().map(|(channel, hearing)| (channel.clone(), hearing.len())).collect()
    }

    pub(super) fn patterns(&self) -> usize {
        self.ears().patterns.len()
    }
}

impl Ears {
    fn forget(&mut self, number: u64) {
        let Some(listener) = self.by_connection.remove(&number) else { return };
        let Listener { channels, patterns, .. } = listener;
        for channel in channels {
            if let Some(hearing) = self.channels.get_mut(&channel) {
                hearing.remove(&number);
                if hearing.is_empty() {
                    self.channels.remove(&channel);
                }
            }
        }
        for pattern in patterns {
            if let Some(hearing) = self.patterns.get_mut(&pattern) {
                hearing.remove(&number);
                if hearing.is_empty() {
                    self.patterns.remove(&pattern);
                }
            }
        }
    }

    fn fitting(&self, channel: &[u8]) -> impl Iterator<Item = &BTreeSet<u64>> {
        let fits = self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        self.channels.get(channel).into_iter().chain(fits.map(|(_, hearing)| hearing))
    }

    fn hearing(&self, channel: &[u8]) -> BTreeSet<u64> {
        self.fitting(channel).flatten().copied().collect()
    }

    /// As Redis counts: once for the channel, once for each pattern.
    fn count(&self, channel: &[u8]) -> usize {
        self.fitting(channel).map(BTreeSet::len).sum()
    }
}
