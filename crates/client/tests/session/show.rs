//! Outputs in readable form.

use bytes::Bytes;
use holdfast_client::EndReason;
use holdfast_client::session::{
    Answer, CallId, ConnectionId, GuardChange, Lease, Moment, Output, Query, StreamId, TicketRef,
    WatchId,
};
use holdfast_client::{Error, Health};
use holdfast_proto::v1::{self as proto, request, to_client, to_server};
use std::collections::BTreeMap;

/// Names for ids.
#[derive(Default)]
pub(crate) struct Names {
    calls: Vec<String>,
    servers: BTreeMap<ConnectionId, usize>,
    streams: BTreeMap<StreamId, usize>,
    watches: BTreeMap<WatchId, u64>,
}

impl Names {
    pub(crate) fn add(&mut self, call: &str) -> CallId {
        self.calls.push(call.to_owned());
        CallId(self.calls.len() as u64)
    }

    pub(crate) fn find(&self, call: &str) -> CallId {
        let place = self.calls.iter().rposition(|known| known == call);
        let place = place.unwrap_or_else(|| panic!("there is no `{call}`"));
        CallId(place as u64 + 1)
    }

    fn call(&self, call: CallId) -> &str {
        &self.calls[call.0 as usize - 1]
    }

    pub(crate) fn server_of(&self, connection: ConnectionId) -> usize {
        self.servers[&connection]
    }

    fn stream(&self, stream: StreamId) -> String {
        server(self.streams[&stream])
    }
}

pub(crate) fn server(place: usize) -> String {
    char::from(b'a' + place as u8).to_string()
}

pub(crate) fn secret(token: u64) -> Bytes {
    Bytes::from(format!("secret {token}"))
}

pub(crate) fn ticket(grant: &proto::Grant) -> TicketRef {
    let name = grant.names.first().cloned().unwrap_or_default();
    TicketRef { name, token: grant.token, secret: grant.secret.clone() }
}

pub(crate) fn moment(moment: Moment) -> String {
    format!("{}s", moment.nanos() as f64 / 1e9)
}

pub(crate) fn how(how: proto::EndReason) -> EndReason {
    match how {
        proto::EndReason::Released => EndReason::Released,
        proto::EndReason::Expired => EndReason::Expired,
        proto::EndReason::Closed => EndReason::Closed,
        proto::EndReason::Forced => EndReason::Forced,
        _ => EndReason::Unknown,
    }
}

fn until(lease: &Lease) -> String {
    format!("until {}", moment(lease.ends()))
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn output(output: &Output, names: &mut Names) -> Option<String> {
    Some(match output {
        Output::Connect(connection, place) => {
            names.servers.insert(*connection, *place);
            format!("connect to {}", server(*place))
        }
        Output::OpenStream(connection, stream, first) => {
            let place = names.server_of(*connection);
            names.streams.insert(*stream, place);
            format!("{}< {}", server(place), sent(first))
        }
        Output::Send(stream, message) => format!("{}< {}", names.stream(*stream), sent(message)),
        Output::Query(connection, _, query) => {
            let asked = match query {
                Query::Show(name) => format!("show {}", text(name)),
                Query::Cancel(ticket) => format!("cancel token={}", ticket.token),
                Query::Release(ticket) => format!("release token={}", ticket.token),
            };
            format!("{}? {asked}", server(names.server_of(*connection)))
        }
        Output::Disconnect(connection) => {
            format!("disconnect from {}", server(names.server_of(*connection)))
        }
        Output::Watch { watch, name, token } => {
            names.watches.insert(*watch, *token);
            format!("watch {} for token={token}", text(name))
        }
        Output::Unwatch(watch) => format!("unwatch token={}", names.watches[watch]),
        Output::SessionOpened(lease) => format!("session opened {}", until(lease)),
        Output::SessionConfirmed(at) => format!("session confirmed, sent at {}", moment(*at)),
        Output::Complete(call, answer) => format!("{}: {}", names.call(*call), answered(answer)),
        Output::Upgraded { guard, call, grant, .. } => {
            let guard = names.call(*guard);
            let call = call.map(|call| format!(" (for {})", names.call(call))).unwrap_or_default();
            format!("{guard}: upgraded token={}{call}", grant.token)
        }
        Output::Guard(guard, change) => format!("{}: {}", names.call(*guard), changed(change)),
    })
}

fn answered(answer: &Result<Answer, Error>) -> String {
    match answer {
        Ok(Answer::Opened) => "opened".to_owned(),
        Ok(Answer::Reply(to_client::What::Done(_))) => "done".to_owned(),
        Ok(Answer::Reply(reply)) => format!("{reply:?}"),
        Ok(Answer::Granted { grant, lease, .. }) => {
            let lease = lease.as_ref().map_or_else(|| "with its session".to_owned(), until);
            let mode = if grant.mode() == proto::Mode::Shared { " shared" } else { "" };
            format!("granted token={}{mode} {lease}", grant.token)
        }
        Err(error) => format!("error, {error}"),
    }
}

fn changed(change: &GuardChange) -> String {
    match change {
        GuardChange::Health(Health::Good) => "good".to_owned(),
        GuardChange::Health(Health::Jeopardy) => "in jeopardy".to_owned(),
        GuardChange::Health(Health::Lost(how)) => format!("lost ({how})"),
        GuardChange::Confirmed(at) => format!("renewed, sent at {}", moment(*at)),
        GuardChange::Revocation(asked, forced_at) => {
            let forced = forced_at.map(|at| format!(", lost at {}", moment(at)));
            format!("asked to let go ({}){}", text(&asked.reason), forced.unwrap_or_default())
        }
        GuardChange::Mode(proto::Mode::Shared) => "still shared".to_owned(),
        GuardChange::Mode(_) => "still exclusive".to_owned(),
        GuardChange::OverAsWriter(how) => format!("its writer's ticket is over ({how})"),
        GuardChange::Settled => "settled".to_owned(),
    }
}

fn sent(message: &proto::ToServer) -> String {
    match message.what.as_ref().unwrap() {
        to_server::What::Open(open) => format!("open ttl={}s", open.ttl_ms / 1_000),
        to_server::What::Attach(attach) => {
            format!("attach session={} tickets={:?}", attach.session, attach.tickets)
        }
        to_server::What::Beat(_) => format!("heartbeat #{}", message.number - (1 << 63)),
        to_server::What::Close(_) => "close".to_owned(),
        to_server::What::Request(request) => {
            format!("#{} {}", request.id, asked(request.what.as_ref().unwrap()))
        }
    }
}

fn asked(what: &request::What) -> String {
    let waits = |wait_ms: Option<u64>| match wait_ms {
        None => " try".to_owned(),
        Some(u64::MAX) => String::new(),
        Some(ms) => format!(" wait={ms}ms"),
    };
    let token = |ticket: &Option<TicketRef>| ticket.as_ref().unwrap().token;
    match what {
        request::What::Acquire(acquire) => {
            let ttl = acquire.ttl_ms.map(|ms| format!(" ttl={ms}ms")).unwrap_or_default();
            let mode = if acquire.mode() == proto::Mode::Shared { " shared" } else { "" };
            format!("acquire {}{mode}{ttl}{}", text(&acquire.names[0]), waits(acquire.wait_ms))
        }
        request::What::Release(ticket) => format!("release token={}", ticket.token),
        request::What::Cancel(ticket) => format!("cancel token={}", ticket.token),
        request::What::Renew(renew) => format!("renew token={}", token(&renew.own)),
        request::What::Note(note) => format!("note token={}", token(&note.own)),
        request::What::Upgrade(upgrade) => {
            format!("upgrade token={}{}", token(&upgrade.own), waits(upgrade.wait_ms))
        }
        request::What::Downgrade(ticket) => format!("downgrade token={}", ticket.token),
        other => format!("{other:?}"),
    }
}
