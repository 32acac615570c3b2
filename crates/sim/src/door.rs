//! The doors of one host: streams and calls of its connections, as the gRPC door translates them.

use crate::host::{Host, Virtual, VirtualSink};
use crate::raw::RawCall;
use crate::redis::RedisTask;
use crate::world::{Status, WireId};
use crate::zookeeper::ZooKeeperTask;
use bytes::Bytes;
use holdfast_client::session::{Query, QueryId, StreamId};
use holdfast_core::{Command, Label, LockName, RequestRef, Secret, SessionRef, Token};
use holdfast_gateway::{
    ApiError, CallId, Caller, EventQueue, Input, PendingAcquire, Resume, SessionEvent, Sink, Step,
    Task, TicketRef, Topic, View, request,
};
use holdfast_grpc::session::{self, Asked, Begin, BeginKind, Outgoing};
use holdfast_grpc::translate;
use holdfast_node::Change;
use holdfast_proto::v1::{self as proto, ToServer, watch_request};
use std::time::Duration;

/// Events that wait for a slow reader: few, so that some overflow.
const EVENTS_MAX: usize = 256;
/// Tickets that are shown of a lock.
const TICKETS_SHOWN: usize = 100;

/// A stream of a connection.
pub(crate) struct Stream {
    pub(crate) wire: WireId,
    pub(crate) kind: StreamKind,
    pub(crate) queue: EventQueue,
}

pub(crate) enum StreamKind {
    /// A session's; none until it has begun.
    Session(StreamId, Option<(SessionRef, Outgoing)>),
    Watch {
        begun: bool,
    },
}

/// A call that the gateway has not completed.
pub(crate) struct Pending {
    /// None for the operator's.
    pub(crate) wire: Option<WireId>,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Begin(StreamId, VirtualSink, Begin),
    Watch(VirtualSink),
    Show(QueryId, LockName),
    Query(QueryId),
    Raw(u8),
    RawOutcome(u8),
    RawRead(u8),
    /// A session with this secret.
    RawOpen(u8, Secret),
    /// Of the Redis door.
    Redis(u8, LockName, String),
    /// Of the ZooKeeper door.
    ZooKeeper,
    Take(u8, PendingAcquire, Option<Label>),
    /// A grant that is looked at again, with the ticket that is given up if its caller is gone.
    Look(u8, PendingAcquire, Token, Option<TicketRef>),
    Change(Change),
}

/// Work of a door that knows more than locks.
#[allow(clippy::large_enum_variant, reason = "they are used up soon")]
pub(crate) enum DoorTask {
    Redis(RedisTask),
    ZooKeeper(ZooKeeperTask),
}

impl Task for DoorTask {
    fn resume(&mut self, view: &View<'_>, resume: Resume) -> Step {
        match self {
            Self::Redis(task) => task.resume(view, resume),
            Self::ZooKeeper(task) => task.resume(view, resume),
        }
    }
}

pub(crate) type Answered<T> = Result<T, Status>;

pub(crate) fn refused<T>(error: impl Into<ApiError>) -> Answered<T> {
    Err(holdfast_grpc::status(error.into()))
}

impl Host {
    pub(crate) fn secret(&mut self) -> Secret {
        let mut secret = [0; 16];
        self.next_id += 1;
        secret[..8].copy_from_slice(&self.next_id.to_le_bytes());
        secret[8..].copy_from_slice(&(self.id.0 << 32 | self.epoch).to_le_bytes());
        Secret(secret)
    }

    pub(crate) fn sink(&mut self, wire: WireId, kind: StreamKind) -> VirtualSink {
        self.next_id += 1;
        let (sink, queue) = (VirtualSink(self.next_id), EventQueue::new(EVENTS_MAX, usize::MAX));
        self.streams.insert(sink, Stream { wire, kind, queue });
        sink
    }

    fn next_call(&mut self) -> CallId {
        self.next_id += 1;
        CallId(self.next_id)
    }

    pub(crate) fn pend(&mut self, wire: Option<WireId>, kind: Kind) -> CallId {
        let call = self.next_call();
        self.calls.insert(call, Pending { wire, kind });
        call
    }

    pub(crate) fn handle(&mut self, input: Input<Virtual>, now: Duration) {
        if let Some(node) = &self.node {
            self.gateway.handle(input, now, node);
        }
    }

    pub(crate) fn submit(
        &mut self,
        call: CallId,
        request: Option<RequestRef>,
        command: Command,
        now: Duration,
    ) {
        let wait = matches!(self.calls.get(&call), Some(Pending { kind: Kind::Take(..), .. }));
        let follow = None;
        let input = Input::Submit {
            caller: Caller::NODE,
            call,
            reply_to: call,
            request,
            command,
            wait,
            follow,
        };
        self.handle(input, now);
    }

    /// The operator wants another membership.
    pub(crate) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// A session's stream begins.
    pub(crate) fn begin(
        &mut self,
        wire: WireId,
        stream: StreamId,
        first: ToServer,
        now: Duration,
    ) -> Answered<()> {
        let secret = self.secret();
        let begin = session::begin(first, || secret).or_else(refused::<_>)?;
        let sink = self.sink(wire, StreamKind::Session(stream, None));
        let call = self.next_call();
        let reply_to = call;
        let input = match &begin.what {
            BeginKind::Open { command, .. } => {
                let command = command.clone();
                Input::Open { caller: Caller::NODE, call, reply_to, command, sink }
            }
            BeginKind::Attach { session, tickets } => {
                let (session, tickets) = (*session, tickets.clone());
                Input::Attach { call, reply_to, session, tickets, sink }
            }
        };
        let kind = Kind::Begin(stream, sink, begin);
        self.calls.insert(call, Pending { wire: Some(wire), kind });
        self.handle(input, now);
        Ok(())
    }

    /// A message of a session's stream.
    pub(crate) fn message(
        &mut self,
        wire: WireId,
        number: StreamId,
        message: ToServer,
        now: Duration,
    ) {
        let secret = self.secret();
        let of_stream = |stream: &&mut Stream| {
            stream.wire == wire
                && matches!(&stream.kind, StreamKind::Session(id, Some(_)) if *id == number)
        };
        let found = self.streams.iter_mut().find(|(_, stream)| of_stream(stream));
        let Some((sink, stream)) = found else { return };
        let StreamKind::Session(_, Some((session, _))) = &stream.kind else { return };
        let (sink, session, number) = (*sink, *session, message.number);
        match session::receive(session, message.what, || secret) {
            Ok(Asked::Heartbeat) => self.handle(Input::HeartbeatOn { sink, number, session }, now),
            Ok(Asked::Submit { request, command }) => {
                self.handle(
                    Input::SubmitOn { caller: Caller::NODE, sink, number, request, command },
                    now,
                );
            }
            Err(error) => {
                let error = Box::new(error);
                stream.queue.push(SessionEvent::Refused { number, error });
            }
        }
    }

    pub(crate) fn query(
        &mut self,
        wire: WireId,
        query: QueryId,
        what: Query,
        now: Duration,
    ) -> Answered<()> {
        let ticket = |own| translate::ticket(Some(own), None);
        let command = match what {
            Query::Show(name) => {
                let name = request::name(&name).or_else(refused::<_>)?;
                let call = self.pend(Some(wire), Kind::Show(query, name));
                self.handle(Input::Read { call, reply_to: call }, now);
                return Ok(());
            }
            Query::Cancel(own) => ticket(own).and_then(|ticket| ticket.cancel()),
            Query::Release(own) => ticket(own).and_then(|ticket| ticket.release()),
        };
        let command = command.or_else(refused::<_>)?;
        let call = self.pend(Some(wire), Kind::Query(query));
        self.submit(call, None, command, now);
        Ok(())
    }

    pub(crate) fn show(&self, name: &LockName) -> proto::Lock {
        let state = self.node.as_ref().map(|node| node.state());
        let shown = state.and_then(|state| {
            let view = state.lock_view(name, TICKETS_SHOWN)?;
            Some(translate::lock(&view, state.now_ms()))
        });
        let name = name.as_bytes().to_vec().into();
        shown.unwrap_or_else(|| proto::Lock { name, ..proto::Lock::default() })
    }

    pub(crate) fn watch(&mut self, wire: WireId, name: Bytes, now: Duration) -> Answered<()> {
        let scope = Some(watch_request::Scope::Name(name));
        let scope = translate::scope(proto::WatchRequest { scope }).or_else(refused::<_>)?;
        let sink = self.sink(wire, StreamKind::Watch { begun: false });
        let call = self.pend(Some(wire), Kind::Watch(sink));
        let topics = vec![Topic::Locks(scope)];
        self.handle(
            Input::Subscribe { caller: Caller::NODE, call, reply_to: call, sink, topics },
            now,
        );
        Ok(())
    }

    pub(crate) fn raw(
        &mut self,
        wire: WireId,
        which: u8,
        call: RawCall,
        now: Duration,
    ) -> Answered<()> {
        let wire = Some(wire);
        match call {
            RawCall::Acquire(sent) => {
                let (acquire, secret) = (sent.acquire.unwrap_or_default(), self.secret());
                let acquired = translate::acquire(acquire, sent.request_id, None, secret);
                let (request, acquire) = acquired.or_else(refused::<_>)?;
                let pending_acquire = PendingAcquire::new(now, request.is_some());
                let label = acquire.label.clone().filter(|_| request.is_none());
                let call = self.pend(wire, Kind::Take(which, pending_acquire, label));
                self.submit(call, request, Command::Acquire(acquire), now);
            }
            RawCall::Release(own) => {
                let command = translate::ticket(Some(own), None).and_then(|own| own.release());
                let command = command.or_else(refused::<_>)?;
                let call = self.pend(wire, Kind::Raw(which));
                self.submit(call, None, command, now);
            }
            RawCall::Outcome(sent) => {
                let key = request::request_key(&sent.request_id).or_else(refused::<_>)?;
                let call = self.pend(wire, Kind::RawOutcome(which));
                self.submit(call, None, Command::Outcome(RequestRef::Alone(key)), now);
            }
            RawCall::Revoke(sent) => {
                let command = translate::revoke(sent).or_else(refused::<_>)?;
                let call = self.pend(wire, Kind::Raw(which));
                self.submit(call, None, command, now);
            }
            RawCall::Force(sent) => {
                let command = translate::force(sent).or_else(refused::<_>)?;
                let call = self.pend(wire, Kind::Raw(which));
                self.submit(call, None, command, now);
            }
            RawCall::Read => {
                let call = self.pend(wire, Kind::RawRead(which));
                self.handle(Input::Read { call, reply_to: call }, now);
            }
            RawCall::Redis { request, name, value } => {
                let call = self.pend(wire, Kind::Redis(which, name, value));
                match RedisTask::new(call, &request, self.scripts.clone()) {
                    Some(task) => {
                        let task = DoorTask::Redis(task);
                        self.handle(
                            Input::Start { caller: Caller::NODE, call, task, block_for: None },
                            now,
                        );
                    }
                    None => drop(self.calls.remove(&call)),
                }
            }
            RawCall::Open { ttl_ms } => {
                let secret = self.secret();
                let command = request::open_session(secret, ttl_ms, None).or_else(refused::<_>)?;
                let call = self.pend(wire, Kind::RawOpen(which, secret));
                self.submit(call, None, command, now);
            }
            RawCall::Heartbeat(session) => {
                let call = self.pend(wire, Kind::RawRead(which));
                self.handle(Input::Heartbeat { call, reply_to: call, session }, now);
            }
        }
        Ok(())
    }

    /// A connection has ended: its streams are closed, its calls abandoned. Returns the labels of
    /// acquires that nobody will be told of.
    pub(crate) fn forget(&mut self, wire: WireId, now: Duration) -> Vec<Label> {
        let mut abandoned = Vec::new();
        self.zookeeper.forget(wire);
        let streams = self.streams.extract_if(.., |_, stream| stream.wire == wire);
        let sinks: Vec<VirtualSink> = streams.map(|(sink, _)| sink).collect();
        for sink in sinks {
            self.handle(Input::Close(sink.id()), now);
        }
        let calls = self.calls.extract_if(.., |_, call| call.wire == Some(wire));
        let calls: Vec<(CallId, Pending)> = calls.collect();
        for (call, Pending { kind, .. }) in calls {
            let ticket = match kind {
                Kind::Look(_, _, _, ticket) => ticket,
                Kind::Take(_, _, label) => {
                    abandoned.extend(label);
                    None
                }
                _ => None,
            };
            self.handle(Input::Abandon { call, ticket }, now);
        }
        abandoned
    }
}
