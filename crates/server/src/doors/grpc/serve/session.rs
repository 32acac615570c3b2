//! A session's stream: messages go to the loop, and the loop's events are sent as messages.

use super::Calls;
use crate::activity::Busy;
use crate::doors::Context;
use crate::doors::grpc::{OrStatus, status};
use crate::doors::http::serve::connection::{Connection, CutUnlessRead};
use crate::doors::http::serve::request_limit::RequestLimit;
use crate::engine::{Engine, EventSink, Missed, Subscriber};
use crate::random;
use holdfast_core::{Secret, SessionRef};
use holdfast_gateway::{ApiError, SessionEvent};
use holdfast_grpc::session::{self, Asked, BeginKind};
use holdfast_proto::v1::{ToClient, ToServer};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::vec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Unanswered requests of one stream; at this limit it is not read any further.
const IN_FLIGHT_MAX: usize = 1_024;

/// Events queued for a slow reader: all replies, and events of many tickets at once.
const EVENTS_MAX: usize = 16_384;

pub(super) type Outgoing = Pin<Box<dyn Stream<Item = Result<ToClient, Status>> + Send>>;

pub(super) async fn serve(
    calls: &Calls,
    request: Request<Streaming<ToServer>>,
) -> Result<Response<Outgoing>, Status> {
    let context = calls.context.clone();
    let connection = request.extensions().get::<Connection>().cloned().unwrap_or_default();
    let room = request.extensions().get::<Arc<RequestLimit>>().cloned().unwrap_or_default();
    let mut incoming = request.into_inner();
    let first = room.first(incoming.message()).await.or_status()??.ok_or_else(no_first_message)?;
    let _permit = room.enter().or_status()?;
    let busy = connection.begin();
    let events = context.engine.subscriber(EVENTS_MAX, usize::MAX);
    let (session, first) = begin(&context, first, &events).await.or_status()?;
    let room = Semaphore::new(IN_FLIGHT_MAX);
    let (engine, sink) = (context.engine, events.sink().clone());
    let shared = Arc::new(Shared { engine, session, sink, room });
    let reading = tokio::spawn(read(shared.clone(), incoming));
    let cut = connection.cut_unless_read(events.too_slow());
    let (first, messages) = (first.into_iter(), session::Outgoing::new(session));
    let outgoing = SessionStream {
        shared,
        events,
        first,
        messages,
        reading,
        over: false,
        _busy: busy,
        _cut: cut,
    };
    Ok(Response::new(Box::pin(outgoing)))
}

/// Shared by both directions of a stream.
struct Shared {
    engine: Engine,
    session: SessionRef,
    sink: EventSink,
    room: Semaphore,
}

fn no_first_message() -> Status {
    let hint = "open or attach a session with its first message";
    status(ApiError::bad("the stream sent nothing", hint))
}

/// Opens or attaches the session, and returns the first messages. The subscriber receives its
/// events before the client learns the status of its tickets, so that nothing is missed in between.
async fn begin(
    context: &Context,
    first: ToServer,
    events: &Subscriber,
) -> Result<(SessionRef, Vec<ToClient>), ApiError> {
    let begin = session::begin(first, new_secret)?;
    let (engine, sink) = (&context.engine, events.sink());
    let outcome = match &begin.what {
        BeginKind::Open { command, .. } => engine.open(command.clone(), sink).await?,
        BeginKind::Attach { session, tickets } => {
            engine.attach(*session, tickets.clone(), sink).await?
        }
    };
    begin.begun(outcome, context.id.0)
}

fn new_secret() -> Secret {
    Secret(random::bytes())
}

/// Reads the stream and passes the messages to the loop, until it ends.
async fn read(shared: Arc<Shared>, mut incoming: Streaming<ToServer>) {
    while let Ok(Some(message)) = incoming.message().await {
        let Ok(permit) = shared.room.acquire().await else { return };
        // Returned when the reply is sent.
        permit.forget();
        let number = message.number;
        if let Err(error) = hand_over(&shared, message) {
            shared.sink.push(SessionEvent::Refused { number, error: Box::new(error) });
        }
    }
    // The client has finished sending; it may still be receiving.
}

fn hand_over(shared: &Shared, message: ToServer) -> Result<(), ApiError> {
    let Shared { engine, session, sink, .. } = shared;
    let number = message.number;
    match session::receive(*session, message.what, new_secret)? {
        Asked::Heartbeat => engine.heartbeat_on(sink, number, *session)?,
        Asked::Submit { request, command } => engine.submit_on(sink, number, request, command)?,
    }
    Ok(())
}

/// The outgoing messages.
struct SessionStream {
    shared: Arc<Shared>,
    events: Subscriber,
    first: vec::IntoIter<ToClient>,
    messages: session::Outgoing,
    reading: JoinHandle<()>,
    over: bool,
    /// Keeps the connection from counting as idle.
    _busy: Option<Busy>,
    _cut: CutUnlessRead,
}

impl Stream for SessionStream {
    type Item = Result<ToClient, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.next() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            let event = match ready!(self.events.poll_next(context)) {
                Ok(event) => event,
                // Its client reattaches, and asks for the status of its tickets.
                Err(Missed::LostTrack) => return Poll::Ready(None),
                Err(missed) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(status(missed.into()))));
                }
            };
            if let Some(message) = self.out(event) {
                return Poll::Ready(Some(Ok(message)));
            }
        }
    }
}

impl SessionStream {
    fn out(&mut self, event: SessionEvent) -> Option<ToClient> {
        if matches!(event, SessionEvent::Reply { .. } | SessionEvent::Refused { .. }) {
            self.shared.room.add_permits(1);
        }
        let message = self.messages.message(event);
        self.over = self.messages.is_over();
        message
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
