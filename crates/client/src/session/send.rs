//! Messages to the server.

use super::io::{Output, StreamId};
use super::{SessionState, WINDOW};
use crate::error::EndReason;
use holdfast_proto::v1::{self as proto, to_server};

/// Heartbeats are numbered separately from requests.
const HEARTBEATS_FROM: u64 = 1 << 63;

impl SessionState {
    /// Opens a session, or attaches the existing one.
    pub(super) fn first_message(&self) -> proto::ToServer {
        let what = match &self.session {
            Some(session) => to_server::What::Attach(proto::Attach {
                session: session.id,
                secret: session.secret.clone(),
                tickets: self.waiting.keys().copied().chain(self.held.tokens()).collect(),
            }),
            None => to_server::What::Open(proto::Open {
                ttl_ms: u64::try_from(self.config.ttl.as_millis()).unwrap_or(u64::MAX),
                label: self.config.label.clone(),
            }),
        };
        proto::ToServer { number: 0, what: Some(what) }
    }

    /// Sends what is unanswered again, over a new stream.
    pub(super) fn send_pending(&mut self, stream: StreamId) {
        let lowest = self.pending.keys().next().copied().unwrap_or_default();
        for (&id, request) in &self.pending {
            let request = proto::Request { id, lowest, what: Some(request.what.clone()) };
            self.outputs.push(Output::Send(stream, message(request)));
        }
    }

    /// Sends new requests, as far as the window allows.
    pub(super) fn send_queued(&mut self, stream: StreamId) {
        if self.session.is_none() {
            return;
        }
        while let Some(mut request) = self.queue.pop_front() {
            let id = self.next_request;
            let lowest = self.pending.keys().next().copied().unwrap_or(id);
            if id - lowest >= WINDOW {
                self.queue.push_front(request);
                return;
            }
            self.next_request += 1;
            request.shorten_wait(request.first_sent.until(self.now));
            request.first_sent = self.now;
            let what = Some(request.what.clone());
            self.pending.insert(id, request);
            self.outputs.push(Output::Send(stream, message(proto::Request { id, lowest, what })));
        }
    }

    pub(super) fn send_heartbeat(&mut self, stream: StreamId) {
        // Numbers are never reused: a late answer must not confirm a later heartbeat.
        self.heartbeats_sent += 1;
        let number = HEARTBEATS_FROM + self.heartbeats_sent;
        self.heartbeats.push_back((number, self.now));
        let what = Some(to_server::What::Beat(proto::Beat {}));
        self.outputs.push(Output::Send(stream, proto::ToServer { number, what }));
    }

    pub(super) fn send_close(&mut self, stream: StreamId) {
        // The next holder may be served before this client learns that the session is closed.
        for held in self.held.take_ended(false) {
            held.lose(&mut self.outputs, EndReason::Closed);
        }
        self.outputs.push(Output::Send(stream, close_message()));
    }
}

fn message(request: proto::Request) -> proto::ToServer {
    proto::ToServer { number: request.id, what: Some(to_server::What::Request(request)) }
}

/// Ends a session and everything that depends on it.
pub(super) fn close_message() -> proto::ToServer {
    let what = Some(to_server::What::Close(proto::CloseSession {}));
    proto::ToServer { number: u64::MAX, what }
}
