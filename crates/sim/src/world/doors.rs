//! What a server's doors do: frames of connections go to the gateway, as the gRPC door translates them,
//! and what the gateway puts out goes back to the connections.

use super::World;
use super::wires::{Down, Up, WireId};
use crate::door::{Answered, DoorTask, Kind, Pending, StreamKind, refused};
use crate::host::VirtualSink;
use crate::raw::RawAnswer;
use crate::redis::{self, RedisTask};
use holdfast_client::session::Reply;
use holdfast_core::{Answer, SessionRef, TicketStatus};
use holdfast_gateway::{
    AcquireStep, ApiError, CallId, CallOutcome, Completion, Input, Output, PendingAcquire,
    SessionEvent, Sink, SubmitError, TicketRef, lasts_of,
};
use holdfast_grpc::session::Outgoing;
use holdfast_grpc::translate;
use holdfast_node::NodeId;
use holdfast_proto::v1::{self as proto, watch_event};
use std::time::Duration;

impl World {
    /// Hands what has arrived to the gateway.
    pub(super) fn take_inbox(&mut self, id: NodeId, now: Duration) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        for change in std::mem::take(&mut host.changes) {
            let call = host.pend(None, Kind::Change(change.clone()));
            host.handle(Input::Change { call, reply_to: call, change, force: false }, now);
        }
        for (wire, frame) in std::mem::take(&mut host.inbox) {
            self.take_frame(id, wire, frame, now);
        }
        if let Some(host) = self.hosts.get_mut(&id) {
            host.start_tasks(now);
        }
    }

    fn take_frame(&mut self, id: NodeId, wire: WireId, frame: Up, now: Duration) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        match frame {
            Up::Connect => {}
            Up::Begin(stream, first) => {
                if let Err(status) = host.begin(wire, stream, first, now) {
                    self.send_down(wire, Down::StreamEnded(stream, Some(status)));
                }
            }
            Up::Message(stream, message) => {
                host.message(wire, stream, message, now);
                self.pump_wire(id, wire);
            }
            Up::Query(query, what) => {
                if let Err(status) = host.query(wire, query, what, now) {
                    self.send_down(wire, Down::Replied(query, Err(status)));
                }
            }
            Up::Watch(name) => {
                if host.watch(wire, name, now).is_err() {
                    self.reset(wire);
                }
            }
            Up::Call(which, call) => {
                if let Err(status) = host.raw(wire, which, call, now) {
                    self.send_down(wire, Down::Answered(which, RawAnswer::Failed(status)));
                }
            }
            Up::Bytes(bytes) => self.zookeeper_bytes(id, wire, &bytes, now),
            Up::Fin => {
                let abandoned = host.forget(wire, now);
                self.checks.abandoned(abandoned, self.now_us);
                self.wires.remove(&wire);
            }
        }
    }

    /// Delivers what the gateway puts out.
    pub(super) fn deliver_outputs(&mut self, id: NodeId, now: Duration) {
        let mut outputs = Vec::new();
        loop {
            let Some(host) = self.hosts.get_mut(&id) else { return };
            host.gateway.take_outputs(&mut outputs);
            if outputs.is_empty() {
                return;
            }
            for output in outputs.drain(..) {
                match output {
                    Output::Complete(call, completion) => self.complete(id, call, completion, now),
                    Output::Event(sink, event) if self.is_zookeeper_sink(id, sink) => {
                        self.zookeeper_event(id, &event, now);
                    }
                    Output::Event(sink, event) => {
                        let Some(host) = self.hosts.get_mut(&id) else { return };
                        if let Some(stream) = host.streams.get_mut(&sink) {
                            stream.queue.push(event);
                            self.pump(id, sink, now);
                        }
                    }
                    Output::Close(sink) if self.is_zookeeper_sink(id, sink) => {
                        self.zookeeper_lost_track(id, now);
                    }
                    Output::Close(sink) | Output::CloseIfAbove(sink, _) => {
                        let Some(host) = self.hosts.get_mut(&id) else { return };
                        if let Some(wire) = host.streams.get(&sink).map(|stream| stream.wire) {
                            host.forget(wire, now);
                            self.reset(wire);
                        }
                    }
                    Output::Finished(DoorTask::Redis(task)) => self.finished(id, task),
                    Output::Finished(DoorTask::ZooKeeper(task)) => {
                        self.zookeeper_finished(id, task, now);
                    }
                }
            }
        }
    }

    fn complete(&mut self, id: NodeId, call: CallId, completion: Completion, now: Duration) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let Completion { outcome, ticket } = completion;
        let Some(Pending { wire, kind }) = host.calls.remove(&call) else {
            // Nobody receives it: what it got is given up.
            return host.handle(Input::Abandon { call, ticket }, now);
        };
        let Some(wire) = wire else {
            if let (Kind::Change(change), Ok(CallOutcome::Changed(result))) = (kind, outcome) {
                self.changed(&change, &result);
            }
            return;
        };
        match kind {
            Kind::Begin(stream, sink, begin) => {
                match outcome.map_err(ApiError::from).and_then(|o| begin.begun(o, id.0)) {
                    Ok((session, messages)) => {
                        if let Some(stream) = host.streams.get_mut(&sink)
                            && let StreamKind::Session(_, begun) = &mut stream.kind
                        {
                            *begun = Some((session, Outgoing::new(session)));
                        }
                        for message in messages {
                            self.send_down(wire, Down::Message(stream, message));
                        }
                        self.pump(id, sink, now);
                    }
                    Err(error) => {
                        host.streams.remove(&sink);
                        host.handle(Input::Close(sink.id()), now);
                        let status = Some(holdfast_grpc::status(error));
                        self.send_down(wire, Down::StreamEnded(stream, status));
                    }
                }
            }
            Kind::Watch(sink) => match outcome {
                Ok(_) => {
                    if let Some(stream) = host.streams.get_mut(&sink) {
                        stream.kind = StreamKind::Watch { begun: true };
                    }
                    let what = Some(watch_event::What::Watching(proto::Watching {}));
                    self.send_down(wire, Down::Watched(proto::WatchEvent { what }));
                    self.pump(id, sink, now);
                }
                Err(_) => {
                    host.forget(wire, now);
                    self.reset(wire);
                }
            },
            Kind::Show(query, name) => {
                let reply = match outcome {
                    Ok(_) => Ok(Reply::Lock(host.show(&name))),
                    Err(error) => refused(error),
                };
                self.send_down(wire, Down::Replied(query, reply));
            }
            Kind::Query(query) => {
                let reply = answer(outcome).map(|_| Reply::Done);
                self.send_down(wire, Down::Replied(query, reply));
            }
            Kind::Raw(which) => {
                let answer = match answer(outcome) {
                    Ok(_) => RawAnswer::Done,
                    Err(status) => RawAnswer::Failed(status),
                };
                self.send_down(wire, Down::Answered(which, answer));
            }
            Kind::RawOutcome(which) => {
                let outcome = match outcome {
                    Ok(CallOutcome::Answer(answered)) => {
                        translate::outcome(answered).or_else(refused::<_>)
                    }
                    Ok(_) => refused(SubmitError::Unknown),
                    Err(error) => refused(error),
                };
                let answer = outcome.map_or_else(RawAnswer::Failed, RawAnswer::Outcome);
                self.send_down(wire, Down::Answered(which, answer));
            }
            Kind::RawRead(which) => {
                let counter = host.node.as_ref().map_or(0, |node| node.state().counts().counter);
                let answer = match outcome {
                    Ok(CallOutcome::Alive) => RawAnswer::Alive,
                    Ok(CallOutcome::Current) => RawAnswer::Read { counter },
                    Ok(CallOutcome::NotAlive(refusal)) => {
                        RawAnswer::Failed(holdfast_grpc::status(refusal.into()))
                    }
                    Ok(_) => RawAnswer::Done,
                    Err(error) => RawAnswer::Failed(holdfast_grpc::status(error.into())),
                };
                self.send_down(wire, Down::Answered(which, answer));
            }
            Kind::RawOpen(which, secret) => {
                let answer = match answer(outcome) {
                    Ok(Answer::SessionOpened(id)) => RawAnswer::Opened(SessionRef { id, secret }),
                    Ok(_) => RawAnswer::Done,
                    Err(status) => RawAnswer::Failed(status),
                };
                self.send_down(wire, Down::Answered(which, answer));
            }
            Kind::Take(which, mut pending_acquire, _) => match outcome {
                Ok(outcome) => {
                    let step = pending_acquire.completed(outcome, now);
                    self.take_on(id, wire, which, pending_acquire, step, ticket, now);
                }
                Err(error) => {
                    let status = holdfast_grpc::status(error.into());
                    self.send_down(wire, Down::Answered(which, RawAnswer::Failed(status)));
                }
            },
            Kind::Look(which, mut pending_acquire, token, ticket) => {
                let seen = outcome.ok().and(host.node.as_ref());
                let seen = seen.map(|node| lasts_of(node.state(), token));
                let step = pending_acquire.read(seen, now);
                self.take_on(id, wire, which, pending_acquire, step, ticket, now);
            }
            Kind::Change(_) | Kind::Redis(..) | Kind::ZooKeeper => {}
        }
    }

    /// A request of the Redis door is done; if its connection is gone, nobody wants to know.
    fn finished(&mut self, id: NodeId, task: RedisTask) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let pending = host.calls.remove(&task.call);
        let Some(Pending { wire: Some(wire), kind: Kind::Redis(which, name, value) }) = pending
        else {
            return;
        };
        let state = host.node.as_ref().map(|node| node.state());
        let token = state.and_then(|state| redis::holder(state, &name, &value));
        let done = task.succeeded();
        self.send_down(wire, Down::Answered(which, RawAnswer::Redis { done, token }));
    }

    /// A caller is told how its ticket stands, once that is certain.
    #[allow(clippy::too_many_arguments, reason = "all that a call in between is about")]
    fn take_on(
        &mut self,
        id: NodeId,
        wire: WireId,
        which: u8,
        mut pending_acquire: PendingAcquire,
        mut step: AcquireStep,
        ticket: Option<TicketRef>,
        now: Duration,
    ) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if let (AcquireStep::Peek(token), Some(node)) = (&step, &host.node) {
            step = pending_acquire.peeked(lasts_of(node.state(), *token), now);
        }
        let answer = match step {
            AcquireStep::Read(token) => {
                let call = host.pend(Some(wire), Kind::Look(which, pending_acquire, token, ticket));
                return host.handle(Input::Read { call, reply_to: call }, now);
            }
            AcquireStep::Peek(_) => return,
            AcquireStep::Done(told) => match *told {
                Ok(status) => {
                    if let TicketStatus::Held(grant) = &status {
                        self.checks.delivered(grant.token);
                    }
                    RawAnswer::TicketStatus(translate::ticket_status(&status))
                }
                Err(error) => {
                    host.handle(Input::Abandon { call: CallId(0), ticket }, now);
                    RawAnswer::Failed(holdfast_grpc::status(error))
                }
            },
        };
        self.send_down(wire, Down::Answered(which, answer));
    }

    /// Writes what waits for the streams of a connection.
    pub(super) fn pump_wire(&mut self, id: NodeId, wire: WireId) {
        let Some(host) = self.hosts.get(&id) else { return };
        if let Some(client) = host.zookeeper.client(wire) {
            if host.zookeeper.has_messages(client) {
                self.pump_zookeeper_later(id, client);
            }
            return;
        }
        let of_wire = host.streams.iter().filter(|(_, stream)| stream.wire == wire);
        let sinks: Vec<VirtualSink> = of_wire.map(|(sink, _)| *sink).collect();
        let now = host.now(self.now_us);
        for sink in sinks {
            self.pump(id, sink, now);
        }
    }

    fn pump(&mut self, id: NodeId, sink: VirtualSink, now: Duration) {
        loop {
            let stream = self.hosts.get(&id).and_then(|host| host.streams.get(&sink));
            let Some(wire) = stream.map(|stream| stream.wire) else { return };
            let has_window = self.has_window(wire);
            let Some(host) = self.hosts.get_mut(&id) else { return };
            let Some(stream) = host.streams.get_mut(&sink) else { return };
            if stream.queue.has_overflowed() {
                // Its client did not read fast enough: the connection is cut.
                host.forget(wire, now);
                return self.reset(wire);
            }
            let begun = match &stream.kind {
                StreamKind::Session(_, begun) => begun.is_some(),
                StreamKind::Watch { begun } => *begun,
            };
            if !begun || !has_window {
                return;
            }
            let Some(event) = stream.queue.pop() else { return };
            let over = match (&mut stream.kind, event) {
                (_, SessionEvent::LostTrack) => true,
                (StreamKind::Session(number, Some((_, outgoing))), event) => {
                    let (number, message) = (*number, outgoing.message(event));
                    let over = outgoing.is_over();
                    if let Some(message) = message {
                        self.send_down(wire, Down::Message(number, message));
                    }
                    over
                }
                (StreamKind::Watch { .. }, SessionEvent::Effect { effect, now_ms }) => {
                    if let Some(what) = translate::watched(&effect, now_ms) {
                        let event = proto::WatchEvent { what: Some(what) };
                        self.send_down(wire, Down::Watched(event));
                    }
                    false
                }
                _ => false,
            };
            if over {
                let Some(host) = self.hosts.get_mut(&id) else { return };
                let ended = host.streams.remove(&sink);
                host.handle(Input::Close(sink.id()), now);
                return match ended.map(|stream| stream.kind) {
                    Some(StreamKind::Session(number, _)) => {
                        self.send_down(wire, Down::StreamEnded(number, None));
                    }
                    _ => self.reset(wire),
                };
            }
        }
    }
}

fn answer(outcome: Result<CallOutcome, SubmitError>) -> Answered<Answer> {
    match outcome {
        Ok(CallOutcome::Answer(Ok(answer))) => Ok(answer),
        Ok(CallOutcome::Answer(Err(refusal))) => refused(refusal),
        Ok(_) => refused(SubmitError::Unknown),
        Err(error) => refused(error),
    }
}
