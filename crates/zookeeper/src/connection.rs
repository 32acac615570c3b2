//! One client's connection: pure, and the same with or without a socket.
//!
//! The driver hands in what came from the socket ([`Connection::receive`]) and the [`Message`]s of the
//! loop: tasks that are finished, notices of [`Clients`](crate::Clients) and answers to heartbeats. It
//! does what the [`Action`]s say, in their order. Messages for one client must reach its connection in
//! the order in which the gateway put them out: that a client hears of a change before it
//! sees it hangs on that.
//!
//! Every request is a heartbeat of its session. A ping is answered when the cluster has acknowledged
//! it, and a connection whose heartbeats are not acknowledged in a third of the session's timeout is
//! closed: its client must not believe in a session that may be over. Other requests are answered at
//! once, although the last acknowledged heartbeat may be older than they are; so the cluster keeps a
//! session for longer than its timeout, by more than that can be.

use crate::auth;
pub use crate::auth::password_id;
use crate::clients::{ClientId, Notice};
use crate::code::Code;
use crate::codec::{
    Connect, Connected, Decoder, First, Reader, Reply, ReplyBody, Request, RequestHeader, xid,
};
use crate::four_letter::FourLetterWord;
use crate::task::{AttachedSession, ClientTask, QueuedRequest, TaskOutcome};
use holdfast_core::{AuthId, Label, Secret, SessionRef};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Requests of one client that are not answered. Further ones stay in its socket.
const OUTSTANDING_MAX: usize = 1_000;

/// Bytes of them: the largest request, and many of the usual size.
const OUTSTANDING_BYTES_MAX: usize = 1 << 20;

/// What of a session's timeout may pass until a heartbeat is acknowledged.
const ACKNOWLEDGED_WITHIN: u32 = 3;

/// What of a session's timeout may pass between the heartbeats of a busy client.
const HEARTBEAT_EVERY: u32 = 8;

/// How sessions may be, and who may use them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The shortest timeout of a session.
    pub timeout_min: Duration,
    /// The longest.
    pub timeout_max: Duration,
    /// What a client must prove before it may do anything else: see [`password_id`]. `None` lets
    /// everybody in.
    pub required: Option<AuthId>,
}

impl Default for Settings {
    /// Shorter than ZooKeeper allows by default: a lock is free sooner after its holder's death.
    fn default() -> Self {
        let (timeout_min, timeout_max) = (Duration::from_secs(1), Duration::from_secs(120));
        Self { timeout_min, timeout_max, required: None }
    }
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Action {
    /// To write this to the socket.
    Send(Vec<u8>),
    /// To run a task, and hand it back to [`Connection::finished`].
    Start(Box<ClientTask>),
    /// To tell the cluster that a session lives, and what it says to [`Connection::heartbeat_reply`].
    Heartbeat(SessionRef),
    /// To answer a four-letter word, and close the connection.
    Answer(FourLetterWord),
    /// To close the connection once all is written.
    Close,
}

/// What the cluster says to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// The session lives.
    Alive,
    /// It does not.
    Ended,
    /// Nobody knows.
    Unknown,
}

/// What the loop has for a connection.
#[derive(Debug)]
pub enum Message {
    /// Its client must be told, or its connection must end.
    Notice(Notice),
    /// Its task is done.
    Finished(Box<ClientTask>),
    /// The cluster has replied to its heartbeat.
    HeartbeatReply(HeartbeatReply),
}

#[derive(Debug)]
enum Phase {
    /// Nothing has come yet.
    New,
    /// A session is being opened, or taken over.
    Connecting,
    /// It has a session.
    Open(AttachedSession),
    /// Nothing more is read.
    Closed,
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    client: ClientId,
    settings: Settings,
    /// The password of a new session.
    secret: Secret,
    label: Option<Label>,
    /// Where the client is, as access control lists know it.
    address: AuthId,
    ids: Arc<[AuthId]>,
    decoder: Decoder,
    phase: Phase,
    queue: VecDeque<QueuedRequest>,
    /// How many requests a task has that is on its way.
    running: Option<usize>,
    /// Bytes of the requests in the queue.
    queued_bytes: usize,
    /// Requests so far, the connect request among them.
    received: u64,
    /// Whether it opens a new session, and which that is.
    opens: bool,
    opened: Option<SessionRef>,
    /// Whether the client has asked to close its session: that it has ended is no news then.
    closing: bool,
    heartbeats: Heartbeats,
    /// When the client was last heard of.
    heard: Duration,
    zxid: u64,
}

#[derive(Debug, Default)]
struct Heartbeats {
    /// Whether one is on its way.
    in_flight: bool,
    last_sent: Option<Duration>,
    /// When the first was sent of those that came to nothing, if the last one did or is on its way.
    unacknowledged_since: Option<Duration>,
    /// Pings that it will answer.
    pings: usize,
    /// Pings that came after it: they need another.
    later_pings: usize,
}

impl Heartbeats {
    fn send(&mut self, pings: usize, now: Duration) {
        self.in_flight = true;
        self.last_sent = Some(now);
        self.unacknowledged_since = self.unacknowledged_since.or(Some(now));
        self.pings = pings;
    }
}

impl Connection {
    /// A new connection. `secret` is random, and proves the session that it may open.
    pub fn new(client: ClientId, peer: IpAddr, settings: Settings, secret: Secret) -> Self {
        let address = auth::of_address(peer);
        Self {
            client,
            settings,
            secret,
            label: Label::parse(format!("ZooKeeper client {}", peer.to_canonical())).ok(),
            ids: Arc::from([address.clone()]),
            address,
            decoder: Decoder::default(),
            phase: Phase::New,
            queue: VecDeque::new(),
            running: None,
            queued_bytes: 0,
            received: 0,
            opens: false,
            opened: None,
            closing: false,
            heartbeats: Heartbeats::default(),
            heard: Duration::ZERO,
            zxid: 0,
        }
    }

    /// Which client it is.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The session and its timeout, once it has one.
    pub fn session(&self) -> Option<(SessionRef, Duration)> {
        match &self.phase {
            Phase::Open(speaker) => {
                Some((speaker.session, Duration::from_millis(speaker.timeout_ms)))
            }
            Phase::New | Phase::Connecting | Phase::Closed => None,
        }
    }

    /// A session that this connection has opened, and whose client has not proven what it must. It
    /// should end with the connection: nobody can use it.
    pub fn unproven_session(&self) -> Option<SessionRef> {
        self.opened.filter(|_| !self.has_proven())
    }

    /// Requests that are not answered.
    pub fn outstanding(&self) -> usize {
        self.queue.len() + self.running.unwrap_or(0)
    }

    /// Requests so far, the connect request among them.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether it has a session and has proven what it must.
    pub fn is_authenticated(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) && self.has_proven()
    }

    fn has_proven(&self) -> bool {
        self.settings.required.as_ref().is_none_or(|required| self.ids.contains(required))
    }

    fn has_room(&self) -> bool {
        self.outstanding() < OUTSTANDING_MAX && self.queued_bytes < OUTSTANDING_BYTES_MAX
    }

    /// Whether bytes should be read from the socket.
    pub fn wants_bytes(&self) -> bool {
        match self.phase {
            Phase::New => true,
            // What comes behind the connect request waits for its reply.
            Phase::Connecting => self.decoder.kept_bytes() < OUTSTANDING_BYTES_MAX,
            Phase::Open(_) => self.has_room(),
            Phase::Closed => false,
        }
    }

    /// Whether a part of a request has come, and the rest is missing.
    pub fn is_within_request(&self) -> bool {
        let reads = matches!(self.phase, Phase::New | Phase::Open(_));
        reads && self.wants_bytes() && self.decoder.kept_bytes() > 0
    }

    /// Bytes that are kept of requests that are not whole, or not answered.
    pub fn kept_bytes(&self) -> usize {
        self.decoder.kept_bytes().saturating_add(self.queued_bytes)
    }

    /// Bytes came from the socket.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Vec<Action> {
        self.decoder.push(bytes);
        self.heard = now;
        let mut actions = Vec::new();
        self.read_on(now, &mut actions);
        self.start(&mut actions);
        actions
    }

    /// Reads as many requests as may be outstanding.
    fn read_on(&mut self, now: Duration, actions: &mut Vec<Action>) {
        loop {
            match self.phase {
                Phase::New => match self.decoder.first() {
                    Ok(None) => return,
                    Ok(Some(First::Connect(connect))) => {
                        self.received += 1;
                        self.connect(connect, actions);
                    }
                    Ok(Some(First::FourLetterWord(word))) => {
                        self.phase = Phase::Closed;
                        actions.push(Action::Answer(word));
                    }
                    Err(_) => self.close(actions),
                },
                Phase::Open(speaker) => {
                    if !self.has_room() {
                        return;
                    }
                    match self.decoder.frame() {
                        Ok(None) => return,
                        Ok(Some(frame)) => {
                            self.received += 1;
                            let bytes = frame.len();
                            let mut reader = Reader::new(frame);
                            let request = RequestHeader::decode(&mut reader)
                                .map(|header| (header, Request::decode(header.op, &mut reader)));
                            match request {
                                Ok((header, request)) => {
                                    self.request(header, request, bytes, actions);
                                    self.heartbeat(&speaker, header, now, actions);
                                }
                                Err(_) => self.close(actions),
                            }
                        }
                        Err(_) => self.close(actions),
                    }
                }
                Phase::Connecting | Phase::Closed => return,
            }
        }
    }

    fn close(&mut self, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Closed) {
            self.phase = Phase::Closed;
            self.queue.clear();
            self.queued_bytes = 0;
            actions.push(Action::Close);
        }
    }

    fn connect(&mut self, connect: Connect, actions: &mut Vec<Action>) {
        let (client, read_only) = (self.client, connect.read_only.map(|_| false));
        self.opens = connect.session == 0;
        let task = if self.opens {
            let wish = Duration::from_millis(u64::try_from(connect.timeout_ms).unwrap_or(0));
            let timeout = wish.clamp(self.settings.timeout_min, self.settings.timeout_max);
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            let (secret, label) = (self.secret, self.label.take());
            Some(ClientTask::open(client, timeout_ms, secret, label, read_only))
        } else {
            ClientTask::attach(client, connect)
        };
        match task {
            Some(task) => {
                self.phase = Phase::Connecting;
                actions.push(Action::Start(Box::new(task)));
            }
            None => {
                actions.push(Action::Send(Connected::expired(read_only).encode()));
                self.close(actions);
            }
        }
    }

    fn reply(&self, xid: i32, result: Result<ReplyBody, Code>) -> Action {
        Action::Send(Reply { xid, zxid: self.zxid.cast_signed(), result }.encode())
    }

    fn request(
        &mut self,
        header: RequestHeader,
        request: Result<Request, crate::codec::Malformed>,
        bytes: usize,
        actions: &mut Vec<Action>,
    ) {
        let xid = header.xid;
        let ends = request == Ok(Request::CloseSession);
        match request {
            // Its answer is the heartbeat's.
            Ok(Request::Ping) => {}
            Ok(Request::Auth(packet)) => {
                let mut ids = self.ids.to_vec();
                let required = self.settings.required.as_ref();
                let known = auth::proven(&packet, &self.address)
                    .filter(|id| auth::is_not_a_wrong_password(id, required))
                    .is_some_and(|id| auth::add(&mut ids, id));
                let result = if known { Ok(ReplyBody::Empty) } else { Err(Code::AuthFailed) };
                actions.push(Action::Send(Reply { xid: xid::AUTH, zxid: 0, result }.encode()));
                if known {
                    self.ids = ids.into();
                } else {
                    self.close(actions);
                }
            }
            // Nothing can be outstanding, so this is in order.
            _ if !ends && !self.has_proven() => {
                actions.push(self.reply(xid, Err(Code::NoAuth)));
            }
            Ok(Request::Unknown) => {
                actions.push(self.reply(xid, Err(Code::Unimplemented)));
                self.close(actions);
            }
            // Also one that can't be read: its reply must not overtake others.
            request => {
                self.queued_bytes = self.queued_bytes.saturating_add(bytes);
                self.queue.push_back(QueuedRequest { xid, request, ids: self.ids.clone(), bytes });
            }
        }
    }

    /// Starts what can be done at one moment, if nothing is on its way.
    fn start(&mut self, actions: &mut Vec<Action>) {
        let Phase::Open(speaker) = self.phase else { return };
        if self.running.is_some() || self.queue.is_empty() {
            return;
        }
        let mut asked: Vec<QueuedRequest> = self.queue.pop_front().into_iter().collect();
        while let Some(next) = self.queue.pop_front_if(|next| !next.takes_steps()) {
            asked.push(next);
        }
        let bytes: usize = asked.iter().map(|asked| asked.bytes).sum();
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.closing |= asked.iter().any(|asked| asked.request == Ok(Request::CloseSession));
        self.running = Some(asked.len());
        let task = ClientTask::requests(self.client, speaker, asked);
        actions.push(Action::Start(Box::new(task)));
    }

    /// Something came from the loop.
    pub fn message(&mut self, message: Message, now: Duration) -> Vec<Action> {
        match message {
            Message::Notice(notice) => self.notice(notice),
            Message::Finished(task) => self.finished(*task, now),
            Message::HeartbeatReply(reply) => self.heartbeat_reply(reply, now),
        }
    }

    /// A task is done.
    pub fn finished(&mut self, mut task: ClientTask, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.zxid = self.zxid.max(task.zxid);
        if !self.wants_bytes() {
            // Whatever its client has sent meanwhile was not read.
            self.heard = now;
        }
        self.running = None;
        let outcome = task.outcome.take();
        match outcome {
            _ if matches!(self.phase, Phase::Closed) => {}
            Some(TaskOutcome::Connected(speaker, connected)) => {
                self.phase = Phase::Open(speaker);
                self.opened = Some(speaker.session).filter(|_| self.opens);
                self.heard = now;
                actions.push(Action::Send(connected.encode()));
                // The log entry is no heartbeat: a session taken over just before its end would end.
                if self.has_proven() {
                    self.heartbeats.send(0, now);
                    actions.push(Action::Heartbeat(speaker.session));
                }
            }
            Some(TaskOutcome::Expired(connected)) => {
                actions.push(Action::Send(connected.encode()));
                self.close(&mut actions);
            }
            Some(TaskOutcome::Replied { frames, close, rest }) => {
                actions.extend(frames.into_iter().map(Action::Send));
                for asked in rest.into_iter().rev() {
                    self.queued_bytes = self.queued_bytes.saturating_add(asked.bytes);
                    self.queue.push_front(asked);
                }
                if close {
                    self.close(&mut actions);
                }
            }
            // The client reconnects, and finds out what became of its requests.
            Some(TaskOutcome::Behind | TaskOutcome::Moved | TaskOutcome::Failed(_)) | None => {
                self.close(&mut actions);
            }
        }
        self.read_on(now, &mut actions);
        self.start(&mut actions);
        actions
    }

    /// Something happened that the client must hear of, or that ends its connection.
    pub fn notice(&mut self, notice: Notice) -> Vec<Action> {
        let mut actions = Vec::new();
        match notice {
            _ if matches!(self.phase, Phase::Closed) => {}
            Notice::Event(event) => actions.push(Action::Send(event.encode())),
            Notice::SessionEnded if self.closing => {}
            Notice::SessionEnded | Notice::SessionMoved => self.close(&mut actions),
        }
        actions
    }

    /// Every request of a client that is let in is a heartbeat.
    fn heartbeat(
        &mut self,
        speaker: &AttachedSession,
        header: RequestHeader,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_authenticated() {
            return;
        }
        let ping = header.op == crate::codec::op::PING;
        let beats = &mut self.heartbeats;
        if beats.in_flight {
            beats.later_pings += usize::from(ping);
            return;
        }
        let due = beats.last_sent.is_none_or(|sent| now.saturating_sub(sent) >= every(speaker));
        if ping || due {
            let pings = std::mem::take(&mut beats.later_pings) + usize::from(ping);
            beats.send(pings, now);
            actions.push(Action::Heartbeat(speaker.session));
        }
    }

    /// What the cluster says to the heartbeat that was sent.
    pub fn heartbeat_reply(
        &mut self,
        heartbeat_reply: HeartbeatReply,
        now: Duration,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let Phase::Open(speaker) = self.phase else { return actions };
        let beats = &mut self.heartbeats;
        beats.in_flight = false;
        let pings = std::mem::take(&mut beats.pings);
        match heartbeat_reply {
            HeartbeatReply::Alive => {
                beats.unacknowledged_since = None;
                for _ in 0..pings {
                    actions.push(self.reply(xid::PING, Ok(ReplyBody::Empty)));
                }
            }
            // The reply to the request that ended it is on its way, and closes the connection.
            HeartbeatReply::Ended if self.closing => {}
            HeartbeatReply::Ended => self.close(&mut actions),
            // It is tried again a little later; until then the client hears nothing.
            HeartbeatReply::Unknown => {
                beats.later_pings += pings;
                return actions;
            }
        }
        let beats = &mut self.heartbeats;
        let later = std::mem::take(&mut beats.later_pings);
        if later > 0 && matches!(self.phase, Phase::Open(_)) {
            beats.send(later, now);
            actions.push(Action::Heartbeat(speaker.session));
        }
        actions
    }

    /// When a heartbeat that came to nothing is sent again.
    fn retry_due(&self, speaker: &AttachedSession) -> Option<Duration> {
        let beats = &self.heartbeats;
        let waits = !beats.in_flight && beats.unacknowledged_since.is_some();
        Some(beats.last_sent?.saturating_add(every(speaker))).filter(|_| waits)
    }

    /// When the connection must be closed: its heartbeats are not acknowledged, or its client has
    /// been silent for as long as its session may be.
    fn close_due(&self, speaker: &AttachedSession) -> Duration {
        let timeout = Duration::from_millis(speaker.timeout_ms);
        let within = timeout / ACKNOWLEDGED_WITHIN;
        let unacknowledged = self.heartbeats.unacknowledged_since;
        let heard_due =
            if self.wants_bytes() { self.heard.saturating_add(timeout) } else { Duration::MAX };
        unacknowledged.map_or(heard_due, |since| since.saturating_add(within).min(heard_due))
    }

    /// When [`Connection::tick`] has something to do at the latest.
    pub fn next_due(&self) -> Option<Duration> {
        let Phase::Open(speaker) = &self.phase else { return None };
        let close = self.close_due(speaker);
        Some(self.retry_due(speaker).map_or(close, |retry| retry.min(close)))
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        let Phase::Open(speaker) = self.phase else { return actions };
        if self.close_due(&speaker) <= now {
            self.close(&mut actions);
        } else if self.retry_due(&speaker).is_some_and(|due| due <= now) {
            let pings = std::mem::take(&mut self.heartbeats.later_pings);
            self.heartbeats.send(pings, now);
            actions.push(Action::Heartbeat(speaker.session));
        }
        actions
    }
}

/// How often a busy client's requests are told to the cluster.
fn every(speaker: &AttachedSession) -> Duration {
    Duration::from_millis(speaker.timeout_ms) / HEARTBEAT_EVERY
}
