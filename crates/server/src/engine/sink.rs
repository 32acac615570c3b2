//! A connection's events: the engine puts them into an [`EventSink`], the connection takes them out
//! through its [`Subscriber`]. A door that distributes events among its connections itself is a
//! [`Listener`] instead.

use super::inbox::{Inbox, Post};
use holdfast_core::Effect;
use holdfast_gateway::{ApiError, Code, EventQueue, Input, SessionEvent, Sink, SinkId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Where the events of one connection go, in the order in which they happened.
#[derive(Debug, Clone)]
pub(crate) struct EventSink(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: SinkId,
    waiting: Mutex<Waiting>,
    /// An event was dropped, or the connection must be closed for another reason.
    overflowed: AtomicBool,
    on_overflow: Notify,
}

#[derive(Debug)]
struct Waiting {
    queue: EventQueue,
    reader: Option<Waker>,
}

impl Sink for EventSink {
    fn id(&self) -> SinkId {
        self.0.id
    }
}

impl EventSink {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: SessionEvent) {
        let mut waiting = self.waiting();
        if !waiting.queue.push(event) {
            drop(waiting);
            return self.overflow();
        }
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Makes the connection end.
    pub(crate) fn close(&self) {
        self.waiting().queue.close();
        self.overflow();
    }

    /// Makes the connection end if more than `bytes` are queued for it.
    pub(crate) fn close_if_above(&self, bytes: usize) {
        if self.waiting().queue.bytes() > bytes {
            self.close();
        }
    }

    fn overflow(&self) {
        self.0.overflowed.store(true, Ordering::Relaxed);
        self.0.on_overflow.notify_one();
        let reader = self.waiting().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether an event was dropped or the sink was closed.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.0.overflowed.load(Ordering::Relaxed)
    }

    /// Resolves when [`EventSink::has_overflowed`] becomes true. Only one task may wait for it.
    pub(crate) async fn overflowed(&self) {
        while !self.has_overflowed() {
            self.0.on_overflow.notified().await;
        }
    }
}

/// Receives events on the loop's thread, interleaved with the tasks that finish there, in the order
/// of the gateway's outputs. Must be quick, and must not block.
pub(crate) trait Listener: Send + Sync {
    /// Receives an event.
    fn receive(&self, event: SessionEvent);

    /// Events were missed: nobody may rely on having received all of them.
    fn lost_track(&self);
}

/// Where a listener's events go.
#[derive(Clone)]
pub(crate) struct ListenerSink {
    id: SinkId,
    listener: Arc<dyn Listener>,
}

/// Where events go.
#[derive(Clone)]
pub(crate) enum AnySink {
    /// To one connection.
    Connection(EventSink),
    /// To a listener.
    Listener(ListenerSink),
}

impl Sink for AnySink {
    fn id(&self) -> SinkId {
        match self {
            Self::Connection(sink) => sink.id(),
            Self::Listener(sink) => sink.id,
        }
    }
}

impl AnySink {
    pub(super) fn push(&self, event: SessionEvent) {
        match self {
            Self::Connection(sink) => sink.push(event),
            Self::Listener(sink) => sink.listener.receive(event),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::Connection(sink) => sink.close(),
            Self::Listener(sink) => sink.listener.lost_track(),
        }
    }

    pub(super) fn close_if_above(&self, bytes: usize) {
        if let Self::Connection(sink) = self {
            sink.close_if_above(bytes);
        }
    }
}

impl From<&EventSink> for AnySink {
    fn from(sink: &EventSink) -> Self {
        Self::Connection(sink.clone())
    }
}

/// Keeps a listener subscribed until it is dropped.
pub(crate) struct Listening {
    sink: ListenerSink,
    inbox: Arc<Inbox>,
}

impl Listening {
    pub(super) fn new(inbox: Arc<Inbox>, listener: Arc<dyn Listener>) -> Self {
        Self { sink: ListenerSink { id: inbox.next_sink(), listener }, inbox }
    }

    pub(super) fn sink(&self) -> AnySink {
        AnySink::Listener(self.sink.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.inbox.post_always(Post::Gateway(Input::Close(self.sink.id)));
    }
}

/// Why the events of a connection have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The client did not read fast enough.
    TooSlow,
    /// This node skipped the events when it caught up from a snapshot.
    LostTrack,
}

impl From<Missed> for ApiError {
    fn from(missed: Missed) -> Self {
        let hint = "start over, and read the current state";
        match missed {
            Missed::TooSlow => {
                let message = "events were not read fast enough: some were missed";
                Self::new(Code::Lagged, message, hint)
            }
            Missed::LostTrack => {
                let message = "this node was behind and has caught up: events were missed";
                Self::new(Code::Missed, message, hint)
            }
        }
    }
}

/// Receives the events of one connection. When it is dropped, the gateway forgets its sink,
/// subscriptions and calls.
pub(crate) struct Subscriber {
    sink: EventSink,
    inbox: Arc<Inbox>,
}

impl Subscriber {
    pub(super) fn new(inbox: Arc<Inbox>, events_max: usize, bytes_max: usize) -> Self {
        let queue = EventQueue::new(events_max, bytes_max);
        let shared = Shared {
            id: inbox.next_sink(),
            waiting: Mutex::new(Waiting { queue, reader: None }),
            overflowed: AtomicBool::new(false),
            on_overflow: Notify::new(),
        };
        Self { sink: EventSink(Arc::new(shared)), inbox }
    }

    pub(crate) fn sink(&self) -> &EventSink {
        &self.sink
    }

    /// The next event, or why there will be no more.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<SessionEvent, Missed>> {
        let mut waiting = self.sink.waiting();
        if waiting.queue.has_overflowed() {
            return Poll::Ready(Err(Missed::TooSlow));
        }
        match waiting.queue.pop() {
            Some(SessionEvent::LostTrack) => Poll::Ready(Err(Missed::LostTrack)),
            Some(event) => Poll::Ready(Ok(event)),
            None => {
                waiting.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Async form of [`Subscriber::poll_next`]; cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<SessionEvent, Missed> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The next event, if one is already queued.
    pub(crate) fn try_next(&mut self) -> Option<SessionEvent> {
        self.sink.waiting().queue.pop()
    }

    /// The next effect on what is watched, and its logical time. An error means that some were
    /// missed: watch again.
    pub(crate) fn poll_effect(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(Arc<Effect>, u64), Missed>> {
        loop {
            let event = std::task::ready!(self.poll_next(context))?;
            // A watcher has no other subscriptions.
            if let SessionEvent::Effect { effect, now_ms } = event {
                return Poll::Ready(Ok((effect, now_ms)));
            }
        }
    }

    /// Resolves when the connection has missed an event because it did not read. Only one task may
    /// wait for it.
    pub(crate) fn too_slow(&self) -> impl Future<Output = ()> + Send + 'static {
        let sink = self.sink.clone();
        async move { sink.overflowed().await }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.inbox.post_always(Post::Gateway(Input::Close(self.sink.id())));
    }
}
