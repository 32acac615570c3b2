//! One client: its requests in order, and what came together done together.

use super::aside;
use super::door::Door;
use super::listen::Bounds;
use super::waiting;
use super::wire::{Event, OUT_BYTES, Wire};
use super::words;
use super::work::{Fate, Outcome, Work};
use crate::activity::Activity;
use crate::engine::TIMEOUT_OF_THE_LOOP;
use bytes::Bytes;
use holdfast_core::{Command, LockName};
use holdfast_redis::acquiring::Acquiring;
use holdfast_redis::client::{Client, Plan};
use holdfast_redis::resp::{Decoder, Protocol, Reply, Request, encode};
use holdfast_redis::run::Job;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Places for replies that a connection keeps from one pipeline to the next.
const SLOTS_KEPT: usize = 64;

/// For ever, as far as a blocking command is concerned.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// One client's connection.
pub(super) struct Connection {
    door: Arc<Door>,
    wire: Wire,
    client: Client,
    decoder: Decoder,
    /// What came together and is to be done together.
    joined: Option<Job>,
    /// Replies in the order of their requests, from the first one that is joined on.
    slots: Vec<Slot>,
    /// Bytes of the replies in them that are known already.
    said_bytes: usize,
    /// Goes to the loop's thread and comes back.
    work: Option<Box<Work>>,
    line: mpsc::Receiver<Box<Work>>,
    /// How many channels and patterns its messages come from.
    listens: (usize, usize),
    /// Until it has asked for something, it must make room for others.
    activity: Arc<Activity>,
    /// What gives a lock back whose grant has not been written to the socket.
    unsent: Option<Command>,
}

/// A place for a reply.
enum Slot {
    /// It is known already.
    Said(Vec<u8>),
    /// The next one of the joined job.
    Job(Protocol),
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    Away,
}

impl Connection {
    pub(super) fn new(door: Arc<Door>, stream: TcpStream, activity: Arc<Activity>) -> Self {
        let client = door.welcome();
        let (work, line) = new_line(&door, client.id);
        Self {
            wire: Wire::new(stream, door.share(&client)),
            decoder: Decoder::default(),
            joined: None,
            slots: Vec::new(),
            said_bytes: 0,
            work: Some(work),
            line,
            listens: (0, 0),
            activity,
            unsent: None,
            client,
            door,
        }
    }

    /// Talks until one side hangs up. A client that does not say the password, or the rest of a
    /// request, in time is hung up on.
    pub(super) async fn talk(mut self, bounds: Bounds) {
        let number = self.client.id;
        let Err(error) = self.serve(bounds).await else { return };
        let last_word = match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => return,
            io::ErrorKind::OutOfMemory => Some(words::NO_MEMORY),
            io::ErrorKind::InvalidData => Some(words::TOO_MUCH_BEHIND_WAIT),
            io::ErrorKind::TimedOut if self.is_within_request() => Some(words::TOO_SLOW),
            _ => None,
        };
        // It is said if the client reads, and not waited for.
        if let Some(last_word) = last_word {
            self.wire.last_word(&Reply::Error(last_word), &self.client);
        }
        tracing::debug!("a Redis client's connection ({number}) was closed: {error}");
    }

    async fn serve(&mut self, bounds: Bounds) -> io::Result<()> {
        let password_until = Instant::now() + bounds.password_patience;
        let mut request_until = None;
        loop {
            if self.requests().await? == Goes::Away {
                return self.wire.flush().await;
            }
            self.wire.flush().await?;
            self.wire.others_bytes =
                self.decoder.kept_bytes().saturating_add(self.client.kept_bytes());
            self.wire.count()?;
            request_until = self
                .is_within_request()
                .then(|| request_until.unwrap_or_else(|| Instant::now() + bounds.request_patience));
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
                Event::Said(said) => self.wire.pass_on(said, &self.client).await?,
                Event::Closed => return Ok(()),
            }
        }
    }

    /// Whether a part of a request is here and the rest is missing.
    fn is_within_request(&self) -> bool {
        self.decoder.is_within() || !self.wire.buffer.is_empty()
    }

    /// All requests that are here.
    async fn requests(&mut self) -> io::Result<Goes> {
        let mut commands = 0;
        let goes = loop {
            match self.decoder.decode(&mut self.wire.buffer, &self.client.bounds()) {
                Ok(Some(request)) => {
                    commands += 1;
                    if self.client.may_ask() {
                        self.activity.keep();
                    }
                    if self.take(&request).await? == Goes::Away {
                        break Goes::Away;
                    }
                }
                Ok(None) => {
                    let rest = self.wire.buffer.len();
                    self.finish().await?;
                    // More may have been read meanwhile.
                    if self.wire.buffer.len() == rest {
                        break Goes::On;
                    }
                    self.wire.flush().await?;
                }
                Err(error) => {
                    let error = holdfast_redis::Error::new(error.to_string());
                    self.say(&[Reply::Error(error)]);
                    break Goes::Away;
                }
            }
        };
        self.door.api.metrics.redis_commands.inc_by(commands);
        self.finish().await?;
        Ok(goes)
    }

    async fn take(&mut self, request: &Request) -> io::Result<Goes> {
        match self.client.take(request) {
            Plan::Run(job) => self.join(job).await?,
            Plan::Reply(replies) => {
                self.say(&replies);
                self.changed();
                if self.joined.is_none() {
                    self.flush_much().await?;
                } else if self.said_bytes >= OUT_BYTES {
                    self.finish().await?;
                }
            }
            Plan::Close(reply) => {
                self.say(&[reply]);
                return Ok(Goes::Away);
            }
            Plan::Watch(names) => {
                self.finish().await?;
                let reply = self.watch(names).await;
                self.say(&[reply]);
            }
            Plan::Acquire(acquiring) => {
                self.finish().await?;
                let reply = self.acquire(&acquiring).await?;
                self.say(&[reply]);
                self.wire.flush().await?;
                self.unsent = None;
            }
            Plan::Password { user, password, hello } => {
                let right = self.door.lets_in(user.as_ref(), &password);
                let reply = self.client.passed(right, hello.as_ref());
                self.wire.share = self.door.share(&self.client);
                self.say(&[reply]);
                self.changed();
            }
            Plan::ListClients => {
                let list = Bytes::from(self.door.list());
                self.say(&[Reply::Verbatim(*b"txt", list)]);
                self.finish().await?;
                self.wire.flush().await?;
            }
        }
        Ok(Goes::On)
    }

    /// Replies, in its turn.
    fn say(&mut self, replies: &[Reply]) {
        let joined = self.joined.is_some();
        let mut said = Vec::new();
        let out = if joined { &mut said } else { &mut self.wire.out };
        for reply in replies {
            encode(reply, self.client.protocol, out);
        }
        if joined {
            self.said_bytes = self.said_bytes.saturating_add(said.len());
            self.slots.push(Slot::Said(said));
        }
    }

    /// What it listens to, or what it is called, may have changed.
    fn changed(&mut self) {
        let listens = (self.client.channels.len(), self.client.patterns.len());
        if listens != self.listens {
            self.listens = listens;
            let ear = self.wire.ear();
            self.door.channels.listen(&self.client, &ear);
        }
        self.door.show(&self.client);
    }

    /// Adds a job to those that are done together; one that can't be waits until they are done.
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
        // What the client asks next may depend on what this one selects.
        let alone = job.may_select();
        self.joined = Some(job);
        self.slots.push(Slot::Job(self.client.protocol));
        if alone { self.finish().await } else { Ok(()) }
    }

    /// Does what was joined, and replies.
    async fn finish(&mut self) -> io::Result<()> {
        let Some(job) = self.joined.take() else { return Ok(()) };
        let mut slots = std::mem::take(&mut self.slots);
        self.said_bytes = 0;
        let mut open = slots.drain(..);
        match self.run(job).await? {
            Ok(replies) => self.fill(&mut open, replies).await?,
            // They can't be done together. Each may reply as much as all may: one reply is sent
            // before the next command begins.
            Err(job) => {
                for one in job.split() {
                    let replies = match self.run(one).await? {
                        Ok(replies) => replies,
                        Err(one) => self.run_aside(one).await?,
                    };
                    self.fill(&mut open, replies).await?;
                }
            }
        }
        // What is said behind the last reply.
        for slot in open {
            match slot {
                Slot::Said(said) => self.wire.out.extend_from_slice(&said),
                Slot::Job(protocol) => encode(&Reply::Null, protocol, &mut self.wire.out),
            }
        }
        if slots.capacity() <= SLOTS_KEPT {
            self.slots = slots;
        }
        self.flush_much().await
    }

    /// Puts replies into the next places, and writes them if they are many.
    async fn fill(
        &mut self,
        slots: &mut impl Iterator<Item = Slot>,
        replies: Vec<Reply>,
    ) -> io::Result<()> {
        for reply in replies {
            for slot in slots.by_ref() {
                match slot {
                    Slot::Said(said) => self.wire.out.extend_from_slice(&said),
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

    async fn run_aside(&mut self, job: Job) -> io::Result<Vec<Reply>> {
        let outcome = tokio::select! {
            biased;
            // What was asked for and not sent yet is withdrawn.
            error = self.wire.hangs_up() => return Err(error),
            outcome = aside::run(&self.door, job) => outcome,
        };
        Ok(match outcome {
            Ok(done) => self.client.ran(done),
            Err(reply) => vec![reply],
        })
    }

    /// Does a job on the loop's thread; gives it back if it can't be done there.
    async fn run(&mut self, job: Job) -> io::Result<Result<Vec<Reply>, Job>> {
        if !job.is_light() {
            return Ok(Ok(self.run_aside(job).await?));
        }
        let (count, blocks, alone) = (job.replies(), job.blocks(), job.replies() == 1);
        let work = self.work.take();
        let mut work = work.unwrap_or_else(|| self.renew());
        let fate = work.fate();
        work.begin(job);
        if let Err(trouble) = self.door.api.handle.send(work) {
            let (work, line) = new_line(&self.door, self.client.id);
            (self.work, self.line) = (Some(work), line);
            return Ok(Ok(vec![Reply::Error(words::trouble(trouble)); count]));
        }
        let back = match blocks {
            None => tokio::select! {
                biased;
                // The line goes with the connection; by that the loop knows that nobody waits.
                error = self.wire.hangs_up() => return Err(error),
                back = timeout(TIMEOUT_OF_THE_LOOP, self.line.recv()) => back.ok(),
            },
            Some(wait) => self.block(wait, &fate).await?,
        };
        let Some(back) = back else {
            fate.give_up();
            let (work, line) = new_line(&self.door, self.client.id);
            (self.work, self.line) = (Some(work), line);
            let error = words::no_leader(fate.is_proposed());
            return Ok(Ok(vec![Reply::Error(error); count]));
        };
        let Some(mut work) = back else {
            // The loop is gone, and the work with it.
            return Err(io::Error::other("this node stops"));
        };
        let outcome = work.outcome();
        self.work = Some(work);
        Ok(match outcome {
            Outcome::Done(done) => Ok(self.client.ran(done)),
            Outcome::Replies(replies) => Ok(replies),
            Outcome::Trouble(trouble) => Ok(vec![Reply::Error(words::trouble(trouble)); count]),
            Outcome::Otherwise(job) if alone => Ok(self.run_aside(job).await?),
            Outcome::Otherwise(job) => Err(job),
        })
    }

    fn renew(&mut self) -> Box<Work> {
        let (work, line) = new_line(&self.door, self.client.id);
        self.line = line;
        work
    }

    /// Waits for a blocking command, for so long; if the connection ends, so does the wait.
    async fn block(
        &mut self,
        wait: Option<u64>,
        fate: &Fate,
    ) -> io::Result<Option<Option<Box<Work>>>> {
        self.wire.flush().await?;
        let until = Instant::now() + wait.map_or(FOR_EVER, Duration::from_millis).min(FOR_EVER);
        let blocked = Blocked::new(&self.door, self.client.id, fate);
        tokio::select! {
            back = self.line.recv() => return Ok(Some(back)),
            error = self.wire.attend(&self.client) => return Err(error),
            () = sleep_until(until) => {}
        }
        drop(blocked);
        Ok(timeout(TIMEOUT_OF_THE_LOOP, self.line.recv()).await.ok())
    }

    async fn watch(&mut self, names: Vec<LockName>) -> Reply {
        let stamps = self.door.api.handle.read(move |node| {
            let stamp = |name: LockName| {
                let stamp = node.state().stamp(&name);
                (name, stamp)
            };
            names.into_iter().map(stamp).collect::<Vec<_>>()
        });
        match timeout(TIMEOUT_OF_THE_LOOP, stamps).await {
            Ok(Ok(stamps)) => self.client.watch(stamps),
            Ok(Err(trouble)) => Reply::Error(words::trouble(trouble)),
            Err(_) => Reply::Error(words::no_leader(false)),
        }
    }

    async fn acquire(&mut self, acquiring: &Acquiring) -> io::Result<Reply> {
        self.wire.flush().await?;
        let (door, number) = (self.door.clone(), self.client.id);
        let grant = tokio::select! {
            biased;
            // One that has hung up is not told that it holds the lock.
            error = self.wire.attend(&self.client) => return Err(error),
            grant = waiting::acquire(&door, number, acquiring) => grant,
        };
        let grant = match grant {
            Ok(grant) => grant,
            Err(reply) => return Ok(reply),
        };
        // If it is taken away, the client hears of it by the end of this connection.
        let ear = self.wire.ear();
        if !self.door.channels.hold(grant.token, number, &ear) {
            return Ok(acquiring.taken_over());
        }
        self.unsent = Some(acquiring.release(grant.token));
        Ok(acquiring.granted(&grant))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.door.farewell(self.client.id);
        if let Some(release) = self.unsent.take() {
            let handle = self.door.api.handle.clone();
            // If this fails, its deadline ends it.
            tokio::spawn(async move { handle.ask(None, release).await });
        }
    }
}

fn new_line(door: &Arc<Door>, number: u64) -> (Box<Work>, mpsc::Receiver<Box<Work>>) {
    let (line, receiver) = mpsc::channel(1);
    (Work::new(door.clone(), number, line), receiver)
}

/// A connection that waits in a blocking command; when this goes, so does the wait.
struct Blocked<'a> {
    door: &'a Door,
    number: u64,
    fate: &'a Fate,
}

impl<'a> Blocked<'a> {
    fn new(door: &'a Door, number: u64, fate: &'a Fate) -> Self {
        door.blocked.fetch_add(1, Ordering::Relaxed);
        Self { door, number, fate }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.door.blocked.fetch_sub(1, Ordering::Relaxed);
        // First the word, then the post: an errand that is on its way must not sleep again.
        self.fate.give_up();
        self.door.api.handle.give_up(self.number);
    }
}
