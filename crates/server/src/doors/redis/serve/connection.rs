//! One client's connection: handles its requests in order, and runs pipelined commands together.

use super::background;
use super::door::Door;
use super::listen::Timeouts;
use super::waiting;
use super::wire::{Event, OUT_BYTES, Wire};
use super::work::Work;
use crate::activity::Activity;
use crate::engine::{AcquireResult, Engine, TIMEOUT_OF_THE_LOOP};
use crate::stream::Stream;
use bytes::Bytes;
use holdfast_core::{self as core, EndReason, LockName, Refusal, Right, TicketStatus};
use holdfast_gateway::{ApiError, Caller, Topic};
use holdfast_redis::acquiring::Acquiring;
use holdfast_redis::client::{Client, Plan};
use holdfast_redis::resp::{Decoder, Protocol, Reply, Request, encode};
use holdfast_redis::run::Job;
use holdfast_redis::{JobOutcome, messages};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// The capacity for reply slots that a connection keeps from one pipeline to the next.
const SLOTS_KEPT: usize = 64;

/// One client's connection.
pub(super) struct Connection {
    door: Arc<Door>,
    /// On behalf of the client.
    engine: Engine,
    /// Whether the certificate of the connection has been looked at.
    is_certified: bool,
    wire: Wire,
    client: Client,
    decoder: Decoder,
    /// Pipelined commands that will run together.
    joined: Option<Job>,
    /// The replies in the order of their requests, starting at the first one that is joined.
    slots: Vec<Slot>,
    /// The size of the replies in `slots` that are already encoded, in bytes.
    encoded_bytes: usize,
    /// Travels to the loop's thread and back.
    work: Option<Box<Work>>,
    line: mpsc::Receiver<Box<Work>>,
    /// The numbers of channels and patterns it is subscribed to at the gateway.
    listens: (usize, usize),
    /// Until it has made a request, it may be evicted for others.
    activity: Arc<Activity>,
    /// A lock whose grant has not been written to the socket: if this is dropped, the lock is
    /// released.
    unsent: Option<AcquireResult>,
    /// When the first byte of a request arrived whose rest is missing.
    request_since: Option<Instant>,
}

/// The place of a reply.
enum Slot {
    /// Already encoded.
    Encoded(Vec<u8>),
    /// The joined job's next reply.
    Job(Protocol),
}

/// Whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    On,
    Away,
}

impl Connection {
    pub(super) fn new(door: Arc<Door>, stream: Stream, activity: Arc<Activity>) -> Self {
        let address = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        let engine = door.engine.for_caller(Caller::new(core::Door::Redis, address));
        let client = door.add_client();
        let (work, line) = new_line(&door);
        Self {
            wire: Wire::new(stream, door.share(&client)),
            decoder: Decoder::default(),
            joined: None,
            slots: Vec::new(),
            encoded_bytes: 0,
            work: Some(work),
            line,
            listens: (0, 0),
            activity,
            unsent: None,
            request_since: None,
            client,
            engine,
            is_certified: false,
            door,
        }
    }

    /// Serves the client until one side closes the connection. A client that does not authenticate,
    /// or send the rest of a request, in time is disconnected.
    pub(super) async fn talk(mut self, timeouts: Timeouts) {
        let number = self.client.id;
        let Err(error) = self.serve(timeouts).await else { return };
        let close_with = match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => return,
            io::ErrorKind::OutOfMemory => Some(messages::NO_MEMORY),
            io::ErrorKind::InvalidData => Some(messages::TOO_MUCH_BEHIND_WAIT),
            io::ErrorKind::TimedOut if self.is_within_request() => Some(messages::TOO_SLOW),
            _ => None,
        };
        // Sent if the socket takes it, without waiting.
        if let Some(close_with) = close_with {
            self.wire.close_with(&Reply::Error(close_with), &self.client);
        }
        tracing::debug!("a Redis client's connection ({number}) was closed: {error}");
    }

    async fn serve(&mut self, timeouts: Timeouts) -> io::Result<()> {
        let password_until = Instant::now() + timeouts.password;
        loop {
            if self.requests().await? == Next::Away {
                return self.wire.flush().await;
            }
            self.wire.flush().await?;
            self.wire.others_bytes =
                self.decoder.kept_bytes().saturating_add(self.client.kept_bytes());
            self.wire.count()?;
            self.request_since =
                self.is_within_request().then(|| self.request_since.unwrap_or_else(Instant::now));
            let request_until = self.request_since.map(|since| since + timeouts.request);
            let password_until = (!self.client.may_ask()).then_some(password_until);
            let until = [password_until, request_until].into_iter().flatten().min();
            let next = match until {
                None => self.wire.next().await?,
                Some(until) => match timeout_at(until, self.wire.next()).await {
                    Ok(event) => event?,
                    Err(_) if request_until == Some(until) => {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    Err(_) => return Ok(()),
                },
            };
            match next {
                Event::Bytes => {}
                Event::Published(published) => {
                    self.wire.pass_on(published, &self.client).await?;
                }
                Event::Closed => return Ok(()),
            }
        }
    }

    /// Whether part of a request has arrived and the rest is missing.
    fn is_within_request(&self) -> bool {
        self.decoder.is_within() || !self.wire.buffer.is_empty()
    }

    /// Logs the client in as the user that its certificate names, before its first request.
    fn certify(&mut self) {
        if self.wire.buffer.is_empty() || std::mem::replace(&mut self.is_certified, true) {
            return;
        }
        if let Some(user) =
            self.wire.certified_user().filter(|user| self.door.authenticator.knows(user))
        {
            self.engine =
                self.door.engine.for_caller(self.engine.caller().clone().authenticated(user));
            self.client.passed(true, None);
            self.wire.share = self.door.share(&self.client);
        }
    }

    /// Handles all requests that have arrived.
    async fn requests(&mut self) -> io::Result<Next> {
        self.certify();
        let mut commands = 0;
        let goes = loop {
            match self.decoder.decode(&mut self.wire.buffer, &self.client.bounds()) {
                Ok(Some(request)) => {
                    commands += 1;
                    // Whatever is behind it belongs to the next request.
                    self.request_since = None;
                    if self.client.may_ask() {
                        self.activity.keep();
                    }
                    if self.take(&request).await? == Next::Away {
                        break Next::Away;
                    }
                }
                Ok(None) => {
                    let rest = self.wire.buffer.len();
                    self.finish().await?;
                    // More may have been read meanwhile.
                    if self.wire.buffer.len() == rest {
                        break Next::On;
                    }
                    self.wire.flush().await?;
                }
                Err(error) => {
                    let error = holdfast_redis::Error::new(error.to_string());
                    self.push_reply(&[Reply::Error(error)]);
                    break Next::Away;
                }
            }
        };
        self.door.commands.inc_by(commands);
        self.finish().await?;
        Ok(goes)
    }

    async fn take(&mut self, request: &Request) -> io::Result<Next> {
        match self.client.take(request) {
            Plan::Run(job) => self.join(job).await?,
            Plan::Reply(replies) => {
                if self.listens_to_more()
                    && let Err(error) = self.subscribe().await
                {
                    // The client would get stale messages, or none. Closing makes it reconnect.
                    self.push_reply(&[Reply::Error(messages::not_subscribed(&error))]);
                    return Ok(Next::Away);
                }
                self.push_reply(&replies);
                self.changed();
                if self.joined.is_none() {
                    self.flush_much().await?;
                } else if self.encoded_bytes >= OUT_BYTES {
                    self.finish().await?;
                }
            }
            Plan::Close(reply) => {
                self.push_reply(&[reply]);
                return Ok(Next::Away);
            }
            Plan::Watch(names) => {
                self.finish().await?;
                let reply = self.watch(names).await;
                self.push_reply(&[reply]);
            }
            Plan::Acquire(acquiring) => {
                self.finish().await?;
                let reply = self.acquire(&acquiring).await?;
                self.push_reply(&[reply]);
                self.wire.flush().await?;
                if let Some(sent) = self.unsent.take() {
                    sent.delivered();
                }
            }
            Plan::Password { user, password, hello } => {
                // Earlier commands are still made by whoever the client was before.
                self.finish().await?;
                let caller = self.engine.caller().clone();
                let logged_in = self.door.log_in(caller, user.as_ref(), &password).await;
                let right = logged_in.is_ok();
                if let Ok(caller) = logged_in {
                    self.engine = self.door.engine.for_caller(caller);
                }
                let reply = self.client.passed(right, hello.as_ref());
                self.wire.share = self.door.share(&self.client);
                self.push_reply(&[reply]);
                self.changed();
            }
            Plan::ListClients => {
                let list = Bytes::from(self.door.list());
                self.push_reply(&[Reply::Verbatim(*b"txt", list)]);
                self.finish().await?;
                self.wire.flush().await?;
            }
        }
        Ok(Next::On)
    }

    /// Queues replies in order.
    fn push_reply(&mut self, replies: &[Reply]) {
        let joined = self.joined.is_some();
        let mut encoded = Vec::new();
        let out = if joined { &mut encoded } else { &mut self.wire.out };
        for reply in replies {
            encode(reply, self.client.protocol, out);
        }
        if joined {
            self.encoded_bytes = self.encoded_bytes.saturating_add(encoded.len());
            self.slots.push(Slot::Encoded(encoded));
        }
    }

    /// The numbers of channels and patterns that the client is subscribed to.
    fn subscriptions(&self) -> (usize, usize) {
        (self.client.channels.len(), self.client.patterns.len())
    }

    /// Whether the client has just subscribed to something. The state must then be current: a node
    /// that is behind would deliver messages that were published long before.
    fn listens_to_more(&self) -> bool {
        let (channels, patterns) = self.subscriptions();
        channels > self.listens.0 || patterns > self.listens.1
    }

    fn topics(&self) -> Vec<Topic> {
        let channels = self.client.channels.iter().cloned().map(Topic::Channel);
        channels.chain(self.client.patterns.iter().cloned().map(Topic::Pattern)).collect()
    }

    /// Subscribes at the gateway to what the client has just subscribed to.
    async fn subscribe(&mut self) -> Result<(), ApiError> {
        let topics = self.topics();
        let engine = &self.engine;
        engine.subscribe(self.wire.subscriber(engine), topics).await?;
        self.listens = self.subscriptions();
        Ok(())
    }

    /// Called when the subscriptions or the client's name may have changed.
    fn changed(&mut self) {
        let listens = self.subscriptions();
        if listens != self.listens {
            self.listens = listens;
            let topics = self.topics();
            let engine = &self.engine;
            engine.unsubscribe(self.wire.subscriber(engine), topics);
        }
        self.door.show(&self.client);
    }

    /// Adds a job to those that run together; if it can't be added, they run first.
    async fn join(&mut self, job: Job) -> io::Result<()> {
        let job = match &mut self.joined {
            Some(joined) => match joined.join(job) {
                Ok(()) => {
                    self.slots.push(Slot::Job(self.client.protocol));
                    return Ok(());
                }
                Err(job) => job,
            },
            None => job,
        };
        self.finish().await?;
        // The client's next commands may depend on what this one selects.
        let alone = job.may_select();
        self.joined = Some(job);
        self.slots.push(Slot::Job(self.client.protocol));
        if alone { self.finish().await } else { Ok(()) }
    }

    /// Runs the joined jobs and replies.
    async fn finish(&mut self) -> io::Result<()> {
        let Some(job) = self.joined.take() else { return Ok(()) };
        let mut slots = std::mem::take(&mut self.slots);
        self.encoded_bytes = 0;
        let mut open = slots.drain(..);
        match self.run(job).await? {
            Ok(replies) => self.fill(&mut open, replies).await?,
            // They can't run together. Each may reply as much as all of them together, so one reply
            // is sent before the next command begins.
            Err(job) => {
                for one in job.split() {
                    let replies = match self.run(one).await? {
                        Ok(replies) => replies,
                        Err(one) => self.run_in_background(one).await?,
                    };
                    self.fill(&mut open, replies).await?;
                }
            }
        }
        // Replies behind the joined job's last one.
        for slot in open {
            match slot {
                Slot::Encoded(encoded) => self.wire.out.extend_from_slice(&encoded),
                Slot::Job(protocol) => encode(&Reply::Null, protocol, &mut self.wire.out),
            }
        }
        if slots.capacity() <= SLOTS_KEPT {
            self.slots = slots;
        }
        self.flush_much().await
    }

    /// Puts replies into the next slots, and writes them if they are large.
    async fn fill(
        &mut self,
        slots: &mut impl Iterator<Item = Slot>,
        replies: Vec<Reply>,
    ) -> io::Result<()> {
        for reply in replies {
            for slot in slots.by_ref() {
                match slot {
                    Slot::Encoded(encoded) => self.wire.out.extend_from_slice(&encoded),
                    Slot::Job(protocol) => {
                        encode(&reply, protocol, &mut self.wire.out);
                        break;
                    }
                }
            }
            drop(reply);
            self.flush_much().await?;
        }
        Ok(())
    }

    async fn flush_much(&mut self) -> io::Result<()> {
        if self.wire.out.len() >= OUT_BYTES { self.wire.flush().await } else { Ok(()) }
    }

    async fn run_in_background(&mut self, job: Job) -> io::Result<Vec<Reply>> {
        let outcome = tokio::select! {
            biased;
            // A request that has not been sent to a leader is withdrawn.
            error = self.wire.hangs_up() => return Err(error),
            outcome = background::run(&self.door, &self.engine, job) => outcome,
        };
        Ok(match outcome {
            Ok(done) => self.client.ran(done),
            Err(reply) => vec![reply],
        })
    }

    /// Runs a job on the loop's thread; returns it if it can't run there.
    async fn run(&mut self, job: Job) -> io::Result<Result<Vec<Reply>, Job>> {
        if !job.is_light() {
            return Ok(Ok(self.run_in_background(job).await?));
        }
        let (count, blocks, alone) = (job.replies(), job.blocks(), job.replies() == 1);
        let work = self.work.take();
        let mut work = work.unwrap_or_else(|| self.renew());
        work.begin(job);
        let block_for = blocks.flatten().map(Duration::from_millis);
        let pending = match self.engine.start(work, block_for) {
            Ok(pending) => pending,
            Err(error) => {
                self.work = Some(self.renew());
                return Ok(Ok(vec![Reply::Error(messages::trouble(error)); count]));
            }
        };
        // If the connection ends, dropping `pending` abandons the call.
        let back = match blocks {
            None => tokio::select! {
                biased;
                error = self.wire.hangs_up() => return Err(error),
                back = timeout(TIMEOUT_OF_THE_LOOP, self.line.recv()) => back.ok(),
            },
            Some(_) => Some(self.block().await?),
        };
        let Some(back) = back else {
            // The loop hangs: whether any of it was done is unknown.
            drop(pending);
            self.work = Some(self.renew());
            return Ok(Ok(vec![Reply::Error(messages::no_leader(true)); count]));
        };
        pending.completed();
        let Some(mut work) = back else {
            // The loop has ended, and the work with it.
            return Err(io::Error::other("this node is stopping"));
        };
        let outcome = work.take_outcome();
        self.work = Some(work);
        Ok(match outcome {
            JobOutcome::Done(done) => Ok(self.client.ran(done)),
            JobOutcome::Replies(replies) => Ok(replies),
            JobOutcome::Failed(error) => Ok(vec![Reply::Error(messages::trouble(error)); count]),
            JobOutcome::Elsewhere(job) if alone => Ok(self.run_in_background(job).await?),
            JobOutcome::Elsewhere(job) => Err(job),
        })
    }

    fn renew(&mut self) -> Box<Work> {
        let (work, line) = new_line(&self.door);
        self.line = line;
        work
    }

    /// Waits for a blocking command, for as long as the loop lets it block.
    async fn block(&mut self) -> io::Result<Option<Box<Work>>> {
        self.wire.flush().await?;
        let _blocked = Blocked::new(&self.door);
        tokio::select! {
            back = self.line.recv() => Ok(back),
            error = self.wire.attend(&self.client) => Err(error),
        }
    }

    async fn watch(&mut self, names: Vec<LockName>) -> Reply {
        let caller = self.engine.caller().clone();
        let stamps = self.engine.read(move |node| {
            let stamp = |name: LockName| {
                caller.require(node.state(), Right::Read, &name)?;
                let stamp = node.state().stamp(&name);
                Ok::<_, Refusal>((name, stamp))
            };
            names.into_iter().map(stamp).collect::<Result<Vec<_>, _>>()
        });
        match stamps.await {
            Ok(Ok(stamps)) => self.client.watch(stamps),
            Ok(Err(refusal)) => Reply::Error(holdfast_redis::Error::refused(&refusal)),
            Err(error) => Reply::Error(messages::trouble(error)),
        }
    }

    async fn acquire(&mut self, acquiring: &Acquiring) -> io::Result<Reply> {
        self.wire.flush().await?;
        // If the lock is taken away, the client finds out because this connection is closed.
        let sink = self.wire.subscriber(&self.engine).sink().clone();
        let taken = tokio::select! {
            biased;
            // Checked first: a client that has hung up must not be sent the grant.
            error = self.wire.attend(&self.client) => return Err(error),
            taken = waiting::acquire(&self.engine, &sink, acquiring) => taken,
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(reply) => return Ok(reply),
        };
        // It was taken over before the grant could be sent.
        if self.wire.must_end() {
            return Ok(acquiring.not_served(EndReason::Forced));
        }
        let TicketStatus::Held(grant) = taken.status() else { return Ok(Reply::Null) };
        let reply = acquiring.granted(grant);
        self.unsent = Some(taken);
        Ok(reply)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.door.remove_client(self.client.id);
    }
}

fn new_line(door: &Arc<Door>) -> (Box<Work>, mpsc::Receiver<Box<Work>>) {
    let (line, receiver) = mpsc::channel(1);
    (Work::new(door.clone(), line), receiver)
}

/// Counts a connection that is waiting in a blocking command.
struct Blocked<'a>(&'a Door);

impl<'a> Blocked<'a> {
    fn new(door: &'a Door) -> Self {
        door.blocked.fetch_add(1, Ordering::Relaxed);
        Self(door)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.blocked.fetch_sub(1, Ordering::Relaxed);
    }
}
