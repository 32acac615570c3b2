//! The task that keeps a session: one stream to one server, and another to the next server when
//! that one goes. What was not answered is sent again under its old number.

use crate::clock::Moment;
use crate::error::{Error, How};
use crate::lease::{Lease, Standing};
use bytes::Bytes;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, request, standing, to_client, to_server};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// How long one server may take to answer before the next one is asked.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// How long between two tries, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Beats are numbered apart from requests.
const BEATS_FROM: u64 = 1 << 63;

/// How the lease of a guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Confirmed not long ago.
    Good,
    /// The server has not confirmed it for a while. It is still good; prepare to stop.
    Jeopardy,
    /// It is over, or may be: stop.
    Lost(How),
}

/// Somebody asks the holder to let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Who asks.
    pub by: Bytes,
    /// Why.
    pub reason: Bytes,
    /// How long the holder has, from when it was heard.
    pub within: Duration,
    /// Whether the lock is taken away then.
    pub force: bool,
}

/// What the holder of a ticket hears.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    pub(crate) health: watch::Sender<Health>,
    pub(crate) revocation: watch::Sender<Option<Revocation>>,
}

/// What the task is asked to do.
pub(crate) enum Order {
    Ask(Ask),
    /// Nobody wants to hear of this ticket any more.
    Unfollow(u64),
    Close(oneshot::Sender<()>),
}

/// A request, and where its answer goes.
pub(crate) struct Ask {
    pub(crate) what: request::What,
    pub(crate) answer: Option<oneshot::Sender<Result<Answer, Error>>>,
    /// For an acquire or upgrade: the answer is its turn, not its place in line.
    pub(crate) until_served: bool,
}

/// An answer and when its request was first sent.
pub(crate) struct Answer {
    pub(crate) what: to_client::What,
    pub(crate) first_sent: Moment,
    /// For a ticket that is served: what becomes of it, from now on.
    pub(crate) fate: Option<Fate>,
}

/// How a session is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) servers: Vec<Endpoint>,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Bytes>,
    pub(crate) password: Option<MetadataValue<Ascii>>,
}

pub(crate) async fn run(setup: Setup, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut link = Link {
        setup,
        next_server: 0,
        session: None,
        next_request: 1,
        pending: BTreeMap::new(),
        waiting: HashMap::new(),
        followed: HashMap::new(),
        closing: None,
        try_another: false,
        unsent: Vec::new(),
    };
    let mut retry = RETRY_FIRST;
    loop {
        // Without a session there is nothing to keep alive: wait until something is wanted.
        if link.session.is_none() && link.pending.is_empty() {
            if link.closing.is_some() {
                break;
            }
            match orders.recv().await {
                Some(order) => link.take(order),
                None => return,
            }
            continue;
        }
        match link.connect(&mut orders).await {
            Ok(Some(stream)) => {
                retry = RETRY_FIRST;
                if link.talk(stream, &mut orders).await.is_break() {
                    break;
                }
            }
            Ok(None) => {}
            Err(Lost) => break,
        }
        link.watch_leases();
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
    link.end(Error::SessionLost);
    if let Some(closed) = link.closing {
        let _ = closed.send(());
    }
}

/// Nobody wants anything any more.
struct Lost;

struct Session {
    id: u64,
    secret: Bytes,
    lease: Lease,
}

struct Pending {
    ask: Ask,
    first_sent: Moment,
}

/// A ticket in line whose turn somebody waits for.
struct Waiting {
    answer: oneshot::Sender<Result<Answer, Error>>,
    first_sent: Moment,
    /// What it takes to give it up.
    own: proto::Own,
}

struct Followed {
    fate: Fate,
    session_lease: bool,
}

struct Stream {
    out: mpsc::UnboundedSender<proto::ToServer>,
    incoming: Streaming<proto::ToClient>,
}

struct Link {
    setup: Setup,
    next_server: usize,
    session: Option<Session>,
    next_request: u64,
    pending: BTreeMap<u64, Pending>,
    waiting: HashMap<u64, Waiting>,
    followed: HashMap<u64, Followed>,
    closing: Option<oneshot::Sender<()>>,
    /// The server that this client talks to can't do something now.
    try_another: bool,
    /// What the stream has not been given yet.
    unsent: Vec<u64>,
}

impl Link {
    fn take(&mut self, order: Order) {
        match order {
            Order::Ask(ask) => {
                let number = self.next_request;
                self.next_request += 1;
                self.pending.insert(number, Pending { ask, first_sent: Moment::now() });
                self.unsent.push(number);
            }
            Order::Unfollow(token) => {
                self.followed.remove(&token);
            }
            Order::Close(closed) => self.closing = Some(closed),
        }
    }

    /// A stream to the next server that answers; none if that one did not.
    async fn connect(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Result<Option<Stream>, Lost> {
        let server = self.setup.servers.get(self.next_server).cloned();
        self.next_server = (self.next_server + 1) % self.setup.servers.len().max(1);
        let Some(server) = server else { return Err(Lost) };
        let sent = Moment::now();
        let first = self.first_message();
        let password = self.setup.password.clone();
        let opened = timeout(CONNECT_PATIENCE, open_stream(server, first, password));
        tokio::pin!(opened);
        let opened = loop {
            tokio::select! {
                opened = &mut opened => break opened,
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => return Err(Lost),
                },
                () = sleep(Duration::from_millis(50)) => self.watch_leases(),
            }
        };
        match opened {
            Ok(Ok((opened, stream))) => {
                self.attached(opened, sent);
                Ok(Some(stream))
            }
            Ok(Err(status)) => {
                self.not_connected(&status);
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    fn first_message(&self) -> proto::ToServer {
        let what = match &self.session {
            Some(session) => to_server::What::Attach(proto::Attach {
                session: session.id,
                secret: session.secret.clone(),
                tickets: self.waiting.keys().chain(self.followed.keys()).copied().collect(),
            }),
            None => to_server::What::Open(proto::Open {
                ttl_ms: u64::try_from(self.setup.ttl.as_millis()).unwrap_or(u64::MAX),
                label: self.setup.label.clone(),
            }),
        };
        proto::ToServer { number: 0, what: Some(what) }
    }

    fn attached(&mut self, opened: proto::Opened, sent: Moment) {
        match &mut self.session {
            Some(session) => session.lease.confirm(sent),
            None => {
                let lease = Lease::confirmed(self.setup.ttl, sent);
                let (id, secret) = (opened.session, opened.secret);
                self.session = Some(Session { id, secret, lease });
            }
        }
        for ticket in opened.tickets {
            self.hear_standing(ticket);
        }
    }

    /// How one of the tickets stands that this client asked about when it attached.
    fn hear_standing(&mut self, now: proto::Standing) {
        match now.what {
            Some(standing::What::Held(grant)) => self.granted(grant),
            Some(standing::What::Over(over)) => self.ended(over.token, How::of(over.how)),
            Some(standing::What::Waiting(_)) | None => {}
        }
    }

    fn not_connected(&mut self, status: &Status) {
        match status.code() {
            // The session is gone: everything that lived by it is over.
            Code::FailedPrecondition if self.session.is_some() => self.end(Error::SessionLost),
            Code::InvalidArgument | Code::Unauthenticated | Code::FailedPrecondition => {
                let error = Error::Refused {
                    code: format!("{:?}", status.code()),
                    message: status.message().to_owned(),
                    hint: String::new(),
                    highest: 0,
                };
                self.end(error);
            }
            _ => {}
        }
    }

    async fn talk(
        &mut self,
        mut stream: Stream,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> std::ops::ControlFlow<()> {
        use std::ops::ControlFlow::{Break, Continue};
        let Some(every) = self.session.as_ref().map(|session| session.lease.every()) else {
            return Continue(());
        };
        let mut beats = HashMap::new();
        let mut next_beat = BEATS_FROM;
        let mut beating = tokio::time::interval(every);
        beating.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watching = tokio::time::interval((every / 4).max(Duration::from_millis(5)));
        self.unsent = self.pending.keys().copied().collect();
        loop {
            for number in std::mem::take(&mut self.unsent) {
                self.send(&stream, number);
            }
            if self.session.is_none() || std::mem::take(&mut self.try_another) {
                return Continue(());
            }
            if self.closing.is_some() && self.pending.is_empty() {
                let close = to_server::What::Close(proto::CloseSession {});
                let _ = stream.out.send(proto::ToServer { number: next_beat, what: Some(close) });
                let _ = timeout(CONNECT_PATIENCE, stream.incoming.message()).await;
                return Break(());
            }
            tokio::select! {
                word = stream.incoming.message() => match word {
                    Ok(Some(word)) => self.hear(word, &mut beats),
                    Ok(None) | Err(_) => return Continue(()),
                },
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => return Break(()),
                },
                _ = beating.tick() => {
                    beats.insert(next_beat, Moment::now());
                    let beat = to_server::What::Beat(proto::Beat {});
                    let _ = stream.out.send(proto::ToServer { number: next_beat, what: Some(beat) });
                    next_beat += 1;
                }
                _ = watching.tick() => {
                    self.watch_leases();
                    self.cancel_abandoned();
                    // A server that says nothing for half a lease is no use.
                    let oldest = beats.values().min();
                    if oldest.is_some_and(|sent| sent.until(Moment::now()) > self.setup.ttl / 2) {
                        return Continue(());
                    }
                }
            }
        }
    }

    fn send(&self, stream: &Stream, number: u64) {
        let Some(pending) = self.pending.get(&number) else { return };
        let lowest = self.pending.keys().next().copied().unwrap_or(number);
        let what = Some(pending.ask.what.clone());
        let request = proto::Request { id: number, lowest, what };
        let what = Some(to_server::What::Request(request));
        // If the stream has ended, its end is heard next.
        let _ = stream.out.send(proto::ToServer { number, what });
    }

    fn hear(&mut self, word: proto::ToClient, beats: &mut HashMap<u64, Moment>) {
        let Some(what) = word.what else { return };
        match what {
            to_client::What::Alive(_) => {
                if let (Some(sent), Some(session)) = (beats.remove(&word.number), &mut self.session)
                {
                    session.lease.confirm(sent);
                    // One that was sent before it is confirmed with it.
                    beats.retain(|_, earlier| *earlier > sent);
                }
            }
            to_client::What::SessionEnded(_) => self.end(Error::SessionLost),
            to_client::What::Granted(grant) => self.granted(grant),
            to_client::What::Ended(ended) => self.ended(ended.token, How::of(ended.how)),
            to_client::What::Revocation(asked) => self.asked_to_let_go(asked),
            to_client::What::Opened(_) => {}
            // It stays pending: another server may take it.
            to_client::What::TryAgain(_) => self.try_another = true,
            what => self.answered(word.number, what),
        }
    }

    fn answered(&mut self, number: u64, what: to_client::What) {
        let Some(Pending { ask, first_sent }) = self.pending.remove(&number) else { return };
        let Some(answer) = ask.answer else { return };
        let standing = match &what {
            to_client::What::Standing(now) if ask.until_served => now.what.clone(),
            _ => None,
        };
        match (standing, what) {
            (Some(standing::What::Waiting(in_line)), _) => {
                let name = first_name(&ask.what);
                let own = proto::Own { name, token: in_line.token, secret: in_line.secret };
                self.waiting.insert(own.token, Waiting { answer, first_sent, own });
            }
            (Some(standing::What::Held(grant)), _) => self.serve(answer, first_sent, grant),
            (_, to_client::What::Refused(refused)) => {
                let _ = answer.send(Err(refused.into()));
            }
            (_, what) => {
                // Whoever dropped the future does not want to know.
                let _ = answer.send(Ok(Answer { what, first_sent, fate: None }));
            }
        }
    }

    fn granted(&mut self, grant: proto::Grant) {
        if let Some(Waiting { answer, first_sent, .. }) = self.waiting.remove(&grant.token) {
            self.serve(answer, first_sent, grant);
        }
    }

    /// Hands a grant to who waits for it; if nobody does any more, lets go.
    fn serve(
        &mut self,
        answer: oneshot::Sender<Result<Answer, Error>>,
        first_sent: Moment,
        grant: proto::Grant,
    ) {
        let name = grant.names.first().cloned().unwrap_or_default();
        let own = proto::Own { name, token: grant.token, secret: grant.secret.clone() };
        let fate =
            Fate { health: watch::Sender::new(Health::Good), revocation: watch::Sender::new(None) };
        let session_lease = grant.ttl_ms.is_none();
        self.followed.insert(own.token, Followed { fate: fate.clone(), session_lease });
        let held = proto::Standing { what: Some(standing::What::Held(grant)) };
        let what = to_client::What::Standing(held);
        let served = Answer { what, first_sent, fate: Some(fate) };
        if answer.send(Ok(served)).is_err() {
            self.followed.remove(&own.token);
            self.tell(request::What::Release(own));
        }
    }

    fn tell(&mut self, what: request::What) {
        self.take(Order::Ask(Ask { what, answer: None, until_served: false }));
    }

    /// Gives up the waits that nobody waits for any more.
    fn cancel_abandoned(&mut self) {
        let abandoned = self.waiting.extract_if(|_, waiting| waiting.answer.is_closed());
        let owns: Vec<proto::Own> = abandoned.map(|(_, waiting)| waiting.own).collect();
        for own in owns {
            self.tell(request::What::Cancel(own));
        }
    }

    fn ended(&mut self, token: u64, how: How) {
        if let Some(Waiting { answer, .. }) = self.waiting.remove(&token) {
            let _ = answer.send(Err(match how {
                How::TimedOut => Error::NotAcquired("its time in line was over".to_owned()),
                how => Error::Over(how),
            }));
        }
        if let Some(followed) = self.followed.remove(&token) {
            followed.fate.health.send_replace(Health::Lost(how));
        }
    }

    fn asked_to_let_go(&mut self, asked: proto::RevocationAsked) {
        if let Some(followed) = self.followed.get(&asked.token) {
            followed.fate.revocation.send_replace(Some(Revocation {
                by: asked.by,
                reason: asked.reason,
                within: Duration::from_millis(asked.within_ms),
                force: asked.force,
            }));
        }
    }

    /// Looks at the clock: whoever lives by the session must know in time.
    fn watch_leases(&mut self) {
        let Some(session) = &self.session else { return };
        let health = match session.lease.standing(Moment::now()) {
            Standing::Good => Health::Good,
            Standing::Jeopardy => Health::Jeopardy,
            Standing::Over => return self.end(Error::SessionLost),
        };
        for followed in self.followed.values().filter(|followed| followed.session_lease) {
            followed.fate.health.send_if_modified(|now| std::mem::replace(now, health) != health);
        }
    }

    /// The session is over, or nothing can be done: everybody hears so.
    fn end(&mut self, error: Error) {
        self.session = None;
        self.next_request = 1;
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Some(answer) = pending.ask.answer {
                let _ = answer.send(Err(error.clone()));
            }
        }
        for (_, waiting) in self.waiting.drain() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
        // A ticket with a deadline of its own outlives the session.
        for (_, followed) in self.followed.extract_if(|_, followed| followed.session_lease) {
            followed.fate.health.send_replace(Health::Lost(How::Expired));
        }
    }
}

fn first_name(what: &request::What) -> Bytes {
    match what {
        request::What::Acquire(acquire) => acquire.names.first().cloned(),
        request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| own.name.clone()),
        _ => None,
    }
    .unwrap_or_default()
}

async fn open_stream(
    server: Endpoint,
    first: proto::ToServer,
    password: Option<MetadataValue<Ascii>>,
) -> Result<(proto::Opened, Stream), Status> {
    let channel: Channel =
        server.connect().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let (out, messages) = mpsc::unbounded_channel();
    let _ = out.send(first);
    let mut request = Request::new(UnboundedReceiverStream::new(messages));
    if let Some(password) = password {
        request.metadata_mut().insert("authorization", password);
    }
    let mut incoming = HoldfastClient::new(channel).session(request).await?.into_inner();
    match incoming.message().await?.and_then(|word| word.what) {
        Some(to_client::What::Opened(opened)) => Ok((opened, Stream { out, incoming })),
        _ => Err(Status::unavailable("the server began with something else")),
    }
}
