//! A session's stream: its first message, later messages, and what is sent.

use crate::translate;
use bytes::Bytes;
use holdfast_core::{Answer, Command, EndReason, Refusal, RequestRef, Secret, SessionRef, Token};
use holdfast_gateway::{
    ApiError, Attached, CallOutcome, SessionEvent, SubmitError, request, submit_error,
};
use holdfast_node::Reply;
use holdfast_proto::Message;
use holdfast_proto::v1::{self as proto, ToClient, ToServer, to_client, to_server};

/// Tickets that an attach may ask about.
const TICKETS_MAX: usize = 100_000;

/// The approximate size of each message with the status of a client's tickets. One ticket takes 300
/// KiB at most: 16 names, and how two holders of each ended.
const OPENED_BYTES: usize = 4 << 20;

/// The first message of a stream.
#[derive(Debug)]
pub struct Begin {
    number: u64,
    /// What the gateway is to do.
    pub what: BeginKind,
}

/// How a stream gets its session.
#[derive(Debug)]
pub enum BeginKind {
    /// Opens a new session.
    Open {
        /// The session's secret.
        secret: Secret,
        /// `Command::OpenSession`.
        command: Command,
    },
    /// Attaches an existing session.
    Attach {
        /// The session and its secret.
        session: SessionRef,
        /// Tickets whose status to return.
        tickets: Vec<Token>,
    },
}

/// Parses the first message. `secret` generates the secret of a new session.
pub fn begin(first: ToServer, secret: impl FnOnce() -> Secret) -> Result<Begin, ApiError> {
    let what = match first.what {
        Some(to_server::What::Open(open)) => {
            let secret = secret();
            let command = request::open_session(secret, open.ttl_ms, open.label.map(Vec::from))?;
            BeginKind::Open { secret, command }
        }
        Some(to_server::What::Attach(attach)) => {
            // A refused attach must not end the session's current stream.
            if attach.tickets.len() > TICKETS_MAX {
                let why = format!("at most {TICKETS_MAX} tickets can be asked about at once");
                let hint = "attach without them, and ask for each";
                return Err(ApiError::bad(why, hint));
            }
            let id = request::session_id(attach.session)?;
            let session = SessionRef { id, secret: request::secret(&attach.secret)? };
            BeginKind::Attach { session, tickets: attach.tickets.into_iter().map(Token).collect() }
        }
        _ => {
            let why = "a stream begins with open or attach";
            return Err(ApiError::bad(why, "open a session, or attach one"));
        }
    };
    Ok(Begin { number: first.number, what })
}

impl Begin {
    /// The session and the first messages to its client, after the gateway has opened or attached
    /// it on this node.
    pub fn begun(
        self,
        outcome: CallOutcome,
        node: u64,
    ) -> Result<(SessionRef, Vec<ToClient>), ApiError> {
        let (session, attached) = match (self.what, outcome) {
            (
                BeginKind::Open { secret, .. },
                CallOutcome::Answer(Ok(Answer::SessionOpened(id))),
            ) => (SessionRef { id, secret }, Attached::default()),
            (BeginKind::Attach { session, .. }, CallOutcome::Attached(attached)) => {
                (session, *attached)
            }
            (_, CallOutcome::Answer(Err(refusal)) | CallOutcome::NotAlive(refusal)) => {
                return Err(refusal.into());
            }
            _ => return Err(SubmitError::Unknown.into()),
        };
        let opened = proto::Opened {
            session: session.id.0.get(),
            secret: Bytes::copy_from_slice(&session.secret.0),
            node,
            tickets: Vec::new(),
            more: false,
        };
        let message = |number, what| ToClient { number, what: Some(what) };
        let statuses = attached.statuses.iter().map(translate::ticket_status).collect();
        let opened = in_parts(opened, statuses).into_iter();
        let mut messages: Vec<ToClient> =
            opened.map(|part| message(self.number, to_client::What::Opened(part))).collect();
        // It may have been asked to release while it was away.
        let asked = attached.revocations.iter();
        let asked = asked.filter_map(|asked| translate::news(asked, attached.now_ms));
        messages.extend(asked.map(|what| message(0, what)));
        Ok((session, messages))
    }
}

/// The status of all tickets of a client may not fit into one message.
fn in_parts(opened: proto::Opened, statuses: Vec<proto::TicketStatus>) -> Vec<proto::Opened> {
    let (mut parts, mut bytes) = (vec![opened.clone()], 0);
    for status in statuses {
        let length = status.encoded_len();
        bytes += length;
        if bytes > OPENED_BYTES {
            bytes = length;
            parts.push(opened.clone());
        }
        if let Some(part) = parts.last_mut() {
            part.tickets.push(status);
        }
    }
    let last = parts.len() - 1;
    parts.iter_mut().take(last).for_each(|part| part.more = true);
    parts
}

/// A later message of a stream; the reply carries the message's number.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub enum Asked {
    /// Reports that the session is alive.
    Heartbeat,
    /// Puts a command through the log.
    Submit {
        /// `None` if it has the same effect however often it is sent.
        request: Option<RequestRef>,
        /// The command.
        command: Command,
    },
}

/// Parses a message. `secret` generates the secret of a new ticket.
pub fn receive(
    session: SessionRef,
    what: Option<to_server::What>,
    secret: impl FnOnce() -> Secret,
) -> Result<Asked, ApiError> {
    match what {
        Some(to_server::What::Beat(_)) => Ok(Asked::Heartbeat),
        Some(to_server::What::Close(_)) => {
            Ok(Asked::Submit { request: None, command: Command::CloseSession(session) })
        }
        Some(to_server::What::Request(sent)) => {
            let (id, command) = translate::request(sent, session, secret)?;
            Ok(Asked::Submit { request: Some(id), command })
        }
        _ => {
            let why = "a session is opened or attached once, at the beginning";
            Err(ApiError::bad(why, "begin another stream for another session"))
        }
    }
}

/// Turns the events of a session into messages.
#[derive(Debug)]
pub struct Outgoing {
    session: SessionRef,
    over: bool,
}

impl Outgoing {
    /// For a stream whose session is open.
    pub fn new(session: SessionRef) -> Self {
        Self { session, over: false }
    }

    /// Whether the session has ended: nothing more is sent.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The message for an event; `None` if it does not concern the client.
    pub fn message(&mut self, event: SessionEvent) -> Option<ToClient> {
        let (number, what) = match event {
            SessionEvent::Reply { number, reply } => (number, self.reply(reply)),
            SessionEvent::Refused { number, error } => (number, refused(*error)),
            SessionEvent::Effect { effect, now_ms } => {
                let what = translate::news(&effect, now_ms)?;
                self.over = matches!(what, to_client::What::SessionEnded(_));
                (0, what)
            }
            // A session has no subscriptions.
            SessionEvent::Published(_) | SessionEvent::LostTrack => return None,
        };
        Some(ToClient { number, what: Some(what) })
    }

    fn reply(&self, reply: Reply) -> to_client::What {
        match reply {
            Reply::Answer(Ok(answer)) => translate::answer(answer),
            Reply::Answer(Err(Refusal::NoSession(id))) if id == self.session.id => expired(),
            // Remembered under its number: a retry would get the same answer.
            Reply::Answer(Err(refusal)) => {
                to_client::What::Refused(translate::refused(refusal.into()))
            }
            Reply::Beat(true) => to_client::What::Alive(proto::Alive {}),
            Reply::Beat(false) => expired(),
            reply => refused(submit_error(&reply).into()),
        }
    }
}

fn expired() -> to_client::What {
    to_client::What::SessionEnded(proto::SessionEnded { how: translate::how(EndReason::Expired) })
}

/// An error that may go away is `TryAgain`; any other is an answer.
fn refused(error: ApiError) -> to_client::What {
    if error.code.may_work_later() {
        to_client::What::TryAgain(proto::TryAgain { why: error.message })
    } else {
        to_client::What::Refused(translate::refused(error))
    }
}
