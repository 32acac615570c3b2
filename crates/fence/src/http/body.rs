//! The bodies of fenced requests and responses, which are cut off once a later holder has come.

use crate::Refused;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Sleep;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a body was cut off: a later holder has shown its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superseded;

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was cut off: a later holder has shown its fencing token")
    }
}

impl std::error::Error for Superseded {}

/// Why a body was cut off: its client sent nothing for the
/// [`body_timeout`](super::FenceLayer::body_timeout).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    waited: Duration,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request was cut off: nothing of its body has come for {:?}", self.waited)
    }
}

impl std::error::Error for Stalled {}

/// The body of a request behind a [`FenceLayer`](super::FenceLayer). Reading it fails with
/// [`Superseded`] once a later holder has shown its token, and with [`Stalled`] if no data arrives
/// for too long.
pub struct RequestBody<B> {
    inner: Pin<Box<B>>,
    /// `None` for a request without a token.
    limits: Option<Limits>,
}

/// When a body ends early.
struct Limits {
    superseded: Pin<Box<dyn Future<Output = ()> + Send>>,
    timeout: Duration,
    /// Runs while the handler waits for data from the client.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether it was superseded.
    ended: bool,
}

impl Limits {
    fn is_superseded(&mut self, context: &mut Context<'_>) -> bool {
        // A finished future must not be polled again.
        self.ended = self.ended || self.superseded.as_mut().poll(context).is_ready();
        self.ended
    }

    fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        stalled.as_mut().poll(context).is_ready()
    }
}

impl<B> RequestBody<B> {
    pub(super) fn new(
        inner: B,
        superseded: Option<impl Future<Output = Refused> + Send + 'static>,
        timeout: Duration,
    ) -> Self {
        let limits = superseded.map(|superseded| Limits {
            superseded: Box::pin(async { drop(superseded.await) }),
            timeout,
            stalled: None,
            ended: false,
        });
        Self { inner: Box::pin(inner), limits }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        let Some(limits) = &mut this.limits else {
            return this.inner.as_mut().poll_frame(context).map_err(Into::into);
        };
        if limits.is_superseded(context) {
            return Poll::Ready(Some(Err(Box::new(Superseded))));
        }
        let frame = this.inner.as_mut().poll_frame(context).map_err(Into::into);
        if frame.is_ready() {
            limits.stalled = None;
        } else if limits.is_stalled(context) {
            limits.stalled = None;
            return Poll::Ready(Some(Err(Box::new(Stalled { waited: limits.timeout }))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response behind a [`FenceLayer`](super::FenceLayer), or the layer's own.
pub struct ResponseBody<R> {
    content: Content<R>,
}

enum Content<R> {
    Own(Option<Bytes>),
    Handlers(Arc<Handlers<R>>),
}

/// A handler's body, which the layer can take away from the connection that is sending it.
pub(super) struct Handlers<R> {
    state: Mutex<State<R>>,
    ended: Notify,
}

enum State<R> {
    Open { body: Pin<Box<R>>, reader: Option<Waker> },
    Ended,
    Superseded,
}

impl<R> ResponseBody<R> {
    pub(super) fn own(text: String) -> Self {
        Self { content: Content::Own(Some(text.into())) }
    }
}

impl<R: Body> ResponseBody<R> {
    pub(super) fn new(body: R) -> (Self, Arc<Handlers<R>>) {
        let state = match body.is_end_stream() {
            true => State::Ended,
            false => State::Open { body: Box::pin(body), reader: None },
        };
        let handlers = Arc::new(Handlers { state: Mutex::new(state), ended: Notify::new() });
        if matches!(*handlers.lock(), State::Ended) {
            handlers.ended.notify_one();
        }
        (Self { content: Content::Handlers(handlers.clone()) }, handlers)
    }
}

impl<R> Handlers<R> {
    fn lock(&self) -> std::sync::MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the body has been produced to its end, or dropped.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn end(&self, state: &mut State<R>) {
        *state = State::Ended;
        self.ended.notify_one();
    }

    /// Drops the handler's body. The reader gets an error instead of the rest.
    pub(super) fn cut_off(&self) {
        let mut state = self.lock();
        if let State::Open { reader, .. } = &mut *state {
            let reader = reader.take();
            *state = State::Superseded;
            reader.into_iter().for_each(Waker::wake);
        }
    }
}

impl<R> Drop for ResponseBody<R> {
    fn drop(&mut self) {
        if let Content::Handlers(handlers) = &self.content {
            handlers.end(&mut handlers.lock());
        }
    }
}

impl<R> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let handlers = match &mut self.content {
            Content::Own(text) => {
                return Poll::Ready(text.take().map(|text| Ok(Frame::data(text))));
            }
            Content::Handlers(handlers) => handlers,
        };
        let mut state = handlers.lock();
        let (body, reader) = match &mut *state {
            State::Open { body, reader } => (body, reader),
            State::Ended => return Poll::Ready(None),
            State::Superseded => {
                *state = State::Ended;
                return Poll::Ready(Some(Err(Box::new(Superseded))));
            }
        };
        let frame = match body.as_mut().poll_frame(context) {
            Poll::Pending => {
                *reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame,
        };
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            handlers.end(&mut state);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(text) => text.is_none(),
            Content::Handlers(handlers) => matches!(*handlers.lock(), State::Ended),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            Content::Handlers(handlers) => match &*handlers.lock() {
                State::Open { body, .. } => body.size_hint(),
                State::Ended => SizeHint::with_exact(0),
                State::Superseded => SizeHint::default(),
            },
        }
    }
}
