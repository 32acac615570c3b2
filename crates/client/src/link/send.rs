//! What goes to the server.

use super::desk::Desk;
use super::stream::Stream;
use crate::clock::Moment;
use crate::error::How;
use holdfast_proto::v1::{self as proto, to_server};

/// How far request numbers may run ahead of the lowest one that is not answered. The server
/// remembers 1,024 of a session, and takes as many at once.
pub(super) const WINDOW: u64 = 1_000;

impl Desk {
    pub(super) fn first_message(&self) -> proto::ToServer {
        let what = match &self.session {
            Some(session) => to_server::What::Attach(proto::Attach {
                session: session.id,
                secret: session.secret.clone(),
                tickets: self.waiting.keys().copied().chain(self.held.tokens()).collect(),
            }),
            None => to_server::What::Open(proto::Open {
                ttl_ms: u64::try_from(self.setup.ttl.as_millis()).unwrap_or(u64::MAX),
                label: self.setup.label.clone(),
            }),
        };
        proto::ToServer { number: 0, what: Some(what) }
    }

    /// A new stream: what was not answered is sent again.
    pub(super) fn send_again(&mut self, stream: &Stream) {
        (self.leave, self.useful) = (false, false);
        self.beats.clear();
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        for number in numbers {
            self.send(stream, number);
        }
    }

    /// Sends what is new, as far as the window goes.
    pub(super) fn send_queued(&mut self, stream: &Stream) {
        while let Some(mut asked) = self.queue.pop_front() {
            let number = self.next_request;
            let lowest = self.pending.keys().next().copied().unwrap_or(number);
            if number - lowest >= WINDOW || self.session.is_none() {
                self.queue.push_front(asked);
                return;
            }
            self.next_request += 1;
            let now = Moment::now();
            asked.shorten_wait(asked.first_sent.until(now));
            asked.first_sent = now;
            self.pending.insert(number, asked);
            self.send(stream, number);
        }
    }

    fn send(&mut self, stream: &Stream, number: u64) {
        let Some(asked) = self.pending.get(&number) else { return };
        let lowest = self.pending.keys().next().copied().unwrap_or(number);
        let request = proto::Request { id: number, lowest, what: Some(asked.what.clone()) };
        let what = Some(to_server::What::Request(request));
        if !stream.send(proto::ToServer { number, what }) {
            self.leave = true;
        }
    }

    pub(super) fn send_close(&mut self, stream: &Stream) {
        // The next holder may be served before this client hears that it is closed.
        for followed in self.held.in_session() {
            followed.fate.lose(How::Closed);
        }
        let close = to_server::What::Close(proto::CloseSession {});
        // If it can't be sent, the session ends with its lease.
        let _ = stream.send(proto::ToServer { number: u64::MAX, what: Some(close) });
    }
}
