//! One client's connection, as a pure state machine without a socket.
//!
//! The driver passes in what the socket received ([`Connection::receive`]) and the [`Message`]s of
//! the loop: finished tasks, notices from [`Clients`](crate::Clients) and replies to heartbeats. It
//! performs the [`Action`]s in order. Messages for one client must reach its connection in the
//! order in which the gateway emitted them: otherwise a client could see a change before it is
//! notified of it.
//!
//! Every request is a heartbeat of its session. A ping is answered once the cluster has
//! acknowledged it, and a connection whose heartbeats stay unacknowledged for a third of the
//! session's timeout is closed, because its client must not rely on a session that may be over.
//! Other requests are answered without waiting for a heartbeat, so the last acknowledged one may be
//! older than the request. To cover that, the cluster keeps a session for longer than its timeout.

use crate::auth;
use crate::clients::{ClientId, Notice};
use crate::code::Code;
use crate::codec::{
    AuthPacket, Connect, Connected, Decoder, First, Reader, Reply, ReplyBody, Request,
    RequestHeader, xid,
};
use crate::four_letter::FourLetterWord;
use crate::task::{AttachedSession, ClientTask, QueuedRequest, TaskOutcome};
use holdfast_core::{AuthId, Door, Label, Secret, SessionRef, UserName};
use holdfast_gateway::Caller;
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Outstanding requests of one client. Further ones stay in its socket.
const OUTSTANDING_MAX: usize = 1_000;

/// Bytes of a client's queued requests: room for the largest request, or many of the usual size.
const OUTSTANDING_BYTES_MAX: usize = 1 << 20;

/// A heartbeat must be acknowledged within this fraction of the session's timeout: a third.
const ACKNOWLEDGED_WITHIN: u32 = 3;

/// A busy client's heartbeats are this fraction of the session's timeout apart: an eighth.
const HEARTBEAT_EVERY: u32 = 8;

/// Who the users of the server are. A check may take tens of milliseconds.
pub trait Users: fmt::Debug + Send + Sync {
    /// Whether clients must log in before they may do anything else.
    fn are_required(&self) -> bool;

    /// Checks a password that a client at `address` sent.
    fn check(&self, user: &str, password: &[u8], address: IpAddr) -> LoginCheck;
}

/// What a user's name and password are worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginCheck {
    /// The password is right.
    Right(UserName),
    /// It is not.
    Wrong,
    /// The server has no such user: the name is only an identity for access control lists.
    Unknown,
}

/// Nobody has to log in.
#[derive(Debug)]
struct Nobody;

impl Users for Nobody {
    fn are_required(&self) -> bool {
        false
    }

    fn check(&self, _: &str, _: &[u8], _: IpAddr) -> LoginCheck {
        LoginCheck::Unknown
    }
}

/// Limits of session timeouts, and who may log in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The shortest timeout of a session.
    pub timeout_min: Duration,
    /// The longest.
    pub timeout_max: Duration,
    /// The users of the server.
    pub users: Arc<dyn Users>,
}

impl Default for Settings {
    /// The minimum is shorter than ZooKeeper's, so that a lock is free sooner after its holder's
    /// death.
    fn default() -> Self {
        let (timeout_min, timeout_max) = (Duration::from_secs(1), Duration::from_secs(120));
        Self { timeout_min, timeout_max, users: Arc::new(Nobody) }
    }
}

/// Something that the driver must do.
#[derive(Debug)]
pub enum Action {
    /// Write this to the socket.
    Send(Vec<u8>),
    /// Run a task, and pass it back to [`Connection::finished`].
    Start(Box<ClientTask>),
    /// Send a heartbeat of this session to the cluster, and pass the reply to
    /// [`Connection::heartbeat_reply`].
    Heartbeat(SessionRef),
    /// Answer a four-letter word, and close the connection.
    Answer(FourLetterWord),
    /// Close the connection once everything is written.
    Close,
}

/// The cluster's reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// The session is alive.
    Alive,
    /// The session has ended.
    Ended,
    /// The cluster could not be asked, or did not reply.
    Unknown,
}

/// A message from the loop to a connection.
#[derive(Debug)]
pub enum Message {
    /// Notify the client, or close the connection.
    Notice(Notice),
    /// The connection's task is done.
    Finished(Box<ClientTask>),
    /// The cluster has replied to the heartbeat.
    HeartbeatReply(HeartbeatReply),
}

#[derive(Debug)]
enum Phase {
    /// No request has arrived yet.
    New,
    /// A session is being opened or attached.
    Connecting,
    /// The client has a session.
    Open(AttachedSession),
    /// Nothing more is read.
    Closed,
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    client: ClientId,
    /// Who the client is, as far as it has logged in.
    caller: Caller,
    settings: Settings,
    /// The password of a new session.
    secret: Secret,
    label: Option<Label>,
    /// The client's address, as an identity for access control lists.
    address: AuthId,
    ids: Arc<[AuthId]>,
    decoder: Decoder,
    phase: Phase,
    queue: VecDeque<QueuedRequest>,
    /// The number of requests in the running task, if there is one.
    running: Option<usize>,
    /// The size of the requests in the queue.
    queued_bytes: usize,
    /// Requests received so far, including the connect request.
    received: u64,
    /// Whether the client asked for a new session.
    opens: bool,
    /// That session, once it is open.
    opened: Option<SessionRef>,
    /// Whether the client has asked to close its session, so that its end is expected.
    closing: bool,
    heartbeats: Heartbeats,
    /// When the client last sent anything.
    heard: Duration,
    /// The zxid of the newest state that the client has been shown. Replies that show no state, such
    /// as those to pings, have this zxid and never a newer one: a client that has come back is told
    /// what it missed only when it restores its watches. If it took a newer zxid from a ping before
    /// that, and the connection broke, its next `setWatches` would claim that it knows of changes
    /// that it was never told of.
    shown_zxid: u64,
}

#[derive(Debug, Default)]
struct Heartbeats {
    /// Whether a heartbeat is in flight.
    in_flight: bool,
    last_sent: Option<Duration>,
    /// When the oldest heartbeat since the last acknowledged one was sent. `None` if there is none.
    unacknowledged_since: Option<Duration>,
    /// Pings to answer when the heartbeat in flight is acknowledged.
    pings: usize,
    /// Pings that arrived after it was sent, and need another heartbeat.
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
    /// A new connection. `secret` is random, and becomes the password of a session that it opens.
    pub fn new(client: ClientId, peer: IpAddr, settings: Settings, secret: Secret) -> Self {
        let address = auth::of_address(peer);
        Self {
            client,
            caller: Caller::new(Door::ZooKeeper, Some(peer.to_canonical())),
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
            shown_zxid: 0,
        }
    }

    /// The client's certificate names this user of the server.
    pub fn certified(&mut self, user: UserName) {
        self.caller = self.caller.clone().authenticated(user);
    }

    /// The client's id.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The session and its timeout. `None` until the client has one, and after the end.
    pub fn session(&self) -> Option<(SessionRef, Duration)> {
        match &self.phase {
            Phase::Open(speaker) => {
                Some((speaker.session, Duration::from_millis(speaker.timeout_ms)))
            }
            Phase::New | Phase::Connecting | Phase::Closed => None,
        }
    }

    /// A session that this connection has opened and whose client has not authenticated. It should
    /// end with the connection, since nobody can use it.
    pub fn unproven_session(&self) -> Option<SessionRef> {
        self.opened.filter(|_| !self.has_proven())
    }

    /// How many requests are outstanding.
    pub fn outstanding(&self) -> usize {
        self.queue.len() + self.running.unwrap_or(0)
    }

    /// Requests received so far, including the connect request.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the client has a session, and has proven the required identity if there is one.
    pub fn is_authenticated(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) && self.has_proven()
    }

    fn has_proven(&self) -> bool {
        self.caller.user().is_some() || !self.settings.users.are_required()
    }

    fn has_room(&self) -> bool {
        self.outstanding() < OUTSTANDING_MAX && self.queued_bytes < OUTSTANDING_BYTES_MAX
    }

    /// Whether bytes should be read from the socket.
    pub fn wants_bytes(&self) -> bool {
        match self.phase {
            Phase::New => true,
            // What follows the connect request waits for its reply.
            Phase::Connecting => self.decoder.kept_bytes() < OUTSTANDING_BYTES_MAX,
            Phase::Open(_) => self.has_room(),
            Phase::Closed => false,
        }
    }

    /// Whether part of a request has arrived and the rest has not.
    pub fn is_within_request(&self) -> bool {
        let reads = matches!(self.phase, Phase::New | Phase::Open(_));
        reads && self.wants_bytes() && self.decoder.kept_bytes() > 0
    }

    /// Bytes buffered for incomplete requests and for those in the queue.
    pub fn kept_bytes(&self) -> usize {
        self.decoder.kept_bytes().saturating_add(self.queued_bytes)
    }

    /// Handles bytes from the socket.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Vec<Action> {
        self.decoder.push(bytes);
        self.heard = now;
        let mut actions = Vec::new();
        self.read_on(now, &mut actions);
        self.start(&mut actions);
        actions
    }

    /// Parses as many requests as may be outstanding.
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
        self.shown_zxid = u64::try_from(connect.last_zxid).unwrap_or(0);
        let task = if self.opens {
            let wish = Duration::from_millis(u64::try_from(connect.timeout_ms).unwrap_or(0));
            let timeout = wish.clamp(self.settings.timeout_min, self.settings.timeout_max);
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            let (secret, label) = (self.secret, self.label.take());
            let caller = self.caller.clone();
            Some(ClientTask::open(client, caller, timeout_ms, secret, label, read_only))
        } else {
            ClientTask::attach(client, self.caller.clone(), connect)
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
        Action::Send(Reply { xid, zxid: self.shown_zxid.cast_signed(), result }.encode())
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
            // It is answered when its heartbeat is acknowledged.
            Ok(Request::Ping) => {}
            Ok(Request::Auth(packet)) => {
                let mut ids = self.ids.to_vec();
                let known = self.log_in(&packet)
                    && auth::proven(&packet, &self.address)
                        .is_some_and(|id| auth::add(&mut ids, id));
                let result = if known { Ok(ReplyBody::Empty) } else { Err(Code::AuthFailed) };
                actions.push(Action::Send(Reply { xid: xid::AUTH, zxid: 0, result }.encode()));
                if known {
                    self.ids = ids.into();
                } else {
                    self.close(actions);
                }
            }
            // Nothing can be outstanding, so this reply can't overtake another.
            _ if !ends && !self.has_proven() => {
                actions.push(self.reply(xid, Err(Code::NoAuth)));
            }
            Ok(Request::Unknown) => {
                actions.push(self.reply(xid, Err(Code::Unimplemented)));
                self.close(actions);
            }
            // Malformed requests are queued too: their replies must not overtake others.
            request => {
                self.queued_bytes = self.queued_bytes.saturating_add(bytes);
                self.queue.push_back(QueuedRequest { xid, request, ids: self.ids.clone(), bytes });
            }
        }
    }

    /// Logs in with the scheme `digest`, whose name may also be that of no user of the server.
    /// Returns whether the identity may be added.
    fn log_in(&mut self, packet: &AuthPacket) -> bool {
        let Some((user, password)) = auth::user_and_password(packet) else { return true };
        let Some(address) = self.caller.address() else { return true };
        match self.settings.users.check(user, password, address) {
            LoginCheck::Right(user) => {
                self.caller = self.caller.clone().authenticated(user);
                true
            }
            LoginCheck::Wrong => false,
            LoginCheck::Unknown => true,
        }
    }

    /// Starts the requests that can be done together, if no task is running.
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
        let task = ClientTask::requests(self.client, self.caller.clone(), speaker, asked);
        actions.push(Action::Start(Box::new(task)));
    }

    /// Handles a message from the loop.
    pub fn message(&mut self, message: Message, now: Duration) -> Vec<Action> {
        match message {
            Message::Notice(notice) => self.notice(notice),
            Message::Finished(task) => self.finished(*task, now),
            Message::HeartbeatReply(reply) => self.heartbeat_reply(reply, now),
        }
    }

    /// Handles a finished task.
    pub fn finished(&mut self, mut task: ClientTask, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.wants_bytes() {
            // Nothing that the client has sent in the meantime was read.
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
                // The log entry is not a heartbeat: without one, a session attached just before its
                // end would expire.
                self.heartbeats.send(0, now);
                actions.push(Action::Heartbeat(speaker.session));
            }
            Some(TaskOutcome::Expired(connected)) => {
                actions.push(Action::Send(connected.encode()));
                self.close(&mut actions);
            }
            Some(TaskOutcome::Replied { frames, close, rest }) => {
                self.shown_zxid = self.shown_zxid.max(task.zxid);
                actions.extend(frames.into_iter().map(Action::Send));
                for asked in rest.into_iter().rev() {
                    self.queued_bytes = self.queued_bytes.saturating_add(asked.bytes);
                    self.queue.push_front(asked);
                }
                if close {
                    self.close(&mut actions);
                }
            }
            // The client reconnects, and finds out what happened to its requests.
            Some(TaskOutcome::Behind | TaskOutcome::Moved | TaskOutcome::Failed(_)) | None => {
                self.close(&mut actions);
            }
        }
        self.read_on(now, &mut actions);
        self.start(&mut actions);
        actions
    }

    /// Forwards an event to the client, or closes the connection if its session has ended or moved.
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

    /// Every request is a heartbeat, even before the client has authenticated: it is disconnected if
    /// it does not do so in time, and its session then ends.
    fn heartbeat(
        &mut self,
        speaker: &AttachedSession,
        header: RequestHeader,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
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

    /// Handles the cluster's reply to the heartbeat in flight.
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
            // The connection closes after the reply to `closeSession`, which has yet to come.
            HeartbeatReply::Ended if self.closing => {}
            HeartbeatReply::Ended => self.close(&mut actions),
            // It is sent again a little later; until then its pings stay unanswered.
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

    /// When the next heartbeat is due: again after one that failed, or for a request that came too
    /// soon after the last one to have its own. `None` if none is due.
    fn heartbeat_due(&self, speaker: &AttachedSession) -> Option<Duration> {
        let beats = &self.heartbeats;
        let last_sent = beats.last_sent?;
        let due = beats.unacknowledged_since.is_some() || last_sent < self.heard;
        Some(last_sent.saturating_add(every(speaker))).filter(|_| due && !beats.in_flight)
    }

    /// When the connection must be closed: because its heartbeats are not acknowledged, or because
    /// its client has been silent for the whole timeout.
    fn close_due(&self, speaker: &AttachedSession) -> Duration {
        let timeout = Duration::from_millis(speaker.timeout_ms);
        let within = timeout / ACKNOWLEDGED_WITHIN;
        let unacknowledged = self.heartbeats.unacknowledged_since;
        let heard_due =
            if self.wants_bytes() { self.heard.saturating_add(timeout) } else { Duration::MAX };
        unacknowledged.map_or(heard_due, |since| since.saturating_add(within).min(heard_due))
    }

    /// When to call [`Connection::tick`] at the latest. `None` if there is no session.
    pub fn next_due(&self) -> Option<Duration> {
        let Phase::Open(speaker) = &self.phase else { return None };
        let close = self.close_due(speaker);
        Some(self.heartbeat_due(speaker).map_or(close, |heartbeat| heartbeat.min(close)))
    }

    /// Does what is due by `now`.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        let Phase::Open(speaker) = self.phase else { return actions };
        if self.close_due(&speaker) <= now {
            self.close(&mut actions);
        } else if self.heartbeat_due(&speaker).is_some_and(|due| due <= now) {
            let pings = std::mem::take(&mut self.heartbeats.later_pings);
            self.heartbeats.send(pings, now);
            actions.push(Action::Heartbeat(speaker.session));
        }
        actions
    }
}

/// The time between heartbeats of a busy client.
fn every(speaker: &AttachedSession) -> Duration {
    Duration::from_millis(speaker.timeout_ms) / HEARTBEAT_EVERY
}
