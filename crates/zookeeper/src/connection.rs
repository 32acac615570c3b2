//! One client's connection: pure, and the same with or without a socket.
//!
//! The driver hands in what came from the socket ([`Connection::receive`]), tasks that are finished,
//! notices of [`Clients`](crate::Clients) and answers to heartbeats, all in the order in which they
//! came to it, and does what the [`Action`]s say, in their order. Tasks and notices of one client must
//! reach it in the order in which the gateway put them out: that a client hears of a change before it
//! sees it hangs on that.
//!
//! Every request is a heartbeat of its session. A ping is answered when the cluster has acknowledged
//! it, and a connection whose heartbeats are not acknowledged in a third of the session's timeout is
//! closed: its client must not believe in a session that may be over.

use crate::auth;
use crate::clients::{ClientId, Notice};
use crate::code::Code;
use crate::codec::{
    Connect, Connected, Decoder, First, Reader, Reply, ReplyBody, Request, RequestHeader, xid,
};
use crate::four_letter::Word;
use crate::task::{Asked, ClientTask, Outcome, Speaker, goes_through_log};
use holdfast_core::{AuthId, Label, Secret, SessionRef};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Requests of one client that are not answered. Further ones stay in its socket.
const OUTSTANDING_MAX: usize = 1_000;

/// What of a session's timeout may pass until a heartbeat is acknowledged.
const ACKNOWLEDGED_WITHIN: u32 = 3;

/// What of a session's timeout may pass between the heartbeats of a busy client.
const HEARTBEAT_EVERY: u32 = 8;

/// How sessions may be.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The shortest timeout of a session.
    pub timeout_min: Duration,
    /// The longest.
    pub timeout_max: Duration,
}

impl Default for Settings {
    /// Shorter than ZooKeeper allows by default: a lock is free sooner after its holder's death.
    fn default() -> Self {
        Self { timeout_min: Duration::from_secs(1), timeout_max: Duration::from_secs(120) }
    }
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Action {
    /// To write this to the socket.
    Send(Vec<u8>),
    /// To run a task, and hand it back to [`Connection::finished`].
    Start(Box<ClientTask>),
    /// To tell the cluster that a session lives, and what it says to [`Connection::beaten`].
    Heartbeat(SessionRef),
    /// To answer a four-letter word, and close the connection.
    Answer(Word),
    /// To close the connection once all is written.
    Close,
}

/// What the cluster says to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beaten {
    /// The session lives.
    Alive,
    /// It does not.
    Ended,
    /// Nobody knows.
    Unknown,
}

#[derive(Debug)]
enum Phase {
    /// Nothing has come yet.
    New,
    /// A session is being opened, or taken over.
    Connecting,
    /// It has a session.
    Open(Speaker),
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
    ids: Arc<[AuthId]>,
    decoder: Decoder,
    phase: Phase,
    queue: VecDeque<Asked>,
    /// How many requests a task has that is on its way.
    running: Option<usize>,
    /// Whether the client has asked to close its session: that it has ended is no news then.
    closing: bool,
    heartbeats: Heartbeats,
    zxid: u64,
}

#[derive(Debug, Default)]
struct Heartbeats {
    /// When the one on its way was sent.
    sent: Option<Duration>,
    last_sent: Option<Duration>,
    /// Pings that it will answer.
    pings: usize,
    /// Pings that came after it: they need another.
    later_pings: usize,
}

impl Connection {
    /// A new connection. `secret` is random, and proves the session that it may open.
    pub fn new(client: ClientId, peer: IpAddr, settings: Settings, secret: Secret) -> Self {
        Self {
            client,
            settings,
            secret,
            label: Label::parse(format!("ZooKeeper client {}", peer.to_canonical())).ok(),
            ids: Arc::from([auth::of_address(peer)]),
            decoder: Decoder::default(),
            phase: Phase::New,
            queue: VecDeque::new(),
            running: None,
            closing: false,
            heartbeats: Heartbeats::default(),
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

    /// Requests that are not answered.
    pub fn outstanding(&self) -> usize {
        self.queue.len() + self.running.unwrap_or(0)
    }

    /// Whether bytes should be read from the socket.
    pub fn wants_bytes(&self) -> bool {
        self.outstanding() < OUTSTANDING_MAX && !matches!(self.phase, Phase::Closed)
    }

    /// Bytes that are kept of a request that is not whole.
    pub fn kept_bytes(&self) -> usize {
        self.decoder.kept_bytes()
    }

    /// Bytes came from the socket.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Vec<Action> {
        self.decoder.push(bytes);
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
                    Ok(Some(First::Connect(connect))) => self.connect(connect, actions),
                    Ok(Some(First::Word(word))) => {
                        self.phase = Phase::Closed;
                        actions.push(Action::Answer(word));
                    }
                    Err(_) => self.close(actions),
                },
                Phase::Open(speaker) => {
                    if self.outstanding() >= OUTSTANDING_MAX {
                        return;
                    }
                    match self.decoder.frame() {
                        Ok(None) => return,
                        Ok(Some(frame)) => {
                            let mut reader = Reader::new(frame);
                            let request = RequestHeader::decode(&mut reader)
                                .map(|header| (header, Request::decode(header.op, &mut reader)));
                            match request {
                                Ok((header, request)) => {
                                    self.heartbeat(&speaker, header, now, actions);
                                    self.request(header, request, actions);
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
            actions.push(Action::Close);
        }
    }

    fn connect(&mut self, connect: Connect, actions: &mut Vec<Action>) {
        let (client, read_only) = (self.client, connect.read_only.map(|_| false));
        let task = if connect.session == 0 {
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
        actions: &mut Vec<Action>,
    ) {
        let xid = header.xid;
        match request {
            // Its answer is the heartbeat's.
            Ok(Request::Ping) => {}
            Ok(Request::Auth(packet)) => {
                let mut ids = self.ids.to_vec();
                let known = auth::proven(&packet).is_some_and(|id| auth::add(&mut ids, id));
                let result = if known { Ok(ReplyBody::Empty) } else { Err(Code::AuthFailed) };
                actions.push(Action::Send(Reply { xid: xid::AUTH, zxid: 0, result }.encode()));
                if known {
                    self.ids = ids.into();
                } else {
                    self.close(actions);
                }
            }
            Ok(Request::Unknown) => {
                actions.push(self.reply(xid, Err(Code::Unimplemented)));
                self.close(actions);
            }
            Err(_) if self.outstanding() == 0 => {
                actions.push(self.reply(xid, Err(Code::MarshallingError)));
            }
            // Its reply would overtake others, which clients take for a broken server.
            Err(_) => self.close(actions),
            Ok(request) => {
                self.queue.push_back(Asked { xid, request, ids: self.ids.clone() });
            }
        }
    }

    /// Starts what can be done at one moment, if nothing is on its way.
    fn start(&mut self, actions: &mut Vec<Action>) {
        let Phase::Open(speaker) = self.phase else { return };
        if self.running.is_some() || self.queue.is_empty() {
            return;
        }
        let mut asked: Vec<Asked> = self.queue.pop_front().into_iter().collect();
        while let Some(next) = self.queue.pop_front_if(|next| !goes_through_log(&next.request)) {
            asked.push(next);
        }
        self.closing |= asked.iter().any(|asked| asked.request == Request::CloseSession);
        self.running = Some(asked.len());
        let task = ClientTask::requests(self.client, speaker, asked);
        actions.push(Action::Start(Box::new(task)));
    }

    /// A task is done.
    pub fn finished(&mut self, mut task: ClientTask, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.zxid = self.zxid.max(task.zxid);
        self.running = None;
        let outcome = task.outcome.take();
        match outcome {
            _ if matches!(self.phase, Phase::Closed) => {}
            Some(Outcome::Connected(speaker, connected)) => {
                self.phase = Phase::Open(speaker);
                actions.push(Action::Send(connected.encode()));
            }
            Some(Outcome::Expired(connected)) => {
                actions.push(Action::Send(connected.encode()));
                self.close(&mut actions);
            }
            Some(Outcome::Replied { frames, close }) => {
                actions.extend(frames.into_iter().map(Action::Send));
                if close {
                    self.close(&mut actions);
                }
            }
            // The client reconnects, and finds out what became of its requests.
            Some(Outcome::Behind | Outcome::Failed(_)) | None => self.close(&mut actions),
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

    /// Every request is a heartbeat.
    fn heartbeat(
        &mut self,
        speaker: &Speaker,
        header: RequestHeader,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let ping = header.op == crate::codec::op::PING;
        let beats = &mut self.heartbeats;
        if beats.sent.is_some() {
            beats.later_pings += usize::from(ping);
            return;
        }
        let every = Duration::from_millis(speaker.timeout_ms) / HEARTBEAT_EVERY;
        let due = beats.last_sent.is_none_or(|sent| now.saturating_sub(sent) >= every);
        if ping || due {
            (beats.sent, beats.last_sent) = (Some(now), Some(now));
            beats.pings = usize::from(ping);
            actions.push(Action::Heartbeat(speaker.session));
        }
    }

    /// What the cluster says to the heartbeat that was sent.
    pub fn beaten(&mut self, beaten: Beaten, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        let Phase::Open(speaker) = self.phase else { return actions };
        let beats = &mut self.heartbeats;
        beats.sent = None;
        let pings = std::mem::take(&mut beats.pings);
        let later = std::mem::take(&mut beats.later_pings);
        match beaten {
            Beaten::Alive => {
                for _ in 0..pings {
                    actions.push(self.reply(xid::PING, Ok(ReplyBody::Empty)));
                }
            }
            Beaten::Ended => self.close(&mut actions),
            // The client hears nothing, and looks for another server in time.
            Beaten::Unknown => {}
        }
        if later > 0 && matches!(self.phase, Phase::Open(_)) {
            let beats = &mut self.heartbeats;
            (beats.sent, beats.last_sent, beats.pings) = (Some(now), Some(now), later);
            actions.push(Action::Heartbeat(speaker.session));
        }
        actions
    }

    /// When [`Connection::tick`] has something to do at the latest.
    pub fn next_due(&self) -> Option<Duration> {
        let Phase::Open(speaker) = &self.phase else { return None };
        let within = Duration::from_millis(speaker.timeout_ms) / ACKNOWLEDGED_WITHIN;
        Some(self.heartbeats.sent?.saturating_add(within))
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.next_due().is_some_and(|due| due <= now) {
            self.close(&mut actions);
        }
        actions
    }
}
