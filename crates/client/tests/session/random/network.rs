//! What happens to the session's outputs: messages go over connections that delay them or break,
//! answers go to an application that may be gone.

use super::{Guard, Stream, Way, World};
use holdfast_client::session::{
    Answer, CallId, ConnectionId, Failure, FailureKind, GuardChange, Input, Output, StreamId,
    TicketRef, WatchUpdate,
};
use holdfast_client::{EndReason, Health};
use holdfast_proto::v1 as proto;
use std::collections::VecDeque;

fn unavailable() -> Failure {
    Failure { kind: FailureKind::TryElsewhere, message: "connection refused".to_owned() }
}

impl World {
    /// When something that is sent now arrives: xorshift.
    pub(super) fn due(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.now_ms + self.random % 60
    }

    fn way(&self, connection: ConnectionId) -> Way {
        self.connections.get(&connection).map_or(Way::Cut, |server| self.ways[*server])
    }

    /// Handles what has arrived by now.
    pub(super) fn network(&mut self) {
        let (now, now_ms) = (self.now(), self.now_ms);
        let mut inputs = Vec::new();
        for (_, call) in self.abandons.extract_if(.., |(due, _)| *due <= now_ms) {
            inputs.push(Input::Abandon(call));
        }
        let connecting: Vec<_> =
            self.connecting.extract_if(.., |(due, _)| *due <= now_ms).collect();
        for (due, connection) in connecting {
            match self.way(connection) {
                Way::Stalled => self.connecting.push((due, connection)),
                Way::Cut => inputs.push(Input::NotConnected(connection, unavailable())),
                Way::Open | Way::AnswersWait => inputs.push(Input::Connected(connection)),
            }
        }
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            if self.way(self.streams[&id].connection) == Way::Cut {
                self.streams.remove(&id);
                inputs.push(Input::StreamEnded(id, Some(unavailable())));
                continue;
            }
            self.deliver_to_server(id);
        }
        self.route();
        for (id, stream) in &mut self.streams {
            let server = self.connections.get(&stream.connection);
            if server.is_none_or(|server| self.ways[*server] != Way::Open) {
                continue;
            }
            while let Some((_, message)) = stream.to_client.pop_front_if(|(due, _)| *due <= now_ms)
            {
                match message {
                    Ok(message) => {
                        self.cluster.received(&message);
                        inputs.push(Input::Received(*id, message));
                    }
                    Err(failure) => inputs.push(Input::StreamEnded(*id, failure)),
                }
            }
        }
        let queries: Vec<_> = self.queries.extract_if(.., |(due, ..)| *due <= now_ms).collect();
        for (due, connection, id, query) in queries {
            match self.way(connection) {
                Way::Open => inputs.push(Input::Replied(id, self.cluster.query(query))),
                Way::Cut => inputs.push(Input::Replied(id, Err(unavailable()))),
                Way::Stalled | Way::AnswersWait => {
                    self.queries.push((due, connection, id, query));
                }
            }
        }
        inputs.extend(self.watch_news());
        for input in inputs {
            self.session.input(now, input);
        }
    }

    fn deliver_to_server(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id).unwrap();
        if self.connections.get(&stream.connection).is_none_or(|s| self.ways[*s] == Way::Stalled) {
            return;
        }
        let now_ms = self.now_ms;
        let mut ends = None;
        while let Some((due, message)) = stream.to_server.pop_front_if(|(due, _)| *due <= now_ms) {
            match stream.session {
                Some(session) => self.cluster.message(session, message),
                None => match self.cluster.begin(message) {
                    Ok((session, opened)) => {
                        stream.session = Some(session);
                        stream.to_client.push_back((due, Ok(opened)));
                        ends = Some(session);
                    }
                    Err(failure) => stream.to_client.push_back((due, Err(Some(failure)))),
                },
            }
        }
        // A session has one stream.
        let others = self.streams.iter_mut().filter(|(other, _)| **other != id);
        for (_, other) in others.filter(|(_, other)| ends.is_some() && other.session == ends) {
            other.session = Some(0);
            other.to_client.push_back((now_ms, Err(None)));
        }
    }

    /// Sends the cluster's events to the streams of its sessions.
    fn route(&mut self) {
        for (session, message) in std::mem::take(&mut self.cluster.news) {
            let due = self.due();
            let mut streams = self.streams.values_mut();
            if let Some(stream) = streams.find(|stream| stream.session == Some(session)) {
                // In order.
                let last = stream.to_client.back().map_or(0, |(due, _)| *due);
                stream.to_client.push_back((due.max(last), Ok(message)));
            }
        }
    }

    fn watch_news(&mut self) -> Vec<Input> {
        let ended = std::mem::take(&mut self.cluster.ended);
        if !self.ways.contains(&Way::Open) {
            return Vec::new();
        }
        let mut news: Vec<Input> = Vec::new();
        for (watch, token) in &self.watches {
            if ended.iter().any(|(over, how)| over == token && *how == proto::EndReason::Forced) {
                news.push(Input::Watched(*watch, WatchUpdate::Ended(EndReason::Forced)));
            }
            // It may have been restarted.
            if self.now_ms.is_multiple_of(5_000) {
                news.push(Input::Watched(*watch, WatchUpdate::Begun));
            }
        }
        news
    }

    pub(super) fn step(&mut self) {
        loop {
            let outputs: Vec<Output> = self.session.step(self.now()).collect();
            let mut inputs = Vec::new();
            for output in outputs {
                inputs.extend(self.apply(output));
            }
            if inputs.is_empty() {
                return;
            }
            for input in inputs {
                self.session.input(self.now(), input);
            }
        }
    }

    fn apply(&mut self, output: Output) -> Option<Input> {
        let due = self.due();
        match output {
            Output::Connect(connection, server) => {
                self.connections.insert(connection, server);
                self.connecting.push((due, connection));
            }
            Output::OpenStream(connection, stream, first) => {
                let to_server = VecDeque::from([(due, first)]);
                let to_client = VecDeque::new();
                let opened = Stream { connection, session: None, to_server, to_client };
                self.streams.insert(stream, opened);
            }
            Output::Send(stream, message) => {
                let stream = self.streams.get_mut(&stream)?;
                let last = stream.to_server.back().map_or(0, |(due, _)| *due);
                stream.to_server.push_back((due.max(last), message));
            }
            Output::Query(connection, id, query) => self.queries.push((due, connection, id, query)),
            Output::Disconnect(connection) => {
                // What was sent may still arrive: the server receives it, the client receives
                // nothing.
                for stream in self.streams.values_mut().filter(|s| s.connection == connection) {
                    for (_, message) in std::mem::take(&mut stream.to_server) {
                        match stream.session {
                            Some(session) => self.cluster.message(session, message),
                            None => stream.session = self.cluster.begin(message).ok().map(|s| s.0),
                        }
                    }
                }
                self.streams.retain(|_, stream| stream.connection != connection);
                self.queries.retain(|query| query.1 != connection);
                self.connecting.retain(|connecting| connecting.1 != connection);
                self.connections.remove(&connection);
            }
            Output::Watch { watch, token, .. } => {
                self.watches.insert(watch, token);
            }
            Output::Unwatch(watch) => {
                self.watches.remove(&watch);
            }
            Output::SessionOpened(lease) => self.leases.push(lease),
            Output::SessionConfirmed(at) => self.leases.last_mut().unwrap().confirm(at),
            Output::Complete(call, answer) => return self.complete(call, answer),
            Output::Upgraded { guard, call, grant, room } => {
                if let Some(call) = call {
                    self.calls.remove(&call);
                }
                let ticket = ticket(&grant);
                let now = self.now();
                let Some(known) = self.guards.get(&guard) else {
                    return Some(Input::Drop { ticket, lost: false, room });
                };
                if !self.is_good(known, now) {
                    return Some(Input::Drop { ticket, lost: false, room });
                }
                let known = self.guards.get_mut(&guard).unwrap();
                (known.ticket, known.mode) = (ticket, proto::Mode::Exclusive);
            }
            Output::Guard(guard, change) => {
                let guard = self.guards.get_mut(&guard)?;
                match change {
                    GuardChange::Health(health) => guard.lost |= matches!(health, Health::Lost(_)),
                    GuardChange::Confirmed(at) => guard.lease.as_mut().unwrap().confirm(at),
                    GuardChange::Revocation(_, at) => guard.forced_at = at,
                    GuardChange::Mode(mode) => guard.mode = mode,
                    GuardChange::OverAsWriter(_) => {}
                    GuardChange::Settled => guard.unsettled = false,
                }
            }
        }
        None
    }

    fn complete(
        &mut self,
        call: CallId,
        answer: Result<Answer, holdfast_client::Error>,
    ) -> Option<Input> {
        let known = self.calls.remove(&call).is_some();
        assert!(known || self.gone.contains(&call), "{call:?} is completed twice");
        if let Ok(Answer::Granted { grant, lease, room }) = answer {
            let ticket = ticket(&grant);
            if !known {
                return Some(Input::Drop { ticket, lost: false, room });
            }
            let guard = Guard {
                ticket,
                mode: grant.mode(),
                lease,
                session: self.leases.len() - 1,
                lost: false,
                forced_at: None,
                unsettled: false,
                room,
            };
            assert!(self.is_good(&guard, self.now()), "a guard is over as it is handed out");
            self.guards.insert(call, guard);
        }
        None
    }
}

fn ticket(grant: &proto::Grant) -> TicketRef {
    let name = grant.names.first().cloned().unwrap_or_default();
    TicketRef { name, token: grant.token, secret: grant.secret.clone() }
}
