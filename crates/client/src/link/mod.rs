//! The task that keeps a session: one stream to one server, and another to the next server when
//! that one goes. What was not answered is sent again under its old number.
//!
//! `desk.rs` keeps the books: what was asked, who waits, which tickets are held (`held.rs`).
//! `send.rs` says it to the server, `words.rs` hears what that one says, `leases.rs` looks at the
//! clock, `attempts.rs` asks servers for a stream, `stream.rs` opens it, `lost.rs` sees to the end of
//! a session that was lost, `orphans.rs` finds its upgrades, and `watched.rs` follows the tickets that
//! outlived theirs. This file decides when to talk to whom.

mod asked;
mod attempts;
mod desk;
mod held;
mod leases;
mod lost;
mod orphans;
mod send;
mod stream;
mod watched;
mod words;

pub(crate) use asked::{Answer, Ask, Change, Order, Permit};
pub(crate) use desk::Setup;

use crate::calls::Calls;
use crate::clock::Moment;
use crate::driver::Running;
use crate::error::{self, Error};
use crate::hold::Handles;
use attempts::{Attempts, Limits, Stragglers, Tried};
use desk::Desk;
use std::sync::Arc;
use std::time::Duration;
use stream::{Opened, Opening, Stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;
use watched::{NEWS_MAX, Watched};

/// How long one server may take to answer, whatever the session's TTL.
const CONNECT_PATIENCE_MIN: Duration = Duration::from_secs(1);
const CONNECT_PATIENCE_MAX: Duration = Duration::from_secs(3);

/// How long one server may take before the next one is asked as well: a twentieth of the session's
/// TTL, within these. A client that leaves a server that hangs has a quarter of the TTL left, so
/// four more that hang are no harm.
const HEAD_START_PARTS: u32 = 20;
const HEAD_START_MIN: Duration = Duration::from_millis(50);
const HEAD_START_MAX: Duration = Duration::from_millis(500);

/// How long the answer to an `Open` that nobody waits for is waited for. A session whose TTL is
/// longer is left to it then.
const LATE_ANSWER_MAX: Duration = Duration::from_mins(1);

/// How long between two tries, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Orders that are taken at once.
const ORDERS_AT_ONCE: usize = 256;

/// Keeps a session until nobody has a handle any more, or it is closed.
pub(crate) async fn run(
    setup: Setup,
    handles: Handles,
    calls: Arc<Calls>,
    orders: mpsc::UnboundedReceiver<Order>,
    _running: Running,
) {
    let (news, watched) = mpsc::channel(NEWS_MAX);
    let desk = Desk::new(setup, handles, calls, news);
    let orders = Orders { orders, batch: Vec::new(), open: true };
    let (stragglers, stragglers_end) = attempts::stragglers();
    let mut link = Link { desk, orders, watched, next_server: 0, stragglers };
    let mut retry = RETRY_FIRST;
    while !link.desk.is_done() {
        // Without anything to keep alive, wait until something is wanted.
        if !link.desk.wants_stream() {
            let batch = link.orders.next().await;
            link.take(batch);
            continue;
        }
        if let Some(stream) = link.connect().await {
            link.talk(stream).await;
            // A server that took a stream and did nothing with it is no reason to hurry.
            if link.desk.was_useful() {
                retry = RETRY_FIRST;
            }
        }
        link.pause(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
    let Link { desk, orders, stragglers, .. } = link;
    desk.finish();
    // Whoever orders something now hears that it is closed.
    drop((orders, stragglers));
    stragglers_end.wait().await;
}

struct Link {
    desk: Desk,
    orders: Orders,
    /// What happens to tickets that have outlived their session.
    watched: mpsc::Receiver<Watched>,
    /// Where to begin with the servers.
    next_server: usize,
    stragglers: Stragglers,
}

struct Orders {
    orders: mpsc::UnboundedReceiver<Order>,
    batch: Vec<Order>,
    /// Somebody is left who could order.
    open: bool,
}

impl Orders {
    /// Waits for what is ordered next; none if nobody is left who could order.
    async fn next(&mut self) -> Option<Batch> {
        let taken = self.orders.recv_many(&mut self.batch, ORDERS_AT_ONCE).await;
        self.open = taken > 0;
        (taken > 0).then(|| Batch(std::mem::take(&mut self.batch)))
    }
}

/// Orders that came together.
struct Batch(Vec<Order>);

impl Link {
    /// Does what was ordered. When nobody is left who could order, the session is closed.
    fn take(&mut self, batch: Option<Batch>) {
        match batch {
            Some(Batch(orders)) => orders.into_iter().for_each(|order| self.desk.take(order)),
            None => self.desk.close(None),
        }
        self.desk.cancel_abandoned();
        self.desk.tell_flushed();
    }

    fn look(&mut self, stream: Option<&Stream>) {
        self.desk.look(stream);
        self.desk.tell_flushed();
    }

    /// A stream to the first server that answers, beginning with the next one; none if no server
    /// does.
    async fn connect(&mut self) -> Option<Stream> {
        let attaches = self.desk.has_session();
        let mut attempts = Attempts::new(attaches, self.stragglers.clone());
        let servers = self.desk.setup().servers.len();
        let (mut asked, mut ask_next_at) = (0, Instant::now());
        while asked < servers || !attempts.is_idle() {
            let (open, look_at) = (self.orders.open, self.desk.next_look());
            tokio::select! {
                Some(tried) = attempts.next(), if !attempts.is_idle() => {
                    if let Some(stream) = self.take_tried(tried, attaches) {
                        return Some(stream);
                    }
                    ask_next_at = Instant::now();
                }
                () = sleep_until(ask_next_at), if asked < servers => {
                    self.ask_for_stream(&mut attempts, (self.next_server + asked) % servers);
                    asked += 1;
                    ask_next_at = Instant::now() + self.head_start();
                }
                batch = self.orders.next(), if open => self.take(batch),
                Some(watched) = self.watched.recv() => self.desk.hear_watched(watched),
                () = sleep_until(look_at) => self.look(None),
            }
            let wanted = self.desk.wants_stream() && !self.desk.is_done();
            if self.desk.has_session() != attaches || !wanted {
                return None;
            }
        }
        None
    }

    fn head_start(&self) -> Duration {
        (self.desk.setup().ttl / HEAD_START_PARTS).clamp(HEAD_START_MIN, HEAD_START_MAX)
    }

    fn ask_for_stream(&self, attempts: &mut Attempts, place: usize) {
        let setup = self.desk.setup();
        let Some(server) = setup.servers.get(place).cloned() else { return };
        let opening = Opening {
            server,
            password: setup.password.clone(),
            lost: self.desk.lost.clone().filter(|_| !self.desk.has_session()),
            first: self.desk.first_message(),
            searches: self.desk.searches(),
        };
        let limits = Limits {
            answer: (setup.ttl / 3).clamp(CONNECT_PATIENCE_MIN, CONNECT_PATIENCE_MAX),
            late_answer: setup.ttl.min(LATE_ANSWER_MAX),
        };
        attempts.begin(place, opening, limits);
    }

    /// The stream, if the server gave one that is of use.
    fn take_tried(&mut self, tried: Tried, attaches: bool) -> Option<Stream> {
        // What was attached may be over by now, by this client's clock.
        self.desk.end_session_if_over();
        if self.desk.has_session() != attaches {
            self.stragglers.discard(attaches, tried);
            return None;
        }
        let Tried { place, sent, outcome } = tried;
        match outcome {
            // A session that may be over as soon as it is open is of no use.
            Some(Ok(opened)) if !attaches && self.desk.came_too_late(sent) => {
                self.desk.note_trouble("the server took too long to open a session".to_owned());
                self.stragglers.discard(attaches, Tried { place, sent, outcome: Some(Ok(opened)) });
                None
            }
            Some(Ok(Opened { opened, found, stream })) => {
                self.next_server = place + 1;
                self.desk.attached(opened, found, sent);
                self.desk.tell_flushed();
                Some(stream)
            }
            Some(Err(status)) => {
                self.not_connected(&status);
                None
            }
            None => {
                let server = self.desk.setup().servers.get(place);
                let server = server.map(|server| server.uri().to_string()).unwrap_or_default();
                self.desk.note_trouble(format!("{server} does not answer"));
                None
            }
        }
    }

    fn not_connected(&mut self, status: &Status) {
        if self.desk.has_session() {
            if stream::is_over(status) {
                // Everything that lived by it is over.
                self.desk.end_session(&Error::SessionLost);
                self.desk.lost = None;
            }
        } else if !error::may_work_elsewhere(status) {
            self.desk.refuse_session(&error::refused(status));
        }
        self.desk.note_trouble(error::why(status));
    }

    /// Until the stream or the session ends, or another server should be asked.
    async fn talk(&mut self, mut stream: Stream) {
        self.desk.send_again(&stream);
        loop {
            self.desk.send_queued(&stream);
            if self.desk.should_leave() {
                return;
            }
            if self.desk.may_say_goodbye() {
                return self.say_goodbye(stream).await;
            }
            let (open, look_at) = (self.orders.open, self.desk.next_look());
            tokio::select! {
                word = stream.incoming.message() => match word {
                    Ok(Some(word)) => {
                        self.desk.hear(word);
                        self.desk.tell_flushed();
                    }
                    Ok(None) => return self.desk.note_trouble("the server hung up".to_owned()),
                    Err(status) => return self.desk.note_trouble(error::why(&status)),
                },
                batch = self.orders.next(), if open => self.take(batch),
                Some(watched) = self.watched.recv() => self.desk.hear_watched(watched),
                () = sleep_until(look_at) => self.look(Some(&stream)),
            }
        }
    }

    /// Closes the session, and reads on until the server says that it is closed: a stream that is
    /// dropped at once might take the last words with it.
    async fn say_goodbye(&mut self, mut stream: Stream) {
        self.desk.send_close(&stream);
        let left = self.desk.closes_by().map(|by| Moment::now().until(by));
        let until = Instant::now() + left.unwrap_or_default().min(CONNECT_PATIENCE_MAX);
        while self.desk.has_session() && Instant::now() < until {
            match tokio::time::timeout_at(until, stream.incoming.message()).await {
                Ok(Ok(Some(word))) => self.desk.hear(word),
                _ => break,
            }
        }
        self.desk.said_goodbye();
    }

    /// Waits before the next try; orders and leases don't.
    async fn pause(&mut self, pause: Duration) {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            let (open, look_at) = (self.orders.open, self.desk.next_look());
            tokio::select! {
                () = &mut pause => return,
                batch = self.orders.next(), if open => self.take(batch),
                Some(watched) = self.watched.recv() => self.desk.hear_watched(watched),
                () = sleep_until(look_at) => self.look(None),
            }
            if self.desk.is_done() {
                return;
            }
        }
    }
}
