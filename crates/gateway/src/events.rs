//! Which sink receives what: the sinks of sessions, and the topics that sinks subscribe to.

use crate::Caller;
use crate::glob;
use crate::index::Index;
use crate::io::{Driver, Output, Published, SessionEvent, Sink, SinkId};
use bytes::Bytes;
use holdfast_core::{
    Answer, Channel, Effect, EndReason, Ended, Message, Scope, SessionId, State, TicketStatus,
    Token, Watches,
};
use holdfast_node::Reply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Sinks of one node that watch locks. A slow one costs some 30 KB of pointers and what they point
/// to, so all of them stay near 300 MB.
const WATCHES_MAX: usize = 10_000;

/// Bytes of all unread messages. Each message counts once, however many sinks it is queued for.
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// Tickets that one sink follows. A client that takes more without releasing any is not notified
/// about the oldest.
const FOLLOWED_MAX: usize = 1_024;

/// What a sink can subscribe to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Events of some locks.
    Locks(Scope),
    /// Messages published on a channel.
    Channel(Bytes),
    /// Messages published on channels whose names match a pattern: see [`glob::matches`].
    Pattern(Bytes),
    /// Changes to znodes, and the ends of sessions: for a door that keeps its own watches, and sets
    /// each in the same step as the read that asks for it.
    Znodes,
}

/// The subscribers of each channel.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    by_name: BTreeMap<Bytes, BTreeSet<SinkId>>,
    by_pattern: BTreeMap<Bytes, BTreeSet<SinkId>>,
}

impl Channels {
    fn matching(&self, channel: &[u8]) -> impl Iterator<Item = &BTreeSet<SinkId>> {
        let matches = self.by_pattern.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        self.by_name.get(channel).into_iter().chain(matches.map(|(_, sinks)| sinks))
    }

    /// How many subscriptions a message would reach: one for the channel, one for each matching
    /// pattern.
    pub fn subscribers(&self, channel: &[u8]) -> usize {
        self.matching(channel).map(BTreeSet::len).sum()
    }

    /// The channels that have subscribers by name, with the number of sinks.
    pub fn names(&self) -> Vec<(Bytes, usize)> {
        self.by_name.iter().map(|(channel, sinks)| (channel.clone(), sinks.len())).collect()
    }

    /// How many patterns have subscribers.
    pub fn patterns(&self) -> usize {
        self.by_pattern.len()
    }

    fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.by_pattern.is_empty()
    }
}

fn add(map: &mut BTreeMap<Bytes, BTreeSet<SinkId>>, key: &Bytes, sink: SinkId) {
    map.entry(key.clone()).or_default().insert(sink);
}

fn remove(map: &mut BTreeMap<Bytes, BTreeSet<SinkId>>, key: &Bytes, sink: SinkId) {
    if let Some(sinks) = map.get_mut(key) {
        sinks.remove(&sink);
        if sinks.is_empty() {
            map.remove(key);
        }
    }
}

struct Subscriber<S> {
    sink: S,
    session: Option<SessionId>,
    topics: BTreeSet<Topic>,
    /// Who subscribed to them; `None` for a door's own subscription.
    caller: Option<Caller>,
    followed: VecDeque<Token>,
}

impl<S> Subscriber<S> {
    fn watches(&self) -> bool {
        self.topics.iter().any(|topic| matches!(topic, Topic::Locks(_)))
    }

    /// Whether its protocol can't report a missed event, so that the connection must be closed
    /// instead.
    fn must_end(&self) -> bool {
        !self.followed.is_empty()
            || self.topics.iter().any(|topic| !matches!(topic, Topic::Locks(_)))
    }
}

/// The sinks of one node and their subscriptions.
pub(crate) struct Events<D: Driver> {
    subscribers: Index<SinkId, Subscriber<D::Sink>>,
    sessions: Index<SessionId, SinkId>,
    locks: Watches<SinkId>,
    watching: usize,
    znodes: BTreeSet<SinkId>,
    followers: Index<Token, SinkId>,
    pub(crate) channels: Arc<Channels>,
    unread_bytes: Arc<AtomicUsize>,
    /// What was just sent to a sink as a reply: it needs no event about the same thing.
    answered: Vec<(ReportedEvent, SinkId)>,
}

impl<D: Driver> Default for Events<D> {
    fn default() -> Self {
        Self {
            subscribers: Index::default(),
            sessions: Index::default(),
            locks: Watches::default(),
            watching: 0,
            znodes: BTreeSet::new(),
            followers: Index::default(),
            channels: Arc::default(),
            unread_bytes: Arc::default(),
            answered: Vec::new(),
        }
    }
}

/// The one event of a ticket that a reply has already reported to its session. Later events are
/// still sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedEvent {
    Granted(Token),
    Released(Token),
    Cancelled(Token),
}

impl ReportedEvent {
    fn by(reply: &Reply) -> Option<Self> {
        match reply {
            Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(grant)))) => {
                Some(Self::Granted(grant.token))
            }
            Reply::Answer(Ok(Answer::Released(token))) => Some(Self::Released(*token)),
            Reply::Answer(Ok(Answer::Cancelled(token))) => Some(Self::Cancelled(*token)),
            _ => None,
        }
    }

    /// The reply that would already have reported this effect.
    fn reported_by(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::Granted(grant) => Some(Self::Granted(grant.token)),
            Effect::Ended(Ended { token, how: EndReason::Released, .. }) => {
                Some(Self::Released(*token))
            }
            Effect::Ended(Ended { token, how: EndReason::Cancelled, .. }) => {
                Some(Self::Cancelled(*token))
            }
            _ => None,
        }
    }
}

impl<D: Driver> Events<D> {
    fn subscriber(&mut self, sink: &D::Sink) -> &mut Subscriber<D::Sink> {
        let id = sink.id();
        if self.subscribers.get(&id).is_none() {
            let (topics, followed) = Default::default();
            let new =
                Subscriber { sink: sink.clone(), session: None, topics, caller: None, followed };
            self.subscribers.insert(id, new);
        }
        #[expect(clippy::unwrap_used, reason = "it was put there just now")]
        self.subscribers.get_mut(&id).unwrap()
    }

    /// Sends a session's events to this sink. A sink that the session had before receives no more
    /// events, so it is notified that it lost track.
    pub(crate) fn bind(&mut self, session: SessionId, sink: &D::Sink, out: &mut Vec<Output<D>>) {
        self.subscriber(sink).session = Some(session);
        let older = self.sessions.insert(session, sink.id()).filter(|older| *older != sink.id());
        if let Some(older) = older.and_then(|older| self.subscribers.get_mut(&older)) {
            older.session = None;
            out.push(Output::Event(older.sink.clone(), SessionEvent::LostTrack));
        }
    }

    fn unbind(&mut self, session: SessionId, sink: SinkId) {
        if self.sessions.get(&session) == Some(&sink) {
            self.sessions.remove(&session);
        }
    }

    /// Replaces a sink's topics; returns false if there is no room for them.
    pub(crate) fn subscribe(
        &mut self,
        sink: &D::Sink,
        caller: Option<Caller>,
        topics: Vec<Topic>,
    ) -> bool {
        let id = sink.id();
        self.subscriber(sink).caller = caller;
        let before = std::mem::take(&mut self.subscriber(sink).topics);
        let watched = before.iter().any(|topic| matches!(topic, Topic::Locks(_)));
        for topic in &before {
            self.remove_topic(id, topic);
        }
        self.watching = self.watching.saturating_sub(usize::from(watched));
        let watches = topics.iter().any(|topic| matches!(topic, Topic::Locks(_)));
        let room = !watches || self.watching < WATCHES_MAX;
        if !room {
            return false;
        }
        self.watching = self.watching.saturating_add(usize::from(watches));
        let topics: BTreeSet<Topic> = topics.into_iter().collect();
        let added = topics.iter().all(|topic| match topic {
            Topic::Locks(scope) => self.locks.add(id, scope),
            Topic::Channel(name) => {
                add(&mut Arc::make_mut(&mut self.channels).by_name, name, id);
                true
            }
            Topic::Pattern(pattern) => {
                add(&mut Arc::make_mut(&mut self.channels).by_pattern, pattern, id);
                true
            }
            Topic::Znodes => {
                self.znodes.insert(id);
                true
            }
        });
        self.subscriber(sink).topics = topics;
        added
    }

    /// Users or roles have changed: whoever may no longer receive what it subscribed to is notified
    /// that it lost track, or disconnected.
    pub(crate) fn recheck(&mut self, state: &State, out: &mut Vec<Output<D>>) {
        for id in self.subscribers.keys() {
            let Some(subscriber) = self.subscribers.get(&id) else { continue };
            let Some(caller) = &subscriber.caller else { continue };
            if caller.check_topics(state, &subscriber.topics).is_ok() {
                continue;
            }
            if subscriber.must_end() {
                out.push(Output::Close(subscriber.sink.clone()));
            }
            if subscriber.watches() {
                out.push(Output::Event(subscriber.sink.clone(), SessionEvent::LostTrack));
            }
            self.keep_topics(id, &[]);
        }
    }

    /// Removes all topics of a sink except these.
    pub(crate) fn keep_topics(&mut self, id: SinkId, left: &[Topic]) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let watched = subscriber.watches();
        let gone: Vec<Topic> =
            subscriber.topics.iter().filter(|topic| !left.contains(topic)).cloned().collect();
        for topic in &gone {
            subscriber.topics.remove(topic);
        }
        if watched && !subscriber.watches() {
            self.watching = self.watching.saturating_sub(1);
        }
        for topic in &gone {
            self.remove_topic(id, topic);
        }
    }

    fn remove_topic(&mut self, id: SinkId, topic: &Topic) {
        match topic {
            Topic::Locks(scope) => self.locks.remove(&id, scope),
            Topic::Channel(name) => {
                remove(&mut Arc::make_mut(&mut self.channels).by_name, name, id);
            }
            Topic::Pattern(pattern) => {
                remove(&mut Arc::make_mut(&mut self.channels).by_pattern, pattern, id);
            }
            Topic::Znodes => {
                self.znodes.remove(&id);
            }
        }
    }

    /// Closes the sink if this ticket is taken over.
    pub(crate) fn follow(&mut self, token: Token, sink: &D::Sink) {
        self.followers.insert(token, sink.id());
        let followed = &mut self.subscriber(sink).followed;
        followed.push_back(token);
        let oldest = if followed.len() > FOLLOWED_MAX { followed.pop_front() } else { None };
        if let Some(oldest) = oldest {
            self.followers.remove(&oldest);
        }
    }

    pub(crate) fn unfollow(&mut self, token: Token, sink: SinkId) {
        if self.followers.get(&token) == Some(&sink) {
            self.followers.remove(&token);
            if let Some(subscriber) = self.subscribers.get_mut(&sink) {
                subscriber.followed.retain(|followed| *followed != token);
            }
        }
    }

    /// A sink's connection has ended.
    pub(crate) fn close(&mut self, id: SinkId) {
        self.keep_topics(id, &[]);
        let Some(subscriber) = self.subscribers.remove(&id) else { return };
        if let Some(session) = subscriber.session {
            self.unbind(session, id);
        }
        for token in subscriber.followed {
            self.followers.remove(&token);
        }
    }

    /// Sends a reply to a sink.
    pub(crate) fn reply(
        &mut self,
        sink: D::Sink,
        number: u64,
        reply: Reply,
        out: &mut Vec<Output<D>>,
    ) {
        self.answered.extend(ReportedEvent::by(&reply).map(|answered| (answered, sink.id())));
        out.push(Output::Event(sink, SessionEvent::Reply { number, reply }));
    }

    /// Sends an effect to the session it concerns, unless that session asked for it, and to
    /// subscribers. Nothing is copied if there are none.
    pub(crate) fn publish(&mut self, effect: Effect, now_ms: u64, out: &mut Vec<Output<D>>) {
        let session = match &effect {
            Effect::Granted(grant) => grant.session,
            Effect::Ended(ended) => {
                self.ended(ended, out);
                ended.session
            }
            Effect::RevocationAsked { session, .. } => *session,
            Effect::SessionEnded { session, .. } => Some(*session),
            Effect::Published { channel, message } => return self.message(channel, message, out),
            _ => None,
        };
        let reported_by = ReportedEvent::reported_by(&effect);
        let knows = |id: &&SinkId| {
            reported_by.is_some_and(|reported_by| self.answered.contains(&(reported_by, **id)))
        };
        let of_session = session.and_then(|id| self.sessions.get(&id)).filter(|id| !knows(id));
        let watching =
            if self.watching == 0 { BTreeSet::new() } else { self.locks.watchers_of(&effect) };
        let about_znodes = matches!(
            effect,
            Effect::NodeChanged { .. }
                | Effect::SessionAttached { .. }
                | Effect::SessionEnded { .. }
        );
        let of_znodes = self.znodes.iter().filter(|_| about_znodes);
        if of_session.is_none() && watching.is_empty() && of_znodes.clone().next().is_none() {
            return;
        }
        let effect = Arc::new(effect);
        for id in of_session.into_iter().chain(&watching).chain(of_znodes) {
            if let Some(subscriber) = self.subscribers.get(id) {
                let event = SessionEvent::Effect { effect: effect.clone(), now_ms };
                out.push(Output::Event(subscriber.sink.clone(), event));
            }
        }
    }

    fn message(&mut self, channel: &Channel, message: &Message, out: &mut Vec<Output<D>>) {
        if self.channels.is_empty() {
            return;
        }
        let sinks: BTreeSet<SinkId> =
            self.channels.matching(channel.as_bytes()).flatten().copied().collect();
        if sinks.is_empty() {
            return;
        }
        let (published, before) = Published::new(channel, message, &self.unread_bytes);
        if before > UNREAD_BYTES_MAX {
            self.close_the_slowest(out);
        }
        let published = Arc::new(published);
        for id in sinks {
            if let Some(subscriber) = self.subscribers.get(&id) {
                let event = SessionEvent::Published(published.clone());
                out.push(Output::Event(subscriber.sink.clone(), event));
            }
        }
    }

    /// Closes the sinks that have more than their share of unread messages.
    fn close_the_slowest(&self, out: &mut Vec<Output<D>>) {
        let subscribed = self.channels.by_name.values().chain(self.channels.by_pattern.values());
        let sinks: BTreeSet<SinkId> = subscribed.flatten().copied().collect();
        let share = UNREAD_BYTES_MAX.checked_div(sinks.len()).unwrap_or(0);
        for id in sinks {
            if let Some(subscriber) = self.subscribers.get(&id) {
                out.push(Output::CloseIfAbove(subscriber.sink.clone(), share));
            }
        }
    }

    /// A ticket has ended. If another connection has taken it over in its holder's name, the
    /// connection that holds it must be closed: its client would never know otherwise.
    fn ended(&mut self, ended: &Ended, out: &mut Vec<Output<D>>) {
        let Some(sink) = self.followers.remove(&ended.token) else { return };
        let Some(subscriber) = self.subscribers.get_mut(&sink) else { return };
        subscriber.followed.retain(|followed| *followed != ended.token);
        let by_holder = ended.forced.as_ref().is_some_and(|f| Some(&f.by) == ended.label.as_ref());
        if ended.how == EndReason::Forced && by_holder {
            out.push(Output::Close(subscriber.sink.clone()));
        }
    }

    /// All effects of an entry have been published.
    pub(crate) fn entry_done(&mut self) {
        self.answered.clear();
    }

    /// Events were missed, and nobody knows which.
    pub(crate) fn lost_track(&mut self, out: &mut Vec<Output<D>>) {
        for id in self.subscribers.keys() {
            let Some(subscriber) = self.subscribers.get_mut(&id) else { continue };
            if subscriber.must_end() {
                out.push(Output::Close(subscriber.sink.clone()));
            }
            if subscriber.session.is_some() || subscriber.watches() {
                out.push(Output::Event(subscriber.sink.clone(), SessionEvent::LostTrack));
            }
            if let Some(session) = subscriber.session.take() {
                self.unbind(session, id);
            }
        }
    }
}
