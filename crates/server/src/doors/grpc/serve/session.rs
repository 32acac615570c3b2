//! A session's stream: what comes in goes to the loop, what the loop says goes out.

use super::Calls;
use crate::activity::Busy;
use crate::doors::Context;
use crate::doors::grpc::translate;
use crate::doors::grpc::{OrStatus, status};
use crate::doors::http::serve::connection::{Connection, CutUnlessRead};
use crate::doors::http::serve::request_limit::Room;
use crate::engine::{Engine, EventSink, Missed, Subscriber};
use crate::random;
use bytes::Bytes;
use holdfast_core::{Answer, Command, Refusal, Secret, SessionRef, Token};
use holdfast_gateway::{ApiError, Attached, SessionEvent, SubmitError, request, submit_error};
use holdfast_node::Reply;
use holdfast_proto::Message;
use holdfast_proto::v1::{self as proto, ToClient, ToServer, to_client, to_server};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::vec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Requests of one stream that wait for their answers; beyond it the stream is not read on.
const IN_FLIGHT_MAX: usize = 1_024;

/// Tickets that an attach may ask about.
const TICKETS_MAX: usize = 100_000;

/// Events that wait for a slow reader: all answers, and news of many tickets at once.
const EVENTS_MAX: usize = 16_384;

/// About how long each message is that says how the tickets of a client stand. One ticket takes
/// 300 KiB at most: 16 names, and how two holders of each ended.
const OPENED_BYTES: usize = 4 << 20;

pub(super) type Outgoing = Pin<Box<dyn Stream<Item = Result<ToClient, Status>> + Send>>;

pub(super) async fn serve(
    calls: &Calls,
    request: Request<Streaming<ToServer>>,
) -> Result<Response<Outgoing>, Status> {
    let context = calls.context.clone();
    let connection = request.extensions().get::<Connection>().cloned().unwrap_or_default();
    let room = request.extensions().get::<Arc<Room>>().cloned().unwrap_or_default();
    let mut incoming = request.into_inner();
    let first = room.first(incoming.message()).await.or_status()??.ok_or_else(nothing_said)?;
    let _permit = room.enter().or_status()?;
    let busy = connection.begin();
    let events = context.engine.subscriber(EVENTS_MAX, usize::MAX);
    let (session, first) = begin(&context, first, &events).await.or_status()?;
    let room = Semaphore::new(IN_FLIGHT_MAX);
    let (engine, sink) = (context.engine, events.sink().clone());
    let shared = Arc::new(Shared { engine, session, sink, room });
    let reading = tokio::spawn(read(shared.clone(), incoming));
    let cut = connection.cut_unless_read(events.too_slow());
    let first = first.into_iter();
    let outgoing = Talk { shared, events, first, reading, over: false, _busy: busy, _cut: cut };
    Ok(Response::new(Box::pin(outgoing)))
}

/// What both directions of a stream know.
struct Shared {
    engine: Engine,
    session: SessionRef,
    sink: EventSink,
    room: Semaphore,
}

fn nothing_said() -> Status {
    let hint = "open or attach a session with its first message";
    status(ApiError::bad("the stream said nothing", hint))
}

/// Opens or attaches the session, and what to say first. Its events go to the subscriber before its
/// client is told how its tickets stand: so nothing is missed in between.
async fn begin(
    context: &Context,
    first: ToServer,
    events: &Subscriber,
) -> Result<(SessionRef, Vec<ToClient>), ApiError> {
    let (session, attached) = match first.what {
        Some(to_server::What::Open(open)) => {
            (open_session(context, open, events).await?, Attached::default())
        }
        Some(to_server::What::Attach(attach)) => {
            // What is refused must not end the stream that the session has.
            if attach.tickets.len() > TICKETS_MAX {
                let why = format!("at most {TICKETS_MAX} tickets can be asked about at once");
                let hint = "attach without them, and ask for each";
                return Err(ApiError::bad(why, hint));
            }
            let id = request::session_id(attach.session)?;
            let session = SessionRef { id, secret: request::secret(&attach.secret)? };
            let tickets = attach.tickets.into_iter().map(Token).collect();
            (session, context.engine.attach(session, tickets, events.sink()).await??)
        }
        _ => {
            let why = "a stream begins with open or attach";
            return Err(ApiError::bad(why, "open a session, or attach one"));
        }
    };
    let opened = proto::Opened {
        session: session.id.0.get(),
        secret: Bytes::copy_from_slice(&session.secret.0),
        node: context.id.0,
        tickets: Vec::new(),
        more: false,
    };
    let said = |number, what| ToClient { number, what: Some(what) };
    let standings = attached.standings.iter().map(translate::standing).collect();
    let opened = in_parts(opened, standings).into_iter();
    let mut messages: Vec<ToClient> =
        opened.map(|part| said(first.number, to_client::What::Opened(part))).collect();
    // It may have been asked to let go while it was away.
    let asked = attached.revocations.iter();
    let asked = asked.filter_map(|asked| translate::news(asked, attached.now_ms));
    messages.extend(asked.map(|what| said(0, what)));
    Ok((session, messages))
}

/// How all tickets of a client stand may be more than fits into one message.
fn in_parts(opened: proto::Opened, standings: Vec<proto::Standing>) -> Vec<proto::Opened> {
    let (mut parts, mut bytes) = (vec![opened.clone()], 0);
    for standing in standings {
        let length = standing.encoded_len();
        bytes += length;
        if bytes > OPENED_BYTES {
            bytes = length;
            parts.push(opened.clone());
        }
        if let Some(part) = parts.last_mut() {
            part.tickets.push(standing);
        }
    }
    let last = parts.len() - 1;
    parts.iter_mut().take(last).for_each(|part| part.more = true);
    parts
}

async fn open_session(
    context: &Context,
    open: proto::Open,
    events: &Subscriber,
) -> Result<SessionRef, ApiError> {
    let secret = Secret(random::bytes());
    let command = request::open_session(secret, open.ttl_ms, open.label.map(Vec::from))?;
    match context.engine.open(command, events.sink()).await?? {
        Answer::SessionOpened(id) => Ok(SessionRef { id, secret }),
        _ => Err(ApiError::from(SubmitError::Unknown)),
    }
}

/// Reads the stream and hands what comes to the loop, until it ends.
async fn read(shared: Arc<Shared>, mut incoming: Streaming<ToServer>) {
    while let Ok(Some(message)) = incoming.message().await {
        let Ok(permit) = shared.room.acquire().await else { return };
        // Given back when the answer goes out.
        permit.forget();
        let number = message.number;
        if let Err(error) = hand_over(&shared, message) {
            shared.sink.push(SessionEvent::Refused { number, error: Box::new(error) });
        }
    }
    // The client has said all it wanted; it may still listen.
}

fn hand_over(shared: &Shared, message: ToServer) -> Result<(), ApiError> {
    let Shared { engine, session, sink, .. } = shared;
    let (number, session) = (message.number, *session);
    let posted = match message.what {
        Some(to_server::What::Beat(_)) => engine.heartbeat_on(sink, number, session),
        Some(to_server::What::Close(_)) => {
            engine.submit_on(sink, number, None, Command::CloseSession(session))
        }
        Some(to_server::What::Request(request)) => {
            let (id, command) = translate::request(request, session)?;
            engine.submit_on(sink, number, Some(id), command)
        }
        _ => {
            let why = "a session is opened or attached once, at the beginning";
            return Err(ApiError::bad(why, "begin another stream for another session"));
        }
    };
    Ok(posted?)
}

/// What goes out.
struct Talk {
    shared: Arc<Shared>,
    events: Subscriber,
    first: vec::IntoIter<ToClient>,
    reading: JoinHandle<()>,
    over: bool,
    /// Its connection is not idle.
    _busy: Option<Busy>,
    _cut: CutUnlessRead,
}

impl Stream for Talk {
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
                // Its client comes back, and asks.
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

impl Talk {
    fn out(&mut self, event: SessionEvent) -> Option<ToClient> {
        match event {
            SessionEvent::Reply { number, reply } => {
                self.shared.room.add_permits(1);
                Some(ToClient { number, what: Some(self.reply(reply)) })
            }
            SessionEvent::Refused { number, error } => {
                self.shared.room.add_permits(1);
                Some(ToClient { number, what: Some(refused(*error)) })
            }
            SessionEvent::Effect { effect, now_ms } => {
                let what = translate::news(&effect, now_ms)?;
                self.over = matches!(what, to_client::What::SessionEnded(_));
                Some(ToClient { number: 0, what: Some(what) })
            }
            // A session subscribes to nothing.
            SessionEvent::Published(_) | SessionEvent::LostTrack => None,
        }
    }

    fn reply(&self, reply: Reply) -> to_client::What {
        match reply {
            Reply::Answer(Ok(answer)) => translate::answer(answer),
            Reply::Answer(Err(Refusal::NoSession(id))) if id == self.shared.session.id => {
                let how = translate::how(holdfast_core::How::Expired);
                to_client::What::SessionEnded(proto::SessionEnded { how })
            }
            // Remembered under its number: sent again, it would be told the same.
            Reply::Answer(Err(refusal)) => {
                to_client::What::Refused(translate::refused(refusal.into()))
            }
            Reply::Beat(true) => to_client::What::Alive(proto::Alive {}),
            Reply::Beat(false) => {
                let how = translate::how(holdfast_core::How::Expired);
                to_client::What::SessionEnded(proto::SessionEnded { how })
            }
            reply => refused(submit_error(&reply).into()),
        }
    }
}

/// What may work later is to be sent again; the rest is an answer.
fn refused(error: ApiError) -> to_client::What {
    if error.code.may_work_later() {
        to_client::What::TryAgain(proto::TryAgain { why: error.message })
    } else {
        to_client::What::Refused(translate::refused(error))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
