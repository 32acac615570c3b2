//! A naive cluster: one table of tickets, obviously right and nothing more. It ends leases at the
//! earliest moment at which a real one may.

use bytes::Bytes;
use holdfast_client::session::{Failure, FailureKind, Query, Reply, TicketRef};
use holdfast_proto::v1::{self as proto, request, ticket_status, to_client, to_server};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Held,
    Over(proto::EndReason),
}

#[derive(Debug)]
pub(crate) struct Ticket {
    name: Bytes,
    session: u64,
    mode: proto::Mode,
    own_ttl_ms: Option<u64>,
    secret: Bytes,
    upgrades: Option<u64>,
    pub(crate) state: State,
    drawn_at: u64,
    waits_until: Option<u64>,
    waited_ms: u64,
    /// When its own lease ends.
    deadline: u64,
    /// The client has received its secret.
    pub(crate) known: bool,
    /// Nobody can know of it: its session ended before the client learned of it.
    pub(crate) excused: bool,
}

#[derive(Debug)]
struct Session {
    secret: Bytes,
    ttl_ms: u64,
    confirmed_at: u64,
    alive: bool,
    requests: BTreeMap<u64, Answer>,
}

/// What is remembered of a request: its ticket, whose current status is the answer, or an answer.
#[derive(Debug, Clone)]
enum Answer {
    Ticket(u64),
    Replied(to_client::What),
}

/// An event for a session's stream.
pub(crate) type GuardEvent = (u64, proto::ToClient);

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) now: u64,
    drawn: u64,
    pub(crate) tickets: BTreeMap<u64, Ticket>,
    sessions: BTreeMap<u64, Session>,
    pub(crate) news: Vec<GuardEvent>,
    /// Tickets that have ended, for watches.
    pub(crate) ended: Vec<(u64, proto::EndReason)>,
    pub(crate) forced: BTreeSet<u64>,
}

fn number(session: u64) -> Bytes {
    Bytes::from(session.to_le_bytes().to_vec())
}

fn refused(code: &str, how: proto::EndReason) -> to_client::What {
    let (code, message) = (code.to_owned(), "no".to_owned());
    to_client::What::Refused(proto::Refused {
        code,
        message,
        how: how.into(),
        ..Default::default()
    })
}

fn done() -> to_client::What {
    to_client::What::Done(proto::Done { token: 0 })
}

impl Cluster {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    pub(crate) fn is_held(&self, token: u64) -> bool {
        self.tickets.get(&token).is_some_and(|ticket| ticket.state == State::Held)
    }

    /// Whether this ticket is held, or a later one from its upgrade; or an operator broke it.
    pub(crate) fn may_be_held(&self, token: u64) -> bool {
        let upgraded = self.tickets.iter().filter(|(_, ticket)| ticket.upgrades == Some(token));
        self.is_held(token)
            || self.forced.contains(&token)
            || upgraded.map(|(token, _)| *token).any(|token| self.may_be_held(token))
    }

    /// Whether this ticket is held exclusively, or an operator broke it.
    pub(crate) fn may_write(&self, token: u64) -> bool {
        let ticket = self.tickets.get(&token);
        self.forced.contains(&token)
            || ticket.is_some_and(|ticket| ticket.mode == proto::Mode::Exclusive)
    }

    pub(crate) fn alive_sessions(&self) -> usize {
        self.sessions.values().filter(|session| session.alive).count()
    }

    /// Time passes: leases, sessions and waits end.
    pub(crate) fn pass_to(&mut self, now: u64) {
        self.now = now;
        let silent =
            |session: &Session| session.alive && now >= session.confirmed_at + session.ttl_ms;
        let silent: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| silent(session))
            .map(|(id, _)| *id)
            .collect();
        for session in silent {
            self.end_session(session, proto::EndReason::Expired);
        }
        let over = |ticket: &Ticket| match ticket.state {
            State::Held if ticket.own_ttl_ms.is_some() && now >= ticket.deadline => {
                Some(proto::EndReason::Expired)
            }
            State::Waiting if ticket.waits_until.is_some_and(|end| now >= end) => {
                Some(proto::EndReason::TimedOut)
            }
            _ => None,
        };
        let ended: Vec<(u64, proto::EndReason)> = self
            .tickets
            .iter()
            .filter_map(|(token, ticket)| Some((*token, over(ticket)?)))
            .collect();
        for (token, how) in ended {
            self.end(token, how);
        }
    }

    pub(crate) fn end_session(&mut self, id: u64, how: proto::EndReason) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.alive) else {
            return;
        };
        session.alive = false;
        let ended = proto::SessionEnded { how: how.into() };
        let what = Some(to_client::What::SessionEnded(ended));
        self.news.push((id, proto::ToClient { number: 0, what }));
        let mine: Vec<u64> = self
            .tickets
            .iter_mut()
            .filter(|(_, ticket)| ticket.session == id)
            .filter_map(|(token, ticket)| {
                ticket.excused |= !ticket.known;
                let outlives = ticket.state == State::Held && ticket.own_ttl_ms.is_some();
                (!outlives).then_some(*token)
            })
            .collect();
        for token in mine {
            self.end(token, how);
        }
    }

    /// An operator ends all sessions: no client can know that before it is notified.
    pub(crate) fn end_all_sessions(&mut self) {
        let held = |ticket: &Ticket| ticket.state == State::Held && ticket.own_ttl_ms.is_none();
        let ended = self.tickets.iter().filter(|(_, ticket)| held(ticket));
        self.forced.extend(ended.map(|(token, _)| *token));
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end_session(id, proto::EndReason::Expired);
        }
    }

    /// Ends tickets that nobody can know of, as their own leases eventually would: others wait for
    /// them.
    pub(crate) fn end_excused(&mut self) {
        let excused = self.tickets.iter().filter(|(_, ticket)| ticket.excused);
        for token in excused.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.end(token, proto::EndReason::Expired);
        }
    }

    /// Breaks a lock.
    pub(crate) fn force(&mut self, token: u64) {
        if self.is_held(token) {
            self.forced.insert(token);
            self.end(token, proto::EndReason::Forced);
        }
    }

    fn end(&mut self, token: u64, how: proto::EndReason) {
        let Some(ticket) = self.tickets.get_mut(&token) else { return };
        if matches!(ticket.state, State::Over(_)) {
            return;
        }
        let held = ticket.state == State::Held;
        ticket.state = State::Over(how);
        let (session, name) = (ticket.session, ticket.name.clone());
        let ended = proto::Ended { token, how: how.into(), held, ..Default::default() };
        let what = Some(to_client::What::Ended(ended));
        self.news.push((session, proto::ToClient { number: 0, what }));
        self.ended.push((token, how));
        self.serve(&name);
    }

    /// Serves the next ticket.
    fn serve(&mut self, name: &Bytes) {
        let waiting: Vec<u64> = self
            .tickets
            .iter()
            .filter(|(_, ticket)| ticket.name == *name && ticket.state == State::Waiting)
            .map(|(token, _)| *token)
            .collect();
        for token in waiting {
            let ticket = &self.tickets[&token];
            let reader = ticket.upgrades;
            let holders = self.tickets.iter().filter(|(held, holder)| {
                holder.name == *name && holder.state == State::Held && Some(**held) != reader
            });
            let shared = |mode| mode == proto::Mode::Shared;
            let free = holders
                .map(|(_, holder)| holder.mode)
                .all(|mode| shared(mode) && shared(ticket.mode));
            if !free {
                return;
            }
            self.grant(token);
        }
    }

    fn grant(&mut self, token: u64) {
        let now = self.now;
        let Some(ticket) = self.tickets.get_mut(&token) else { return };
        ticket.state = State::Held;
        ticket.waited_ms = now - ticket.drawn_at;
        ticket.deadline = now + ticket.own_ttl_ms.unwrap_or_default();
        let (session, reader) = (ticket.session, ticket.upgrades);
        if let Some(reader) = reader {
            self.end(reader, proto::EndReason::Released);
        }
        let what = Some(to_client::What::Granted(self.grant_of(token)));
        self.news.push((session, proto::ToClient { number: 0, what }));
    }

    fn grant_of(&self, token: u64) -> proto::Grant {
        let ticket = &self.tickets[&token];
        proto::Grant {
            token,
            names: vec![ticket.name.clone()],
            mode: ticket.mode.into(),
            secret: ticket.secret.clone(),
            waited_ms: ticket.waited_ms,
            ttl_ms: ticket.own_ttl_ms,
            ..proto::Grant::default()
        }
    }

    fn ticket_status(&self, token: u64) -> proto::TicketStatus {
        let unknown = State::Over(proto::EndReason::Unknown);
        let state = self.tickets.get(&token).map_or(unknown, |ticket| ticket.state);
        let what = match state {
            State::Waiting => {
                let secret = self.tickets[&token].secret.clone();
                ticket_status::What::Waiting(proto::Waiting { token, secret, place: 1 })
            }
            State::Held => ticket_status::What::Held(self.grant_of(token)),
            State::Over(how) => ticket_status::What::Over(proto::Over { token, how: how.into() }),
        };
        proto::TicketStatus { what: Some(what) }
    }

    /// The first message of a stream: the session, and the first replies.
    pub(crate) fn begin(
        &mut self,
        first: proto::ToServer,
    ) -> Result<(u64, proto::ToClient), Failure> {
        let (session, tickets) = match first.what {
            Some(to_server::What::Open(open)) => {
                let id = self.draw();
                let session = Session {
                    secret: number(id),
                    ttl_ms: open.ttl_ms,
                    confirmed_at: self.now,
                    alive: true,
                    requests: BTreeMap::new(),
                };
                self.sessions.insert(id, session);
                (id, Vec::new())
            }
            Some(to_server::What::Attach(attach)) => {
                let session = self.sessions.get_mut(&attach.session);
                let Some(session) = session.filter(|session| session.alive) else {
                    let message = "session_ended: it is over".to_owned();
                    return Err(Failure { kind: FailureKind::SessionOver, message });
                };
                session.confirmed_at = self.now;
                let own = |token: &u64| match self.tickets.get(token) {
                    Some(ticket) => ticket.session == attach.session,
                    None => true,
                };
                let tickets = attach.tickets.into_iter().filter(own);
                (attach.session, tickets.map(|token| self.ticket_status(token)).collect())
            }
            other => panic!("a stream does not begin with {other:?}"),
        };
        let secret = self.sessions[&session].secret.clone();
        let opened = proto::Opened { session, secret, node: 1, tickets, more: false };
        let what = Some(to_client::What::Opened(opened));
        Ok((session, proto::ToClient { number: 0, what }))
    }

    pub(crate) fn message(&mut self, session: u64, message: proto::ToServer) {
        let number = message.number;
        let what = match message.what {
            Some(to_server::What::Beat(_)) => {
                let Some(known) = self.sessions.get_mut(&session).filter(|known| known.alive)
                else {
                    return;
                };
                known.confirmed_at = self.now;
                to_client::What::Alive(proto::Alive {})
            }
            Some(to_server::What::Close(_)) => {
                return self.end_session(session, proto::EndReason::Closed);
            }
            Some(to_server::What::Request(request)) => match self.request(session, request) {
                Some(what) => what,
                None => return,
            },
            other => panic!("{other:?} comes first or never"),
        };
        self.news.push((session, proto::ToClient { number, what: Some(what) }));
    }

    fn request(&mut self, session: u64, request: proto::Request) -> Option<to_client::What> {
        let known = self.sessions.get_mut(&session).filter(|known| known.alive)?;
        known.requests.retain(|id, _| *id >= request.lowest);
        let answer = match known.requests.get(&request.id) {
            Some(answer) => answer.clone(),
            None => {
                let answer = self.perform(session, request.what.unwrap());
                let known = self.sessions.get_mut(&session)?;
                known.requests.insert(request.id, answer.clone());
                answer
            }
        };
        Some(match answer {
            Answer::Ticket(token) => to_client::What::Status(self.ticket_status(token)),
            Answer::Replied(what) => what,
        })
    }

    fn perform(&mut self, session: u64, what: request::What) -> Answer {
        match what {
            request::What::Acquire(acquire) => {
                let name = acquire.names[0].clone();
                let mode = acquire.mode();
                let token =
                    self.new_ticket(session, name, mode, acquire.ttl_ms, acquire.wait_ms, None);
                self.enter(token, acquire.wait_ms)
            }
            request::What::Upgrade(upgrade) => {
                let reader = upgrade.own.unwrap();
                let Some(held) = self.tickets.get(&reader.token) else {
                    return Answer::Replied(refused("not_held", proto::EndReason::Unknown));
                };
                if let State::Over(how) = held.state {
                    return Answer::Replied(refused("not_held", how));
                }
                let (name, ttl) = (held.name.clone(), held.own_ttl_ms);
                let waits = |ticket: &Ticket| ticket.name == name && ticket.state == State::Waiting;
                if self.tickets.values().any(waits) {
                    return Answer::Replied(refused("upgrade_blocked", proto::EndReason::Unknown));
                }
                let mode = proto::Mode::Exclusive;
                let upgrades = Some(reader.token);
                let token = self.new_ticket(session, name, mode, ttl, upgrade.wait_ms, upgrades);
                self.enter(token, upgrade.wait_ms)
            }
            request::What::Cancel(ticket) => Answer::Replied(self.cancel(&ticket)),
            request::What::Release(ticket) => Answer::Replied(self.release(&ticket)),
            request::What::Renew(renew) => {
                let token = renew.own.unwrap().token;
                Answer::Replied(self.held(token, |ticket, now| {
                    ticket.deadline = now + renew.ttl_ms.unwrap();
                }))
            }
            request::What::Downgrade(ticket) => {
                let answer = self.held(ticket.token, |held, _| held.mode = proto::Mode::Shared);
                let name = ticket.name;
                self.serve(&name);
                Answer::Replied(answer)
            }
            request::What::Note(note) => {
                Answer::Replied(self.held(note.own.unwrap().token, |_, _| {}))
            }
            other => panic!("nobody asks for {other:?}"),
        }
    }

    fn new_ticket(
        &mut self,
        session: u64,
        name: Bytes,
        mode: proto::Mode,
        own_ttl_ms: Option<u64>,
        wait_ms: Option<u64>,
        upgrades: Option<u64>,
    ) -> u64 {
        let token = self.draw();
        // An upgrade's ticket has its reader's secret.
        let reader = upgrades.and_then(|reader| self.tickets.get(&reader));
        let secret = reader.map_or_else(|| number(token << 32), |reader| reader.secret.clone());
        let ticket = Ticket {
            name,
            session,
            mode,
            own_ttl_ms,
            secret,
            known: upgrades.is_some(),
            upgrades,
            state: State::Waiting,
            drawn_at: self.now,
            waits_until: wait_ms.filter(|ms| *ms < u64::MAX).map(|ms| self.now + ms),
            waited_ms: 0,
            deadline: 0,
            excused: false,
        };
        self.tickets.insert(token, ticket);
        token
    }

    /// A ticket joins its line; a try leaves at once if it is not served.
    fn enter(&mut self, token: u64, wait_ms: Option<u64>) -> Answer {
        let name = self.tickets[&token].name.clone();
        let news = self.news.len();
        self.serve(&name);
        // The answer already says that it is held.
        let granted = |(_, message): &GuardEvent| matches!(&message.what, Some(to_client::What::Granted(grant)) if grant.token == token);
        if let Some(place) = self.news.iter().skip(news).position(granted) {
            self.news.remove(news + place);
        }
        if self.tickets[&token].state == State::Waiting && wait_ms.is_none_or(|ms| ms == 0) {
            self.tickets.remove(&token);
            return Answer::Replied(refused("not_acquired", proto::EndReason::Unknown));
        }
        Answer::Ticket(token)
    }

    fn held(&mut self, token: u64, change: impl FnOnce(&mut Ticket, u64)) -> to_client::What {
        let now = self.now;
        match self.tickets.get_mut(&token) {
            Some(ticket) if ticket.state == State::Held => {
                change(ticket, now);
                done()
            }
            Some(Ticket { state: State::Over(how), .. }) => refused("not_held", *how),
            _ => refused("not_held", proto::EndReason::Unknown),
        }
    }

    fn cancel(&mut self, ticket: &TicketRef) -> to_client::What {
        match self.tickets.get(&ticket.token).map(|known| (known.state, &known.secret)) {
            Some((State::Waiting, _)) => {
                self.end(ticket.token, proto::EndReason::Cancelled);
                done()
            }
            Some((State::Held, secret)) if *secret == ticket.secret => {
                refused("already_served", proto::EndReason::Unknown)
            }
            Some((State::Over(how), _)) => refused("not_held", how),
            _ => refused("not_held", proto::EndReason::Unknown),
        }
    }

    fn release(&mut self, ticket: &TicketRef) -> to_client::What {
        match self.tickets.get(&ticket.token).map(|known| known.state) {
            Some(State::Held) => {
                self.end(ticket.token, proto::EndReason::Released);
                done()
            }
            Some(State::Over(proto::EndReason::Released)) => done(),
            Some(State::Over(how)) => refused("not_held", how),
            _ => refused("not_held", proto::EndReason::Unknown),
        }
    }

    pub(crate) fn query(&mut self, query: Query) -> Result<Reply, Failure> {
        let answer = match query {
            Query::Show(name) => {
                let held = |ticket: &&Ticket| ticket.name == name && ticket.state == State::Held;
                let holders = self.tickets.iter().filter(|(_, ticket)| held(ticket));
                let holders = holders.map(|(token, ticket)| proto::Ticket {
                    token: *token,
                    mode: ticket.mode.into(),
                    ..proto::Ticket::default()
                });
                let holders = holders.collect();
                return Ok(Reply::Lock(proto::Lock { holders, ..proto::Lock::default() }));
            }
            Query::Cancel(ticket) => self.cancel(&ticket),
            Query::Release(ticket) => self.release(&ticket),
        };
        match answer {
            to_client::What::Refused(refused) => Err(Failure {
                kind: FailureKind::Refused,
                message: format!("{}: {}", refused.code, refused.message),
            }),
            _ => Ok(Reply::Done),
        }
    }

    /// The client has received a message: it knows the secrets in it.
    pub(crate) fn received(&mut self, message: &proto::ToClient) {
        let mut statuses = Vec::new();
        match &message.what {
            Some(to_client::What::Granted(grant)) => self.learn(grant.token),
            Some(to_client::What::Status(status)) => statuses.push(status),
            Some(to_client::What::Opened(opened)) => statuses.extend(&opened.tickets),
            _ => {}
        }
        for status in statuses {
            match &status.what {
                Some(ticket_status::What::Held(grant)) => self.learn(grant.token),
                Some(ticket_status::What::Waiting(line)) => self.learn(line.token),
                _ => {}
            }
        }
    }

    fn learn(&mut self, token: u64) {
        if let Some(ticket) = self.tickets.get_mut(&token) {
            (ticket.known, ticket.excused) = (true, false);
        }
    }
}
