//! Upgrades that were lost with their session. The reader's ticket has a lease of its own, so if
//! the upgrade was served, the writer's ticket is still held: it must be found, or nobody could
//! ever release it.
//!
//! The lost session is closed first (`lost.rs`), so that the upgrade can't be served any more. Then
//! the lock is queried: its holder is the writer if it has the reader's secret.

use super::SessionState;
use super::io::{ConnectionId, Failure, GuardChange, Output, Query, QueryId, Reply, TicketRef};
use super::request::Request;
use crate::error::{EndReason, Error};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::time::Duration;

/// How long a server may take to answer a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(3);

/// An upgrade whose outcome is not known.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) request: Request,
    /// The writer's ticket, if its number is known.
    token: Option<u64>,
    search: Option<Search>,
}

/// The progress of a search.
#[derive(Debug)]
struct Search {
    connection: ConnectionId,
    query: QueryId,
    until: super::Moment,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Who holds the lock?
    Holder,
    /// Is this holder the writer?
    IsOurs(u64),
    /// How did earlier holders end? All names before this one have been queried.
    Endings { writer: u64, name: usize, after: Vec<proto::PriorEndings> },
}

impl Orphan {
    fn reader(&self) -> Option<&TicketRef> {
        match &self.request.what {
            request::What::Upgrade(upgrade) => upgrade.own.as_ref(),
            _ => None,
        }
    }

    fn names(&self) -> &[Bytes] {
        self.request.change.as_ref().map_or(&[], |change| &change.names)
    }
}

impl SessionState {
    /// An upgrade was unanswered or waiting when its session was lost.
    pub(super) fn lose_upgrade(&mut self, mut request: Request, token: Option<u64>, error: &Error) {
        request.fail(&mut self.outputs, error.clone());
        let Some(change) = &request.change else { return };
        if change.own_ttl.is_some() {
            self.orphans.push(Orphan { request, token, search: None });
        } else {
            // The writer's ticket, if there is one, ends with the session, like the reader's.
            self.notify_guard(change.guard, GuardChange::OverAsWriter(EndReason::Expired));
        }
    }

    /// Gives up upgrades that can't be found: their outcome stays unknown.
    pub(super) fn give_up_orphans(&mut self, give_up: impl Fn(&Orphan) -> bool) {
        for orphan in self.orphans.extract_if(.., |orphan| give_up(orphan)) {
            if let Some(guard) = orphan.request.guard() {
                let change = GuardChange::OverAsWriter(EndReason::Unknown);
                self.outputs.push(Output::Guard(guard, change));
            }
        }
    }

    /// Searches for all of them over a new connection.
    pub(super) fn begin_searches(&mut self, connection: ConnectionId) {
        for place in 0..self.orphans.len() {
            self.search(place, connection, Step::Holder);
        }
    }

    pub(super) fn stop_searches(&mut self) {
        self.orphans.iter_mut().for_each(|orphan| orphan.search = None);
    }

    /// Leaves a server that does not answer a search.
    pub(super) fn end_searches(&mut self) {
        let now = self.now;
        let late = |orphan: &Orphan| orphan.search.as_ref().is_some_and(|s| now >= s.until);
        if self.orphans.iter().any(late) {
            self.note_trouble("the server does not answer".to_owned());
            (self.leave, self.useful) = (true, false);
        }
    }

    fn search(&mut self, place: usize, connection: ConnectionId, step: Step) {
        let query = QueryId(self.next_id());
        let until = self.now.plus(SEARCH_TIMEOUT);
        let Some(orphan) = self.orphans.get_mut(place) else { return };
        let Some(reader) = orphan.reader() else { return };
        let ask = match &step {
            Step::Holder => Query::Show(reader.name.clone()),
            // A held ticket can't be cancelled, but only its owner gets that answer.
            Step::IsOurs(token) => Query::Cancel(TicketRef { token: *token, ..reader.clone() }),
            Step::Endings { name, .. } => {
                Query::Show(orphan.names().get(*name).cloned().unwrap_or_default())
            }
        };
        orphan.search = Some(Search { connection, query, until, step });
        self.outputs.push(Output::Query(connection, query, ask));
    }

    pub(super) fn search_replied(&mut self, query: QueryId, reply: Result<Reply, Failure>) {
        let searched =
            |orphan: &Orphan| orphan.search.as_ref().is_some_and(|search| search.query == query);
        let Some(place) = self.orphans.iter().position(searched) else { return };
        let Some(orphan) = self.orphans.get_mut(place) else { return };
        let Some(Search { connection, step, .. }) = orphan.search.take() else { return };
        let next = match (step, reply) {
            (Step::Holder, Ok(Reply::Lock(lock))) => {
                let known = orphan.token;
                match orphan.reader().and_then(|reader| writer(&lock, reader, known)) {
                    Some(writer) if known.is_some() => endings(writer),
                    Some(writer) => Step::IsOurs(writer),
                    None => return self.found(place, None),
                }
            }
            (Step::IsOurs(writer), Err(failure)) if failure.is_already_served() => endings(writer),
            (Step::IsOurs(_), Ok(_)) => return self.found(place, None),
            (Step::IsOurs(_), Err(failure)) if !failure.may_work_elsewhere() => {
                return self.found(place, None);
            }
            (Step::Endings { writer, name, mut after }, Ok(Reply::Lock(lock))) => {
                let proto::Lock { last, needs_recovery, .. } = lock;
                let names = orphan.names();
                if let Some(name) = names.get(name).cloned()
                    && (last.is_some() || needs_recovery.is_some())
                {
                    after.push(proto::PriorEndings { name, last, needs_recovery });
                }
                if name + 1 < names.len() {
                    Step::Endings { writer, name: name + 1, after }
                } else {
                    return self.found(place, Some((writer, after)));
                }
            }
            (_, reply) => {
                let failure = reply.err().map(|failure| failure.message);
                self.note_trouble(failure.unwrap_or_default());
                (self.leave, self.useful) = (true, false);
                return;
            }
        };
        self.search(place, connection, next);
    }

    /// The result of a search: the writer's ticket; `None` if the upgrade was not served, or is
    /// over.
    fn found(&mut self, place: usize, writer: Option<(u64, Vec<proto::PriorEndings>)>) {
        let mut orphan = self.orphans.swap_remove(place);
        let room = orphan.request.room.take();
        match (writer, orphan.reader().cloned(), room) {
            (Some((token, after)), Some(reader), Some(room)) => {
                let change = orphan.request.change.as_ref();
                let own_ttl = change.and_then(|change| change.own_ttl);
                let ttl_ms = own_ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
                let grant = proto::Grant {
                    token,
                    names: orphan.names().to_vec(),
                    mode: proto::Mode::Exclusive.into(),
                    secret: reader.secret,
                    ttl_ms,
                    after,
                    ..proto::Grant::default()
                };
                self.upgraded(reader.token, orphan.request, grant, room);
            }
            _ => {
                self.not_upgraded(&orphan.request);
            }
        }
        self.look_soon();
    }
}

fn endings(writer: u64) -> Step {
    Step::Endings { writer, name: 0, after: Vec::new() }
}

/// The holder that may be the writer.
fn writer(lock: &proto::Lock, reader: &TicketRef, known: Option<u64>) -> Option<u64> {
    let writes = |holder: &&proto::Ticket| {
        let fits = known.map_or(holder.token > reader.token, |token| holder.token == token);
        fits && holder.mode() == proto::Mode::Exclusive
    };
    lock.holders.iter().find(writes).map(|holder| holder.token)
}
