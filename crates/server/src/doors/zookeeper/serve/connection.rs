//! One client's connection: passes what happens to `holdfast_zookeeper::connection`, and performs
//! the actions that it returns.

use super::door::Door;
use super::listen::Timeouts;
use super::registry::Queued;
use super::wire::{Ready, Wire};
use crate::activity::Activity;
use crate::engine::Pending;
use crate::stream::Stream;
use holdfast_gateway::SubmitError;
use holdfast_zookeeper::connection::{Action, Connection, Message};
use holdfast_zookeeper::four_letter::{ConnectionInfo, FourLetterWord};
use holdfast_zookeeper::task::ClientTask;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

/// Serves a client until one side closes the connection.
pub(super) async fn serve_client(
    door: Arc<Door>,
    stream: Stream,
    activity: Arc<Activity>,
    timeouts: Timeouts,
) {
    let Ok(address) = stream.peer_addr() else { return };
    let mut client =
        ClientConnection::new(door, stream, address.ip(), address.to_string(), activity, timeouts);
    if let Err(error) = client.serve().await {
        tracing::debug!("a ZooKeeper client's connection ({address}) was closed: {error}");
    }
}

/// Whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    /// It ends once everything is written.
    Close,
}

struct ClientConnection {
    door: Arc<Door>,
    connection: Connection,
    wire: Wire,
    messages: mpsc::Receiver<Queued>,
    info: Arc<Mutex<ConnectionInfo>>,
    /// The running task. Dropping this abandons it.
    pending: Option<Pending>,
    /// A task that is not started until the client has read the replies that it already has.
    deferred: Option<Box<ClientTask>>,
    /// Marks it as active once it has a session; before that, it may be evicted to make room.
    activity: Arc<Activity>,
    timeouts: Timeouts,
    begun: Instant,
    /// When an incomplete request began to arrive, and how many came before it. `None` if there is
    /// no incomplete one.
    within: Option<(Instant, u64)>,
    is_authenticated: bool,
    /// Whether the certificate of the connection has been looked at.
    is_certified: bool,
    sent: u64,
    received: u64,
}

impl ClientConnection {
    fn new(
        door: Arc<Door>,
        stream: Stream,
        ip: IpAddr,
        address: String,
        activity: Arc<Activity>,
        timeouts: Timeouts,
    ) -> Self {
        let connection = door.new_connection(ip);
        let info = Arc::new(Mutex::new(ConnectionInfo { address, ..ConnectionInfo::default() }));
        Self {
            messages: door.registry.register(connection.client(), info.clone()),
            wire: Wire::new(stream, door.share(false)),
            connection,
            info,
            pending: None,
            deferred: None,
            activity,
            timeouts,
            begun: Instant::now(),
            within: None,
            is_authenticated: false,
            is_certified: false,
            sent: 0,
            received: 0,
            door,
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            let reads = self.connection.wants_bytes() && !self.wire.is_full();
            let (due, why) = self.next_due();
            let actions = tokio::select! {
                queued = self.messages.recv(), if !self.wire.is_full() => match queued {
                    Some(queued) => self.open(queued.message),
                    None => return Err(io::Error::other("it missed events")),
                },
                ready = self.wire.ready(reads) => match ready? {
                    Ready::Bytes(bytes) => {
                        self.certify();
                        self.connection.receive(&bytes, Door::now())
                    }
                    Ready::Closed => return Ok(()),
                    Ready::Nothing => Vec::new(),
                },
                () = sleep_until(due) => match why {
                    Due::Tick => Vec::new(),
                    Due::TooSlow => return Err(io::ErrorKind::TimedOut.into()),
                },
            };
            let mut flow = self.act(actions).await?;
            // Handle everything that has already arrived, so that replies are written together.
            while flow == Flow::Continue
                && !self.wire.is_full()
                && let Ok(queued) = self.messages.try_recv()
            {
                let actions = self.open(queued.message);
                flow = self.act(actions).await?;
            }
            if flow == Flow::Continue {
                let actions = self.connection.tick(Door::now());
                flow = self.act(actions).await?;
            }
            self.note();
            if flow == Flow::Close {
                return timeout(FINISH_TIMEOUT, self.wire.finish()).await?;
            }
            self.wire.write()?;
            if !self.wire.is_full()
                && let Some(task) = self.deferred.take()
            {
                // If the task can't be started, it is lost; the client tries another server.
                self.pending = Some(self.door.start(task).map_err(not_taken)?);
            }
            self.wire.count(self.connection.kept_bytes())?;
        }
    }

    /// When something is due if nothing happens before, and what.
    fn next_due(&mut self) -> (Instant, Due) {
        let begin = (!self.is_authenticated).then(|| self.begun + self.timeouts.begin);
        let before = self.connection.received();
        let same = self.within.filter(|(_, known)| *known == before);
        let is_within = self.connection.is_within_request();
        self.within = is_within.then(|| same.unwrap_or_else(|| (Instant::now(), before)));
        let slow = [self.within.map(|(since, _)| since), self.wire.unread_since()];
        let slow = slow.into_iter().flatten().map(|since| since + self.timeouts.request);
        let tick = self
            .connection
            .next_due()
            .map(|due| (Instant::now() + due.saturating_sub(Door::now()).min(TICK_MAX), Due::Tick));
        let slow = slow.chain(begin).map(|due| (due, Due::TooSlow));
        let far = (Instant::now() + TICK_MAX, Due::Tick);
        slow.chain(tick).min_by_key(|(due, _)| *due).unwrap_or(far)
    }

    fn open(&mut self, message: Message) -> Vec<Action> {
        if let Message::Finished(task) = &message {
            if let Some(pending) = self.pending.take() {
                pending.completed();
            }
            if let Some(failure) = task.failure() {
                tracing::debug!("a ZooKeeper client's request failed: {failure:?}");
            }
        }
        self.connection.message(message, Door::now())
    }

    async fn act(&mut self, actions: Vec<Action>) -> io::Result<Flow> {
        for action in actions {
            match action {
                Action::Send(frame) => {
                    self.sent += 1;
                    self.wire.push(&frame);
                }
                Action::Start(task) => {
                    self.deferred = Some(task);
                }
                Action::Heartbeat(session) => {
                    let heartbeat = self.door.heartbeat(self.connection.client(), session);
                    heartbeat.map_err(not_taken)?;
                }
                Action::Answer(word) => {
                    self.answer(word).await;
                    return Ok(Flow::Close);
                }
                Action::Close => return Ok(Flow::Close),
            }
        }
        Ok(Flow::Continue)
    }

    async fn answer(&mut self, word: FourLetterWord) {
        let answer = self.door.answer(word).await;
        self.wire.push(answer.as_bytes());
    }

    /// Logs the client in as the user that its certificate names, before its first request.
    fn certify(&mut self) {
        if !std::mem::replace(&mut self.is_certified, true)
            && let Some(user) = self.wire.certified_user().filter(|user| self.door.knows(user))
        {
            self.connection.certified(user);
        }
    }

    /// Updates what others can see of this connection.
    fn note(&mut self) {
        let received = self.connection.received();
        if received > self.received {
            self.door.commands.inc_by(received - self.received);
            self.door.received.fetch_add(received - self.received, Ordering::Relaxed);
            self.received = received;
        }
        if self.connection.is_authenticated() && !self.is_authenticated {
            self.is_authenticated = true;
            self.activity.keep();
            self.wire.share = self.door.share(true);
        }
        let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        self.door.sent.fetch_add(self.sent - info.sent, Ordering::Relaxed);
        let session = self.connection.session();
        info.session = session.map_or(0, |(session, _)| session.id.0.get());
        info.timeout_ms = session.map_or(0, |(_, timeout)| millis(timeout));
        (info.received, info.sent) = (received, self.sent);
        info.outstanding = self.connection.outstanding() as u64;
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.door.registry.unregister(self.connection.client());
        if let Some(session) = self.connection.unproven_session() {
            self.door.close_session(session);
        }
    }
}

/// What to do when nothing has happened in time.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// Tell the connection the time.
    Tick,
    /// Close it: its client is too slow.
    TooSlow,
}

/// A connection checks the clock at least this often, because timers stop while the machine sleeps.
const TICK_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to read the last frames and close its side of the connection.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The loop is overloaded or has ended: the client tries another server.
fn not_taken(error: SubmitError) -> io::Error {
    io::Error::other(format!("this node can't serve it: {error:?}"))
}
