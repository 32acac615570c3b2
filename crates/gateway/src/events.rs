//! Who receives what: sessions' sinks, and the topics that sinks are subscribed to.

use crate::glob;
use crate::index::Index;
use crate::io::{Driver, Output, Published, SessionEvent, Sink, SinkId};
use bytes::Bytes;
use holdfast_core::{
    Answer, Channel, Effect, EndReason, Ended, Message, Scope, SessionId, TicketStatus, Token,
    Watches,
};
use holdfast_node::Reply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Sinks of one node that watch locks. A slow one keeps some 30 KB of pointers, and what they point
/// to: all of them together stay near 300 MB.
const WATCHES_MAX: usize = 10_000;

/// Bytes of all messages that wait for anybody: each is kept once, however many it waits for.
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// Tickets that one sink follows. One that takes more locks and gives none back hears nothing of the
/// oldest.
const FOLLOWED_MAX: usize = 1_024;

/// What a sink can be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// What happens to some locks.
    Locks(Scope),
    /// What is published on a channel.
    Channel(Bytes),
    /// What is published on the channels whose names match a pattern: see [`glob::matches`].
    Pattern(Bytes),
    /// What happens to znodes, and to sessions: for a door that keeps watches itself, and sets each in
    /// the same step as the read that asks for it.
    Znodes,
}

/// Who listens to which channels.
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

    /// How many subscriptions a message would reach: one for the channel, one for each pattern.
    pub fn subscribers(&self, channel: &[u8]) -> usize {
        self.matching(channel).map(BTreeSet::len).sum()
    }

    /// The channels that are subscribed to by name, with the number of sinks.
    pub fn names(&self) -> Vec<(Bytes, usize)> {
        self.by_name.iter().map(|(channel, sinks)| (channel.clone(), sinks.len())).collect()
    }

    /// How many patterns are subscribed to.
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
    followed: VecDeque<Token>,
}

impl<S> Subscriber<S> {
    fn watches(&self) -> bool {
        self.topics.iter().any(|topic| matches!(topic, Topic::Locks(_)))
    }

    /// Whether its client can't be told that something was missed: it must notice by the end of its
    /// connection.
    fn must_end(&self) -> bool {
        !self.followed.is_empty()
            || self.topics.iter().any(|topic| !matches!(topic, Topic::Locks(_)))
    }
}

/// The sinks of one node, and what each receives.
pub(crate) struct Events<D: Driver> {
    subscribers: Index<SinkId, Subscriber<D::Sink>>,
    sessions: Index<SessionId, SinkId>,
    locks: Watches<SinkId>,
    watching: usize,
    znodes: BTreeSet<SinkId>,
    followers: Index<Token, SinkId>,
    pub(crate) channels: Arc<Channels>,
    unread_bytes: Arc<AtomicUsize>,
    /// What has just been answered to which sink: it needs no event of the same.
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

/// What an answer has told a session: just this event of the ticket, not what happens to it next.
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

    /// The answer that says as much as this effect does.
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
            let new = Subscriber { sink: sink.clone(), session: None, topics, followed };
            self.subscribers.insert(id, new);
        }
        #[expect(clippy::unwrap_used, reason = "it was put there just now")]
        self.subscribers.get_mut(&id).unwrap()
    }

    /// A session's events go to this sink. An older one of the same session receives nothing any
    /// more, and would believe that nothing happens: it is told.
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

    /// Gives a sink these topics in place of those that it had; false if there is no room for them.
    pub(crate) fn subscribe(&mut self, sink: &D::Sink, topics: Vec<Topic>) -> bool {
        let id = sink.id();
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

    /// Leaves a sink only these of its topics.
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

    /// A sink is closed when this ticket is taken over.
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

    /// A reply goes to a sink.
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

    /// Something happened: the session that it concerns receives it, unless it asked for it, and so
    /// do the subscribers. Nothing is copied if nobody receives it.
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

    /// Lets those go for which more waits than their share.
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
    /// connection that holds it must end: its client would never know otherwise.
    fn ended(&mut self, ended: &Ended, out: &mut Vec<Output<D>>) {
        let Some(sink) = self.followers.remove(&ended.token) else { return };
        let Some(subscriber) = self.subscribers.get_mut(&sink) else { return };
        subscriber.followed.retain(|followed| *followed != ended.token);
        let by_holder = ended.forced.as_ref().is_some_and(|f| Some(&f.by) == ended.label.as_ref());
        if ended.how == EndReason::Forced && by_holder {
            out.push(Output::Close(subscriber.sink.clone()));
        }
    }

    /// All effects of an entry were published.
    pub(crate) fn entry_done(&mut self) {
        self.answered.clear();
    }

    /// Nobody knows what happened meanwhile.
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
