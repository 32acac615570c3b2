//! Runs a session's state machine (`session/`) on tokio: one task for the session, which reads its
//! stream itself. `network.rs` has the connections, `callers.rs` the callers and guards,
//! `watches.rs` watches locks.

mod callers;
mod network;
mod watches;

use crate::calls::Calls;
use crate::clock;
use crate::error::Error;
use crate::gate::Changing;
use crate::held_ticket::{Handles, HeldTicket};
use crate::runtime::RunningDriver;
use crate::session::{Call, CallId, Config, Input, Moment, Output, Room, SessionState, TicketRef};
use bytes::Bytes;
use callers::Callers;
use holdfast_proto::v1::to_client;
use network::Network;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, mpsc as sync_mpsc};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;
use watches::Watches;

/// Orders that are handled in one turn.
const ORDERS_AT_ONCE: usize = 256;

/// Results of connection attempts, queries and watches that have not been handled yet.
const EVENTS_MAX: usize = 1_024;

/// The parameters of a session.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) servers: Vec<Endpoint>,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Bytes>,
    pub(crate) authorization: Option<MetadataValue<Ascii>>,
    pub(crate) timeout: Duration,
}

/// A request to the driver.
pub(crate) enum Order {
    /// Answers once there is a session.
    Open(CallId, oneshot::Sender<Result<(), Error>>),
    Call {
        call: Call,
        reply: oneshot::Sender<Result<Answer, Error>>,
        /// For an upgrade or a downgrade: other requests of the guard wait until it is dropped.
        changing: Option<Changing>,
        /// For the release of a guard.
        releases: Option<CallId>,
    },
    /// The caller of this call no longer waits.
    Abandon(CallId),
    /// A guard was dropped; `lost` if its holder knew that the lock was lost.
    Drop { guard: CallId, ticket: TicketRef, lost: bool, room: Room },
    /// A ticket with a lease of its own that is renewed and released elsewhere from now on.
    Detach { guard: CallId, ticket: TicketRef },
    /// Closes the session. The value is dropped once that is done.
    Close(Box<dyn Send>),
    /// Drops the sender once everything that was dropped before is released.
    Flush(sync_mpsc::Sender<()>),
}

/// The result of a call.
pub(crate) enum Answer {
    Reply(to_client::What),
    /// For an acquire: the lock is held.
    Held(Arc<HeldTicket>),
    /// For an upgrade: it was served, and the guard has the new ticket.
    Upgraded,
}

/// Runs a session until it is closed or there are no handles left.
pub(crate) async fn run(
    setup: Setup,
    handles: Handles,
    calls: Arc<Calls>,
    orders: mpsc::UnboundedReceiver<Order>,
    _running: RunningDriver,
) {
    let mut driver = Driver::new(setup, handles, calls, orders);
    loop {
        driver.turn();
        if driver.session.is_closed() {
            driver.close();
        }
        if driver.session.is_finished() {
            return;
        }
        poll_fn(|context| driver.poll(context)).await;
    }
}

struct Driver {
    session: SessionState,
    callers: Callers,
    network: Network,
    watches: Watches,
    /// `None` once it is closed: later orders fail.
    orders: Option<mpsc::UnboundedReceiver<Order>>,
    /// There are no handles left.
    handles_gone: bool,
    batch: Vec<Order>,
    events: mpsc::Receiver<network::Event>,
    /// What has happened since the last turn.
    inputs: Vec<Input>,
    /// Dropped once the session is closed.
    closers: Vec<Box<dyn Send>>,
    /// Dropped once everything that was dropped is released.
    flushes: Vec<sync_mpsc::Sender<()>>,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends.
    wakes_at: Option<Moment>,
}

impl Driver {
    fn new(
        setup: Setup,
        handles: Handles,
        calls: Arc<Calls>,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        let config = Config {
            servers: setup.servers.iter().map(|server| server.uri().to_string()).collect(),
            ttl: setup.ttl,
            label: setup.label,
            timeout: setup.timeout,
        };
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        Self {
            session: SessionState::new(config, clock::now()),
            callers: Callers::new(handles),
            network: Network::new(setup.servers, setup.authorization, sender.clone()),
            watches: Watches::new(calls, sender),
            orders: Some(orders),
            handles_gone: false,
            batch: Vec::new(),
            events,
            inputs: Vec::new(),
            closers: Vec::new(),
            flushes: Vec::new(),
            sleep: Box::pin(sleep(Duration::ZERO)),
            wakes_at: None,
        }
    }

    /// Passes what has happened to the session, and performs its outputs.
    fn turn(&mut self) {
        let now = clock::now();
        loop {
            for input in self.inputs.drain(..) {
                self.session.input(now, input);
            }
            for output in self.session.step(now) {
                match output {
                    Output::Connect(connection, server) => self.network.connect(connection, server),
                    Output::OpenStream(connection, stream, first) => {
                        self.network.open_stream(connection, stream, first);
                    }
                    Output::Send(stream, message) => {
                        self.inputs.extend(self.network.send(stream, message));
                    }
                    Output::Query(connection, query, what) => {
                        self.network.query(connection, query, what);
                    }
                    Output::Disconnect(connection) => self.network.disconnect(connection),
                    Output::Watch { watch, name, token } => self.watches.begin(watch, name, token),
                    Output::Unwatch(watch) => self.watches.end(watch),
                    Output::SessionOpened(lease) => self.callers.session_opened(lease),
                    Output::SessionConfirmed(at) => self.callers.session_confirmed(at),
                    Output::Complete(call, answer) => {
                        self.inputs.extend(self.callers.complete(call, answer));
                    }
                    Output::Upgraded { guard, call, grant, room } => {
                        self.inputs.extend(self.callers.upgraded(guard, call, grant, room));
                    }
                    Output::Guard(guard, change) => {
                        self.inputs.extend(self.callers.guard_changed(guard, change));
                    }
                }
            }
            if self.inputs.is_empty() {
                break;
            }
        }
        if !self.flushes.is_empty() && self.session.is_flushed() {
            // Dropping them notifies the waiting threads.
            self.flushes.clear();
        }
        self.set_timer(now);
    }

    fn set_timer(&mut self, now: Moment) {
        let wakes_at = self.session.wake_at();
        if let Some(at) = wakes_at.filter(|_| wakes_at != self.wakes_at) {
            self.sleep.as_mut().reset(Instant::now() + now.until(at));
        }
        self.wakes_at = wakes_at;
    }

    /// Stops accepting orders.
    fn close(&mut self) {
        self.orders = None;
        self.batch.clear();
        self.flushes.clear();
        self.callers.close();
        self.closers.clear();
    }

    /// Ready when something has happened.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(event)) = self.events.poll_recv(context) {
            self.inputs.extend(self.network.take(event));
        }
        self.network.poll(context, &mut self.inputs);
        let ordered = self.poll_orders(context);
        if self.wakes_at.is_some() && self.sleep.as_mut().poll(context).is_ready() {
            // Set again, for whatever time the session asks for next.
            self.wakes_at = None;
            return Poll::Ready(());
        }
        if ordered || !self.inputs.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns whether there were any orders.
    fn poll_orders(&mut self, context: &mut Context<'_>) -> bool {
        let Some(orders) = self.orders.as_mut().filter(|_| !self.handles_gone) else {
            return false;
        };
        match orders.poll_recv_many(context, &mut self.batch, ORDERS_AT_ONCE) {
            Poll::Pending => return false,
            Poll::Ready(0) => {
                self.handles_gone = true;
                self.inputs.push(Input::Close);
            }
            Poll::Ready(_) => {}
        }
        for order in self.batch.drain(..) {
            let input = match order {
                Order::Open(call, reply) => {
                    self.callers.open(call, reply);
                    Input::Open(call)
                }
                Order::Call { call, reply, changing, releases } => {
                    self.callers.call(&call, reply, changing, releases);
                    Input::Call(call)
                }
                Order::Abandon(call) => {
                    self.callers.abandon(call);
                    Input::Abandon(call)
                }
                Order::Drop { guard, ticket, lost, room } => {
                    self.callers.forget(guard);
                    Input::Drop { ticket, lost, room }
                }
                Order::Detach { guard, ticket } => {
                    self.callers.forget(guard);
                    Input::Detach(ticket)
                }
                Order::Close(closer) => {
                    self.closers.push(closer);
                    Input::Close
                }
                Order::Flush(flushed) => {
                    self.flushes.push(flushed);
                    continue;
                }
            };
            self.inputs.push(input);
        }
        true
    }
}
