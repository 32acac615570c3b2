//! A session that is lost by this client's clock but may still exist on the server. It must be
//! confirmed over before another one is opened, because an upgrade might still be served in it.
//!
//! An unanswered acquire with a lease of its own may hold its lock, and nobody knows that ticket's
//! secret. So it is sent again under its old number, so that it still takes effect only once, and
//! the ticket is given up. If the server has ended the session too, the ticket can't be found.

use super::SessionState;
use super::attempts::Phase;
use super::io::{Failure, Output, Query, QueryId, StreamId, TicketRef};
use super::moment::Moment;
use super::send::close_message;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, ticket_status, to_client, to_server};
use std::collections::{BTreeMap, VecDeque};

/// A lost session.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    attach: proto::Attach,
    /// Unanswered acquires with a lease of their own, by request number.
    acquires: BTreeMap<u64, proto::Acquire>,
    since: Moment,
}

impl Lost {
    pub(super) fn new(
        session: u64,
        secret: Bytes,
        acquires: BTreeMap<u64, proto::Acquire>,
        since: Moment,
    ) -> Self {
        let attach = proto::Attach { session, secret, tickets: Vec::new() };
        Self { attach, acquires, since }
    }

    pub(super) fn first_message(&self) -> proto::ToServer {
        proto::ToServer { number: 0, what: Some(to_server::What::Attach(self.attach.clone())) }
    }
}

/// Ends a lost session, on one server.
#[derive(Debug)]
pub(super) struct EndingLost {
    pub(super) stream: StreamId,
    step: Step,
    /// Acquires that are still unanswered.
    acquires: BTreeMap<u64, proto::Acquire>,
    /// Queries that give up the tickets they have drawn.
    give_up: VecDeque<Query>,
    /// Whether the server has ended it.
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Attaching,
    SendingAgain,
    GivingUp(QueryId),
    Closing,
}

impl EndingLost {
    pub(super) fn new(stream: StreamId, lost: Lost) -> Self {
        let (step, give_up) = (Step::Attaching, VecDeque::new());
        Self { stream, step, acquires: lost.acquires, give_up, ended: false }
    }

    pub(super) fn is_attaching(&self) -> bool {
        self.step == Step::Attaching
    }

    pub(super) fn query(&self) -> Option<QueryId> {
        match self.step {
            Step::GivingUp(query) => Some(query),
            _ => None,
        }
    }

    /// An acquire was answered: its ticket is to be given up.
    fn answered(&mut self, number: u64, what: Option<to_client::What>) {
        let Some(acquire) = self.acquires.remove(&number) else { return };
        let name = acquire.names.into_iter().next().unwrap_or_default();
        let status = match what {
            Some(to_client::What::Status(status)) => status.what,
            // It was refused.
            _ => None,
        };
        match status {
            Some(ticket_status::What::Held(grant)) => {
                let ticket = TicketRef { name, token: grant.token, secret: grant.secret };
                self.give_up.push_back(Query::Release(ticket));
            }
            Some(ticket_status::What::Waiting(line)) => {
                let ticket = TicketRef { name, token: line.token, secret: line.secret };
                self.give_up.push_back(Query::Cancel(ticket.clone()));
                // It may have been served before that.
                self.give_up.push_back(Query::Release(ticket));
            }
            Some(ticket_status::What::Over(_)) | None => {}
        }
    }
}

impl SessionState {
    /// Whether unanswered acquires may hold locks.
    pub(super) fn has_lost_acquires(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| !lost.acquires.is_empty())
    }

    /// Gives up acquires that could not be sent again for too long.
    pub(super) fn give_up_lost_acquires(&mut self, is_too_old: impl Fn(Moment) -> bool) {
        if let Some(lost) = self.lost.as_mut().filter(|lost| is_too_old(lost.since)) {
            lost.acquires.clear();
        }
    }

    fn ending_lost(&mut self, place: usize) -> Option<&mut EndingLost> {
        match &mut self.attempts.get_mut(place)?.phase {
            Phase::EndingLost(ending) => Some(ending),
            _ => None,
        }
    }

    /// Handles a message on the stream of a lost session.
    pub(super) fn end_lost(&mut self, place: usize, number: u64, what: Option<to_client::What>) {
        let Some(ending) = self.ending_lost(place) else { return };
        match (&ending.step, what) {
            (Step::Attaching, Some(to_client::What::Opened(_))) => self.send_acquires_again(place),
            (Step::Attaching, _) => {
                let failure = Failure::elsewhere("the server sent an unexpected first message");
                self.attempt_failed(place, failure);
            }
            (_, Some(to_client::What::SessionEnded(_))) => {
                ending.ended = true;
                ending.acquires.clear();
                match ending.step {
                    Step::GivingUp(_) => {}
                    _ => self.give_up_next(place),
                }
            }
            (Step::SendingAgain, Some(to_client::What::TryAgain(again))) => {
                self.attempt_failed(place, Failure::elsewhere(&again.why));
            }
            (Step::SendingAgain, what) => {
                // Events about a ticket have number 0, which no request has.
                ending.answered(number, what);
                if ending.acquires.is_empty() {
                    self.give_up_next(place);
                }
            }
            (Step::GivingUp(_) | Step::Closing, _) => {}
        }
    }

    fn send_acquires_again(&mut self, place: usize) {
        let Some(ending) = self.ending_lost(place) else { return };
        ending.step = Step::SendingAgain;
        let (stream, acquires) = (ending.stream, ending.acquires.clone());
        let lowest = acquires.keys().next().copied().unwrap_or_default();
        let nothing = acquires.is_empty();
        for (id, acquire) in acquires {
            let what = Some(request::What::Acquire(acquire));
            let request = to_server::What::Request(proto::Request { id, lowest, what });
            let message = proto::ToServer { number: id, what: Some(request) };
            self.outputs.push(Output::Send(stream, message));
        }
        if nothing {
            self.give_up_next(place);
        }
    }

    /// Gives up the next ticket; after the last one, closes the session.
    fn give_up_next(&mut self, place: usize) {
        let query = QueryId(self.next_id());
        let Some(attempt) = self.attempts.get_mut(place) else { return };
        let connection = attempt.connection;
        let Phase::EndingLost(ending) = &mut attempt.phase else { return };
        if let Some(ticket) = ending.give_up.pop_front() {
            ending.step = Step::GivingUp(query);
            self.outputs.push(Output::Query(connection, query, ticket));
        } else if ending.ended {
            self.open_stream(place);
        } else {
            ending.step = Step::Closing;
            self.outputs.push(Output::Send(ending.stream, close_message()));
        }
    }

    /// A ticket was given up; a refusal means that there was none.
    pub(super) fn gave_up(&mut self, place: usize, answer: Result<(), Failure>) {
        match answer {
            Err(failure) if failure.may_work_elsewhere() => self.attempt_failed(place, failure),
            _ => self.give_up_next(place),
        }
    }
}
