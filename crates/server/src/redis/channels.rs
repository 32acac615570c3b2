//! Who hears what is published, and who must hear that its lock was taken over. The loop's thread
//! says it, in the order of the log; it never waits for a slow listener.

use bytes::Bytes;
use holdfast_core::{Channel, Ended, How, Message, Token};
use holdfast_redis::client::Client;
use holdfast_redis::glob;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Messages that may wait for one listener.
const MESSAGES_MAX: usize = 16_384;

/// Bytes of all messages that wait for one listener.
const BYTES_MAX: usize = 8 << 20;

/// Bytes of all messages that wait for anybody: each is kept once, however many it waits for.
const ALL_BYTES_MAX: usize = 64 << 20;

/// Locks that one connection is known to hold. One that takes more and gives none back hears
/// nothing of the oldest.
const HELD_MAX: usize = 1_024;

/// Tickets that were taken over before their connection was known to hold them: the two are a
/// moment apart.
const TAKEN_OVER_KEPT: usize = 1_024;

/// What was published.
#[derive(Debug)]
pub(crate) struct Said {
    pub(super) channel: Channel,
    pub(super) message: Message,
    /// The bytes of all that somebody still has to hear.
    unheard_bytes: Arc<AtomicUsize>,
}

impl Drop for Said {
    fn drop(&mut self) {
        self.unheard_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
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

    /// Whether the connection must end.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Resolves when something was left out: then the connection must end.
    pub(super) async fn breaks(&self) {
        while !self.is_broken() {
            self.bell.notified().await;
        }
    }
}

/// Everybody who listens on this node.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// How many do: if nobody, nothing costs anything.
    listening: AtomicUsize,
    unheard_bytes: Arc<AtomicUsize>,
    ears: Mutex<Ears>,
    holders: Mutex<Holders>,
}

/// Connections that were told that they hold a lock.
#[derive(Debug, Default)]
struct Holders {
    by_token: HashMap<Token, (u64, Arc<Ear>)>,
    by_connection: BTreeSet<(u64, Token)>,
    /// The last ones that were taken over and nobody was known to hold.
    taken_over: VecDeque<Token>,
}

impl Holders {
    fn forget(&mut self, token: Token) -> Option<Arc<Ear>> {
        let (connection, ear) = self.by_token.remove(&token)?;
        self.by_connection.remove(&(connection, token));
        Some(ear)
    }

    fn of(&self, connection: u64) -> Vec<Token> {
        let all = (connection, Token(0))..=(connection, Token(u64::MAX));
        self.by_connection.range(all).map(|(_, token)| *token).collect()
    }
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
        let (channel, message) = (channel.clone(), message.clone());
        let said = Said { channel, message, unheard_bytes: self.unheard_bytes.clone() };
        let before = self.unheard_bytes.fetch_add(said.bytes(), Ordering::Relaxed);
        if before > ALL_BYTES_MAX {
            ears.break_off_the_slowest();
        }
        let said = Arc::new(said);
        for number in hearing {
            if let Some(listener) = ears.by_connection.get(&number) {
                listener.ear.say(&said);
            }
        }
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        // Whole whatever happens, like the ears.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is going to be told that it holds a lock. If that is taken over by another one
    /// later, it must end: its client would never know otherwise. False if it is taken over already.
    pub(super) fn hold(&self, token: Token, connection: u64, ear: &Arc<Ear>) -> bool {
        let mut holders = self.holders();
        if holders.taken_over.contains(&token) {
            return false;
        }
        holders.by_token.insert(token, (connection, ear.clone()));
        holders.by_connection.insert((connection, token));
        let held = holders.of(connection);
        for oldest in held.iter().take(held.len().saturating_sub(HELD_MAX)) {
            holders.forget(*oldest);
        }
        true
    }

    /// A connection is about to take over a ticket. If it was its own, there is nobody to tell.
    pub(super) fn let_go(&self, token: Token, connection: u64) {
        let mut holders = self.holders();
        if holders.by_token.get(&token).is_some_and(|(holder, _)| *holder == connection) {
            holders.forget(token);
        }
    }

    /// A ticket that was held has ended.
    pub(crate) fn ended(&self, ended: &Ended) {
        let by_owner = ended.forced.as_ref().is_some_and(|f| Some(&f.by) == ended.label.as_ref());
        let mut holders = self.holders();
        let ear = holders.forget(ended.token);
        if ended.how == How::Forced && by_owner {
            match ear {
                Some(ear) => ear.break_off(),
                None => {
                    holders.taken_over.push_back(ended.token);
                    if holders.taken_over.len() > TAKEN_OVER_KEPT {
                        holders.taken_over.pop_front();
                    }
                }
            }
        }
    }

    /// This node does not know what was published meanwhile.
    pub(crate) fn lose_track(&self) {
        for (_, ear) in self.holders().by_token.values() {
            ear.break_off();
        }
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
        drop(ears);
        let mut holders = self.holders();
        for token in holders.of(number) {
            holders.forget(token);
        }
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
    /// Lets those go for whom more waits than their share.
    fn break_off_the_slowest(&self) {
        let share = ALL_BYTES_MAX.checked_div(self.by_connection.len()).unwrap_or(0);
        for listener in self.by_connection.values() {
            if listener.ear.waiting_bytes.load(Ordering::Relaxed) > share {
                listener.ear.break_off();
            }
        }
    }

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
