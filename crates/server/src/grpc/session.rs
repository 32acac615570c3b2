//! A session's stream: what comes in goes to the loop, what the loop says goes out.

use super::translate;
use super::{Door, OrStatus, status};
use crate::activity::Busy;
use crate::api::{Api, within};
use crate::connection::{Connection, CutUnlessRead};
use crate::engine::{Handle, Line, Missed, Word, trouble};
use crate::http::Room;
use crate::random;
use bytes::Bytes;
use holdfast_core::{Answer, Command, Refusal, Secret, SessionId, SessionRef, Token};
use holdfast_gateway::{ApiError, SubmitError, request};
use holdfast_node::{Node, Reply};
use holdfast_proto::Message;
use holdfast_proto::v1::{self as proto, ToClient, ToServer, to_client, to_server};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Requests of one stream that wait for their answers; beyond it the stream is not read on.
const IN_FLIGHT_MAX: usize = 1_024;

/// Tickets that an attach may ask about.
const TICKETS_MAX: usize = 100_000;

/// Words that wait for a slow reader: all answers, and news of many tickets at once.
const WORDS_MAX: usize = 16_384;

/// About how long each message is that says how the tickets of a client stand. One ticket takes
/// 300 KiB at most: 16 names, and how two holders of each ended.
const OPENED_BYTES: usize = 4 << 20;

pub(super) type Outgoing = Pin<Box<dyn Stream<Item = Result<ToClient, Status>> + Send>>;

pub(super) async fn serve(
    door: &Door,
    request: Request<Streaming<ToServer>>,
) -> Result<Response<Outgoing>, Status> {
    let api = door.api.clone();
    let connection = request.extensions().get::<Connection>().cloned().unwrap_or_default();
    let room = request.extensions().get::<Arc<Room>>().cloned().unwrap_or_default();
    let mut incoming = request.into_inner();
    let first = room.first(incoming.message()).await.or_status()??.ok_or_else(nothing_said)?;
    let _permit = room.enter().or_status()?;
    let busy = connection.begin();
    let (line, words) = Line::new(WORDS_MAX);
    let (listening, first) = begin(&api, first, line.clone()).await.or_status()?;
    let shared = Arc::new(Shared { listening, room: Semaphore::new(IN_FLIGHT_MAX) });
    let reading = tokio::spawn(read(shared.clone(), incoming));
    let cut = connection.cut_unless_read(async move { line.broken().await });
    let first = first.into_iter();
    let outgoing = Talk { shared, words, first, reading, over: false, _busy: busy, _cut: cut };
    Ok(Response::new(Box::pin(outgoing)))
}

struct Shared {
    listening: Listening,
    room: Semaphore,
}

/// A line that hears of a session, until this is dropped.
struct Listening {
    handle: Handle,
    session: SessionRef,
    line: Arc<Line>,
}

impl Listening {
    fn begin(api: &Api, session: SessionRef, line: Arc<Line>) -> Self {
        api.handle.listen(session.id, &line);
        Self { handle: api.handle.clone(), session, line }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.handle.unlisten(self.session.id, &self.line);
    }
}

fn nothing_said() -> Status {
    let hint = "open or attach a session with its first message";
    status(ApiError::bad("the stream said nothing", hint))
}

/// Opens or attaches the session, and what to say first. From then on the line hears its news,
/// before it is told how its tickets stand: so nothing is missed in between.
async fn begin(
    api: &Api,
    first: ToServer,
    line: Arc<Line>,
) -> Result<(Listening, Vec<ToClient>), ApiError> {
    let (listening, Tickets { standings, asked_to_let_go }) = match first.what {
        Some(to_server::What::Open(open)) => {
            let session = open_session(api, open).await?;
            (Listening::begin(api, session, line), Tickets::default())
        }
        Some(to_server::What::Attach(attach)) => {
            // What is refused must not end the stream that the session has.
            if attach.tickets.len() > TICKETS_MAX {
                let why = format!("at most {TICKETS_MAX} tickets can be asked about at once");
                let hint = "attach without them, and ask for each";
                return Err(ApiError::bad(why, hint));
            }
            let session = attach_session(api, &attach).await?;
            let listening = Listening::begin(api, session, line);
            (listening, look_at(api, session.id, attach.tickets).await?)
        }
        _ => {
            let why = "a stream begins with open or attach";
            return Err(ApiError::bad(why, "open a session, or attach one"));
        }
    };
    let session = listening.session;
    let opened = proto::Opened {
        session: session.id.0.get(),
        secret: Bytes::copy_from_slice(&session.secret.0),
        node: api.id.0,
        tickets: Vec::new(),
        more: false,
    };
    let said = |number, what| ToClient { number, what: Some(what) };
    let opened = in_parts(opened, standings).into_iter();
    let mut words: Vec<ToClient> =
        opened.map(|part| said(first.number, to_client::What::Opened(part))).collect();
    words.extend(asked_to_let_go.into_iter().map(|what| said(0, what)));
    Ok((listening, words))
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

async fn open_session(api: &Api, open: proto::Open) -> Result<SessionRef, ApiError> {
    let secret = Secret(random::bytes());
    let command = request::open_session(secret, open.ttl_ms, open.label.map(Vec::from))?;
    match api.ask(None, command).await?.answer? {
        Answer::SessionOpened(id) => Ok(SessionRef { id, secret }),
        _ => Err(ApiError::from(SubmitError::Unknown)),
    }
}

async fn attach_session(api: &Api, attach: &proto::Attach) -> Result<SessionRef, ApiError> {
    let id = request::session_id(attach.session)?;
    let session = SessionRef { id, secret: request::secret(&attach.secret)? };
    if within(api.handle.beat(session)).await? {
        Ok(session)
    } else {
        Err(api.not_alive(session).await?)
    }
}

/// The tickets of a client that comes back.
#[derive(Default)]
struct Tickets {
    standings: Vec<proto::Standing>,
    /// It may have been asked while it was away.
    asked_to_let_go: Vec<to_client::What>,
}

/// How the tickets of a session stand. The heartbeat before it was confirmed by the leader, which
/// says nothing about how far this node has come: so the state must be current here.
async fn look_at(api: &Api, session: SessionId, tickets: Vec<u64>) -> Result<Tickets, ApiError> {
    if tickets.is_empty() {
        return Ok(Tickets::default());
    }
    let look = move |node: &Node| {
        let state = node.state();
        let own = |token: &Token| {
            state.ticket_view(*token).is_none_or(|ticket| ticket.session == Some(session))
        };
        let tokens: Vec<Token> = tickets.into_iter().map(Token).filter(own).collect();
        let standing = |token: &Token| translate::standing(&state.standing(*token));
        let asked = tokens.iter().filter_map(|token| state.revocation_asked(*token));
        Tickets {
            standings: tokens.iter().map(standing).collect(),
            asked_to_let_go: asked
                .filter_map(|asked| translate::news(&asked, state.now_ms()))
                .collect(),
        }
    };
    api.read(look).await
}

/// Reads the stream and hands what comes to the loop, until it ends.
async fn read(shared: Arc<Shared>, mut incoming: Streaming<ToServer>) {
    while let Ok(Some(message)) = incoming.message().await {
        let Ok(permit) = shared.room.acquire().await else { return };
        // Given back when the answer goes out.
        permit.forget();
        let number = message.number;
        if let Err(error) = hand_over(&shared, message) {
            shared.listening.line.say(Word::Refused { number, error });
        }
    }
    // The client has said all it wanted; it may still listen.
}

fn hand_over(shared: &Shared, message: ToServer) -> Result<(), ApiError> {
    let Listening { handle, line, session } = &shared.listening;
    let (number, session) = (message.number, *session);
    let posted = match message.what {
        Some(to_server::What::Beat(_)) => handle.beat_on(line, number, session),
        Some(to_server::What::Close(_)) => {
            handle.ask_on(line, number, None, Command::CloseSession(session))
        }
        Some(to_server::What::Request(request)) => {
            let (id, command) = translate::request(request, session)?;
            handle.ask_on(line, number, Some(id), command)
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
    words: mpsc::Receiver<Word>,
    first: vec::IntoIter<ToClient>,
    reading: JoinHandle<()>,
    over: bool,
    /// Its connection is not idle.
    _busy: Option<Busy>,
    _cut: CutUnlessRead,
}

impl Stream for Talk {
    type Item = Result<ToClient, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.next() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            if self.shared.listening.line.is_broken() {
                self.over = true;
                return Poll::Ready(Some(Err(status(Missed::TooSlow.into()))));
            }
            let word = match self.words.poll_recv(context) {
                Poll::Ready(Some(word)) => word,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            if let Some(message) = self.out(word) {
                return Poll::Ready(Some(Ok(message)));
            }
        }
    }
}

impl Talk {
    fn out(&mut self, word: Word) -> Option<ToClient> {
        match word {
            Word::Reply { number, reply } => {
                self.shared.room.add_permits(1);
                Some(ToClient { number, what: Some(self.reply(reply)) })
            }
            Word::Refused { number, error } => {
                self.shared.room.add_permits(1);
                Some(ToClient { number, what: Some(refused(error)) })
            }
            Word::News { effect, now_ms } => {
                let what = translate::news(&effect, now_ms)?;
                self.over = matches!(what, to_client::What::SessionEnded(_));
                Some(ToClient { number: 0, what: Some(what) })
            }
            Word::LostTrack => {
                self.over = true;
                None
            }
        }
    }

    fn reply(&self, reply: Reply) -> to_client::What {
        match reply {
            Reply::Answer(Ok(answer)) => translate::answer(answer),
            Reply::Answer(Err(Refusal::NoSession(id)))
                if id == self.shared.listening.session.id =>
            {
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
            reply => refused(trouble(&reply).into()),
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
