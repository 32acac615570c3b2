//! The language of the transcripts. Servers are called `a`, `b`, `c`; calls and the guards that they
//! get have names of their own. What goes in:
//!
//!     ana: open                           the application waits for a session
//!     ana: acquire seat ttl=5s wait=3s    or `try`, `shared`; by default it waits forever
//!     up: upgrade ana wait=3s             about the guard `ana`; or downgrade, release, note
//!     abandon ana                         the future of a call is dropped
//!     vanish ana                          the same, and the session does not know yet
//!     drop ana                            a guard is dropped; `drop ana lost` after it was lost
//!     detach ana, close
//!     tick 5s                             time passes
//!     a accepts, a refuses                a connection
//!     a> held #1 seat token=7             a message from server `a`, over its newest stream
//!     a hangs up, a fails session_over    the stream ends
//!     a replies lock 9 exclusive          to the newest query; or `done`, `refused already_served`
//!     watch begun                         news of the newest watch
//!
//! What comes out is written by `show.rs`.

use crate::show::{self, Names};
use bytes::Bytes;
use holdfast_client::session::{
    Answer, Call, CallId, Config, ConnectionId, Failure, FailureKind, Input, ModeChange, Moment,
    Output, QueryId, Reply, Room, RoomLimit, SessionState, StreamId, TicketRef, WatchId,
    WatchUpdate,
};
use holdfast_client::{EndReason, Health, Revocation};
use holdfast_proto::v1::{self as proto, request, ticket_status, to_client};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

struct Guard {
    ticket: TicketRef,
    mode: proto::Mode,
    names: Vec<Bytes>,
    own_ttl: Option<Duration>,
    lost: Option<EndReason>,
    room: Option<Room>,
}

pub(crate) struct Play {
    session: SessionState,
    now: Moment,
    rooms: Arc<RoomLimit>,
    names: Names,
    guards: BTreeMap<CallId, Guard>,
    vanished: BTreeSet<CallId>,
    connections: BTreeMap<usize, ConnectionId>,
    streams: BTreeMap<usize, StreamId>,
    queries: BTreeMap<usize, QueryId>,
    watch: Option<WatchId>,
    out: Vec<String>,
}

fn session(servers: usize, ttl: Duration, timeout: Duration) -> SessionState {
    let servers = (0..servers).map(show::server).collect();
    SessionState::new(Config { servers, ttl, label: None, timeout }, Moment::from_nanos(0))
}

impl Default for Play {
    fn default() -> Self {
        let ten = Duration::from_secs(10);
        Self {
            session: session(2, ten, ten),
            now: Moment::from_nanos(0),
            rooms: RoomLimit::new(1_000),
            names: Names::default(),
            guards: BTreeMap::new(),
            vanished: BTreeSet::new(),
            connections: BTreeMap::new(),
            streams: BTreeMap::new(),
            queries: BTreeMap::new(),
            watch: None,
            out: Vec::new(),
        }
    }
}

/// `5s`, `500ms`.
fn duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(ms.parse().unwrap()),
        None => Duration::from_secs_f64(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}

/// The words of a line, some of them `key=value`.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn at(&self, place: usize) -> &'a str {
        self.0.get(place).copied().unwrap_or_default()
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn duration_ms(&self, key: &str) -> Option<u64> {
        self.value(key).map(|text| duration(text).as_millis() as u64)
    }

    fn token(&self) -> u64 {
        self.value("token").unwrap().parse().unwrap()
    }

    fn number(&self) -> u64 {
        self.0.iter().find_map(|word| word.strip_prefix('#')).unwrap().parse().unwrap()
    }

    fn how(&self) -> proto::EndReason {
        let known = [
            ("released", proto::EndReason::Released),
            ("expired", proto::EndReason::Expired),
            ("closed", proto::EndReason::Closed),
            ("forced", proto::EndReason::Forced),
            ("cancelled", proto::EndReason::Cancelled),
            ("timed_out", proto::EndReason::TimedOut),
        ];
        known
            .into_iter()
            .find(|(word, _)| self.has(word))
            .map_or(proto::EndReason::Unknown, |(_, how)| how)
    }

    fn mode(&self) -> proto::Mode {
        if self.has("shared") { proto::Mode::Shared } else { proto::Mode::Exclusive }
    }

    fn grant(&self, name: &str) -> proto::Grant {
        proto::Grant {
            token: self.token(),
            names: vec![Bytes::copy_from_slice(name.as_bytes())],
            mode: self.mode().into(),
            secret: show::secret(self.token() + if self.has("another") { 1_000 } else { 0 }),
            waited_ms: self.duration_ms("waited").unwrap_or_default(),
            ttl_ms: self.duration_ms("ttl"),
            ..proto::Grant::default()
        }
    }
}

impl Play {
    pub(crate) fn line(&mut self, line: &str) -> Vec<String> {
        let words = Words(line.split_whitespace().collect());
        match (words.at(0), words.at(1)) {
            ("setup", _) => {
                let servers = words.value("servers").map_or(2, |count| count.parse().unwrap());
                let ttl = words.value("ttl").map_or(Duration::from_secs(10), duration);
                let timeout = words.value("timeout").map_or(Duration::from_secs(10), duration);
                self.session = session(servers, ttl, timeout);
            }
            ("tick", time) => self.tick(duration(time)),
            ("close", _) => self.input(Input::Close),
            ("abandon", call) => self.input(Input::Abandon(self.names.find(call))),
            ("vanish", call) => {
                self.vanished.insert(self.names.find(call));
            }
            ("drop", guard) => {
                let guard = self.guards.get_mut(&self.names.find(guard)).unwrap();
                let (ticket, room) = (guard.ticket.clone(), guard.room.take().unwrap());
                let lost = guard.lost.is_some();
                self.input(Input::Drop { ticket, lost, room });
            }
            ("detach", guard) => {
                let guard = self.guards.remove(&self.names.find(guard)).unwrap();
                self.input(Input::Detach(guard.ticket));
            }
            ("watch", news) => {
                let news = match news {
                    "begun" => WatchUpdate::Begun,
                    "ended" => WatchUpdate::Ended(show::how(words.how())),
                    "revocation" => WatchUpdate::Revocation(Revocation {
                        by: "operator".into(),
                        reason: "maintenance".into(),
                        within: Duration::from_millis(words.duration_ms("within").unwrap()),
                        force: words.has("force"),
                    }),
                    other => panic!("`{other}` is no news"),
                };
                self.input(Input::Watched(self.watch.unwrap(), news));
            }
            (call, what) if call.ends_with(':') => self.call(call, what, &words),
            (server, what) => self.server(server, what, &words),
        }
        std::mem::take(&mut self.out)
    }

    fn call(&mut self, name: &str, what: &str, words: &Words<'_>) {
        let call = self.names.add(name.trim_end_matches(':'));
        if what == "open" {
            return self.input(Input::Open(call));
        }
        let wait_ms = if words.has("try") { None } else { words.duration_ms("wait") };
        let wait_ms = if wait_ms.is_none() && !words.has("try") { Some(u64::MAX) } else { wait_ms };
        if what == "acquire" {
            let acquire = proto::Acquire {
                names: vec![Bytes::copy_from_slice(words.at(2).as_bytes())],
                mode: words.mode().into(),
                ttl_ms: words.duration_ms("ttl"),
                wait_ms,
                ..proto::Acquire::default()
            };
            return self.ask(call, request::What::Acquire(acquire), None);
        }
        let id = self.names.find(words.at(2));
        let guard = self.guards.get_mut(&id).unwrap();
        let (ticket, own) = (guard.ticket.clone(), Some(guard.ticket.clone()));
        let change = ModeChange {
            guard: id,
            names: guard.names.clone(),
            before: guard.mode,
            own_ttl: guard.own_ttl,
        };
        match what {
            "upgrade" => {
                let upgrade = proto::Upgrade { own, wait_ms, claims: Vec::new() };
                self.ask(call, request::What::Upgrade(upgrade), Some(change));
            }
            "downgrade" => self.ask(call, request::What::Downgrade(ticket), Some(change)),
            "note" => {
                let note = Some(Bytes::copy_from_slice(words.at(3).as_bytes()));
                self.ask(call, request::What::Note(proto::NoteRequest { own, note }), None);
            }
            "release" => {
                let room = guard.room.take().unwrap();
                let what = request::What::Release(ticket);
                self.input(Input::Call(Call { call, what, room, change: None }));
            }
            other => panic!("`{other}` is no call"),
        }
    }

    fn ask(&mut self, call: CallId, what: request::What, change: Option<ModeChange>) {
        let room = self.rooms.take().unwrap();
        self.input(Input::Call(Call { call, what, room, change }));
    }

    fn server(&mut self, name: &str, what: &str, words: &Words<'_>) {
        let server = usize::from(name.as_bytes().first().unwrap() - b'a');
        if name.ends_with('>') {
            let stream =
                *self.streams.get(&server).unwrap_or_else(|| panic!("{}", words.0.join(" ")));
            return self.input(Input::Received(stream, message(what, words)));
        }
        let failure = |kind: FailureKind| Failure {
            kind,
            message: words.0.get(3..).unwrap_or_default().join(" "),
        };
        let input = match what {
            "accepts" => Input::Connected(
                *self.connections.get(&server).unwrap_or_else(|| panic!("{}", words.0.join(" "))),
            ),
            "refuses" => {
                let refused = Failure {
                    kind: FailureKind::TryElsewhere,
                    message: format!("{name}: connection refused"),
                };
                Input::NotConnected(
                    *self
                        .connections
                        .get(&server)
                        .unwrap_or_else(|| panic!("{}", words.0.join(" "))),
                    refused,
                )
            }
            "hangs" => Input::StreamEnded(
                *self.streams.get(&server).unwrap_or_else(|| panic!("{}", words.0.join(" "))),
                None,
            ),
            "fails" => {
                let kind = match words.at(2) {
                    "session_over" => FailureKind::SessionOver,
                    "unauthenticated" => FailureKind::Unauthenticated,
                    "refused" => FailureKind::Refused,
                    _ => FailureKind::TryElsewhere,
                };
                Input::StreamEnded(
                    *self.streams.get(&server).unwrap_or_else(|| panic!("{}", words.0.join(" "))),
                    Some(failure(kind)),
                )
            }
            "replies" => {
                let reply = match words.at(2) {
                    "lock" => Ok(Reply::Lock(lock(words))),
                    "done" => Ok(Reply::Done),
                    "refused" => Err(Failure {
                        kind: FailureKind::Refused,
                        message: format!("{}: no", words.at(3)),
                    }),
                    _ => Err(failure(FailureKind::TryElsewhere)),
                };
                Input::Replied(
                    *self.queries.get(&server).unwrap_or_else(|| panic!("{}", words.0.join(" "))),
                    reply,
                )
            }
            other => panic!("a server does not do `{other}`"),
        };
        self.input(input);
    }

    fn tick(&mut self, time: Duration) {
        let until = self.now.plus(time);
        while let Some(at) = self.session.wake_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let first = self.out.len();
            self.step();
            let at = show::moment(self.now);
            for line in &mut self.out[first..] {
                *line = format!("[{at}] {line}");
            }
        }
        self.now = until;
        self.step();
    }

    fn input(&mut self, input: Input) {
        self.session.input(self.now, input);
        self.step();
    }

    fn step(&mut self) {
        loop {
            let outputs: Vec<Output> = self.session.step(self.now).collect();
            let mut inputs = Vec::new();
            for output in outputs {
                self.out.extend(show::output(&output, &mut self.names));
                inputs.extend(self.apply(output));
            }
            if inputs.is_empty() {
                return;
            }
            for input in inputs {
                self.session.input(self.now, input);
            }
        }
    }

    /// What an application does with an output.
    fn apply(&mut self, output: Output) -> Option<Input> {
        use holdfast_client::session::GuardChange;
        match output {
            Output::Connect(connection, server) => {
                self.connections.insert(server, connection);
            }
            Output::OpenStream(connection, stream, _) => {
                self.streams.insert(self.names.server_of(connection), stream);
            }
            Output::Query(connection, query, _) => {
                self.queries.insert(self.names.server_of(connection), query);
            }
            Output::Watch { watch, .. } => self.watch = Some(watch),
            Output::Complete(call, Ok(Answer::Granted { grant, lease, room })) => {
                let guard = Guard {
                    ticket: show::ticket(&grant),
                    mode: grant.mode(),
                    names: grant.names.clone(),
                    own_ttl: lease.map(|lease| lease.ttl()),
                    lost: None,
                    room: None,
                };
                if self.vanished.contains(&call) {
                    return Some(Input::Drop { ticket: guard.ticket, lost: false, room });
                }
                self.guards.insert(call, Guard { room: Some(room), ..guard });
            }
            Output::Upgraded { guard, grant, room, .. } => {
                let ticket = show::ticket(&grant);
                match self.guards.get_mut(&guard).filter(|guard| guard.room.is_some()) {
                    Some(Guard { lost: Some(how), .. }) => {
                        return Some(Input::Drop {
                            ticket,
                            lost: *how == EndReason::Expired,
                            room,
                        });
                    }
                    Some(guard) => (guard.ticket, guard.mode) = (ticket, grant.mode()),
                    None => return Some(Input::Drop { ticket, lost: false, room }),
                }
            }
            Output::Guard(guard, GuardChange::Health(Health::Lost(how))) => {
                if let Some(guard) = self.guards.get_mut(&guard) {
                    guard.lost = Some(how);
                }
            }
            _ => {}
        }
        None
    }
}

fn lock(words: &Words<'_>) -> proto::Lock {
    let holders = match words.at(3).parse() {
        Ok(token) => {
            vec![proto::Ticket { token, mode: words.mode().into(), ..proto::Ticket::default() }]
        }
        Err(_) => Vec::new(),
    };
    proto::Lock { holders, ..proto::Lock::default() }
}

fn message(what: &str, words: &Words<'_>) -> proto::ToClient {
    let stands = |what| to_client::What::Status(proto::TicketStatus { what: Some(what) });
    let in_line = |token| proto::Waiting { token, secret: show::secret(token), place: 1 };
    let (number, what) = match what {
        "opened" => {
            let session = words.value("session").unwrap().parse().unwrap();
            let secret = Bytes::from_static(b"session secret");
            let tickets = tickets(words);
            let opened = proto::Opened { session, secret, node: 1, tickets, more: false };
            (0, to_client::What::Opened(opened))
        }
        "alive" => ((1 << 63) + words.number(), to_client::What::Alive(proto::Alive {})),
        "held" => (words.number(), stands(ticket_status::What::Held(words.grant(words.at(3))))),
        "waiting" => (words.number(), stands(ticket_status::What::Waiting(in_line(words.token())))),
        "over" => {
            let over = proto::Over { token: words.token(), how: words.how().into() };
            (words.number(), stands(ticket_status::What::Over(over)))
        }
        "done" => (words.number(), to_client::What::Done(proto::Done { token: 0 })),
        "refused" => {
            let refused = proto::Refused {
                code: words.at(3).to_owned(),
                message: "no".to_owned(),
                how: words.how().into(),
                ..proto::Refused::default()
            };
            (words.number(), to_client::What::Refused(refused))
        }
        "again" => {
            let why = "the server is busy".to_owned();
            (words.number(), to_client::What::TryAgain(proto::TryAgain { why }))
        }
        "granted" => (0, to_client::What::Granted(words.grant(words.at(2)))),
        "ended" => {
            let (token, how) = (words.token(), words.how().into());
            let ended = proto::Ended { token, how, held: true, ..proto::Ended::default() };
            (0, to_client::What::Ended(ended))
        }
        "revocation" => {
            let asked = proto::RevocationAsked {
                token: words.token(),
                by: "operator".into(),
                reason: "maintenance".into(),
                within_ms: words.duration_ms("within").unwrap(),
                force: words.has("force"),
                ..proto::RevocationAsked::default()
            };
            (0, to_client::What::Revocation(asked))
        }
        "session_ended" => {
            (0, to_client::What::SessionEnded(proto::SessionEnded { how: words.how().into() }))
        }
        other => panic!("a server does not send `{other}`"),
    };
    proto::ToClient { number, what: Some(what) }
}

/// The status of tickets at an attach: `held=7`, `waiting=8`, `over=9`.
fn tickets(words: &Words<'_>) -> Vec<proto::TicketStatus> {
    let status = |word: &&str| {
        let (state, token) = word.split_once('=')?;
        let token = token.parse().ok()?;
        let secret = show::secret(token);
        let what = match state {
            "held" => {
                let (names, mode) = (vec![Bytes::from_static(b"seat")], words.mode().into());
                let ttl_ms = words.duration_ms("ttl");
                let grant =
                    proto::Grant { token, names, mode, secret, ttl_ms, ..Default::default() };
                ticket_status::What::Held(grant)
            }
            "waiting" => ticket_status::What::Waiting(proto::Waiting { token, secret, place: 1 }),
            "over" => ticket_status::What::Over(proto::Over { token, how: words.how().into() }),
            _ => return None,
        };
        Some(proto::TicketStatus { what: Some(what) })
    };
    words.0.iter().filter_map(status).collect()
}
