//! What the driver of a client does: turns of its session, its connections, its watches.

use super::wires::{Down, End, Status, Up, WireId};
use super::{Event, World};
use crate::checks::Belief;
use crate::client::{Client, ClientEvent, Watch};
use holdfast_client::session::{
    ConnectionId, Failure, FailureKind, Input, Output, StreamId, WatchId, WatchUpdate,
};
use holdfast_client::{EndReason, Revocation};
use holdfast_core::SessionId;
use holdfast_node::NodeId;
use holdfast_proto::v1::{self as proto, to_client, watch_event};
use std::num::NonZeroU64;
use std::time::Duration;

/// How long until a watch that no server takes is tried again.
const WATCH_RETRY_US: u64 = 500_000;

/// So many grants in a thousand find their client stopped in the next moment.
const STOPS_PER_MILLE: u64 = 12;

fn failure((code, message): Status) -> Failure {
    Failure { kind: FailureKind::of_status(code), message }
}

fn lost() -> Failure {
    let message = "the connection was lost".to_owned();
    Failure { kind: FailureKind::TryElsewhere, message }
}

impl World {
    /// Gives a client a turn when something is due for it.
    pub(super) fn wake_client(&mut self, number: usize) {
        let Some(client) = self.clients.get(number) else { return };
        let soon = if client.inputs.is_empty() { 1 } else { 20 };
        let due_us =
            if client.inputs.is_empty() { client.next_turn_us() } else { client.paused_until_us };
        let at_us = due_us.max(self.now_us + soon);
        match client.turn {
            Some((turn_us, _)) if turn_us <= at_us => return,
            Some(later) => {
                self.queue.remove(&later);
            }
            None => {}
        }
        let key = self.schedule_keyed(at_us - self.now_us, Event::Client(number));
        if let Some(client) = self.clients.get_mut(number) {
            client.turn = Some(key);
        }
    }

    pub(super) fn client_turn(&mut self, number: usize) {
        let floor = self.checks.floor();
        let Some(client) = self.clients.get_mut(number) else { return };
        client.turn = None;
        if self.now_us < client.paused_until_us {
            return self.wake_client(number);
        }
        let now = client.moment(self.now_us);
        let inputs = std::mem::take(&mut client.inputs);
        client.app.rest(self.now_us, self.idle_until_us);
        let acts = client.app.act(self.now_us, now, &client.leases, floor, &mut self.rng);
        for (stream, input) in inputs.into_iter().chain(acts.into_iter().map(|act| (None, act))) {
            self.feed(number, stream, input);
        }
        self.step(number, None);
        self.client_event(number);
        if self.clients.get(number).is_some_and(|client| client.session.is_finished()) {
            self.restart_client(number);
        }
        self.wake_client(number);
    }

    /// One input, and all that follows from it.
    fn feed(&mut self, number: usize, stream: Option<StreamId>, input: Input) {
        self.trace.talk(self.now_us, || format!("client {number} < {input:?}"));
        let Some(client) = self.clients.get_mut(number) else { return };
        client.session.input(client.moment(self.now_us), input);
        self.step(number, stream);
    }

    fn step(&mut self, number: usize, stream: Option<StreamId>) {
        loop {
            let Some(client) = self.clients.get_mut(number) else { return };
            let outputs: Vec<Output> = client.session.step(client.moment(self.now_us)).collect();
            if outputs.is_empty() {
                return;
            }
            let inputs: Vec<Input> =
                outputs.into_iter().filter_map(|output| self.act(number, stream, output)).collect();
            let Some(client) = self.clients.get_mut(number) else { return };
            for input in inputs {
                client.session.input(client.moment(self.now_us), input);
            }
        }
    }

    fn act(&mut self, number: usize, stream: Option<StreamId>, output: Output) -> Option<Input> {
        self.trace.talk(self.now_us, || format!("client {number} > {output:?}"));
        let client = self.clients.get_mut(number)?;
        let (life, now_us) = (client.life, self.now_us);
        let now = client.moment(now_us);
        match output {
            Output::Connect(connection, server) => {
                let node = client.servers.get(server).copied().unwrap_or(NodeId(0));
                let end = End::Session { client: number, life, connection };
                let wire = self.connect(end, node);
                self.clients.get_mut(number)?.wires.insert(connection, wire);
            }
            Output::OpenStream(connection, stream, first) => {
                let wire = *client.wires.get(&connection)?;
                client.streams.insert(stream, wire);
                self.send_up(wire, Up::Begin(stream, first));
            }
            Output::Send(stream, message) => {
                let wire = *client.streams.get(&stream)?;
                self.send_up(wire, Up::Message(stream, message));
            }
            Output::Query(connection, query, what) => {
                let wire = *client.wires.get(&connection)?;
                client.queries.insert(query, wire);
                self.send_up(wire, Up::Query(query, what));
            }
            Output::Disconnect(connection) => {
                let wire = client.wires.remove(&connection)?;
                client.streams.retain(|_, over| *over != wire);
                client.queries.retain(|_, over| *over != wire);
                let streams = &client.streams;
                client.opened.retain(|stream, _| streams.contains_key(stream));
                self.hang_up_wire(wire);
            }
            Output::Watch { watch, name, token } => {
                client.watches.insert(watch, Watch { name, token, wire: None, begun: false });
                self.watch(number, life, watch);
            }
            Output::Unwatch(watch) => {
                if let Some(wire) = client.watches.remove(&watch).and_then(|watch| watch.wire) {
                    self.hang_up_wire(wire);
                }
            }
            Output::SessionOpened(lease) => {
                client.leases.push(lease);
                let (at_us, ttl_ms) = (client.at_us(lease.counts_from()), client.ttl_ms);
                self.session_lives(number, stream, at_us, ttl_ms);
            }
            Output::SessionConfirmed(at) => {
                if let Some(lease) = client.leases.last_mut() {
                    lease.confirm(at);
                }
                let (at_us, ttl_ms) = (client.at_us(at), client.ttl_ms);
                self.session_lives(number, stream, at_us, ttl_ms);
            }
            Output::Complete(call, answer) => {
                let session = client.leases.len().saturating_sub(1);
                return client.app.complete(call, answer, session, now_us, now, &mut self.rng);
            }
            Output::Upgraded { guard, call, grant, room } => {
                return client.app.upgraded(guard, call, &grant, room, &client.leases, now);
            }
            Output::Guard(guard, change) => client.app.guard_changed(guard, change),
        }
        None
    }

    /// The server has confirmed that a session lives, with the answer to something sent then.
    fn session_lives(
        &mut self,
        number: usize,
        stream: Option<StreamId>,
        sent_us: u64,
        ttl_ms: u64,
    ) {
        let client = self.clients.get(number);
        let session = client.and_then(|client| client.opened.get(&stream?).copied());
        let judged = session.map_or(Ok(()), |id| self.checks.beat(id, sent_us, ttl_ms));
        if let Err(violation) = judged {
            self.fail(violation);
        }
    }

    /// What the checkers want to know of what the application heard.
    fn client_event(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let (mut look, mut stops) = (false, false);
        let (mut passed, mut breaks, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for client_event in std::mem::take(&mut client.app.client_event) {
            let judged = match client_event {
                ClientEvent::Done => {
                    self.operations += 1;
                    client.done += 1;
                    Ok(())
                }
                ClientEvent::Granted { token, floor } => {
                    look = true;
                    stops |= self.rng.per_mille(STOPS_PER_MILLE);
                    self.checks.drew(number, token, floor)
                }
                ClientEvent::Unwelcome(name) => {
                    breaks.push(name);
                    Ok(())
                }
                ClientEvent::ReaderLeaves(name) => {
                    leaves.push(name);
                    Ok(())
                }
                ClientEvent::Upgraded => {
                    look = true;
                    Ok(())
                }
                ClientEvent::Lost { token, how } => self.checks.lost(number, token, how),
                ClientEvent::NotHeld { token } => self.checks.not_held(number, token),
                ClientEvent::Passed { key, token, floor } => {
                    passed.push((key.clone(), token));
                    self.checks.passed(&key, token, floor)
                }
            };
            if let Err(violation) = judged {
                return self.fail(violation);
            }
        }
        for (key, token) in passed {
            for client in &mut self.clients {
                let known = client.app.taken.entry(key.clone()).or_insert(token);
                *known = (*known).max(token);
            }
        }
        breaks.into_iter().for_each(|name| self.break_as_granted(name));
        leaves.iter().for_each(|name| self.abandon_upgrades(name));
        if stops && self.now_us < super::TROUBLE_US {
            self.pause_client(number);
        }
        if look {
            let beliefs = self.beliefs();
            if let Err(violation) = self.checks.guards(&beliefs, self.now_us) {
                self.fail(violation);
            }
        }
    }

    /// Who says now that it holds what: all guards by the clocks of their clients, and callers without
    /// a session.
    pub(super) fn beliefs(&self) -> Vec<Belief> {
        let mut beliefs = Vec::new();
        for client in &self.clients {
            for guard in client.app.guards.values() {
                if client.is_good(guard, self.now_us) {
                    let ttl_ms = guard.lease(&client.leases).map_or(0, |lease| lease.ttl_ms());
                    beliefs.extend(guard.names.iter().map(|name| Belief {
                        client: client.number,
                        name: name.clone(),
                        token: guard.token(),
                        mode: guard.mode,
                        ttl_ms,
                    }));
                }
            }
        }
        beliefs.extend(self.raw_beliefs());
        beliefs.extend(self.zookeeper_beliefs());
        beliefs
    }

    /// Something arrives at a client.
    pub(super) fn receive_down(&mut self, wire: WireId, end: End, frame: Down) {
        match end {
            End::Raw(number) => self.raw_received(number, wire, frame),
            End::ZooKeeper { client, life } => {
                self.zookeeper_client_received(client, life, wire, frame);
            }
            End::Session { client, life, connection } => {
                let Some(known) = self.clients.get_mut(client).filter(|known| known.life == life)
                else {
                    return;
                };
                known.session_input(wire, connection, frame);
                self.wake_client(client);
            }
            End::Watch { client, life, watch } => self.watched(client, life, watch, wire, frame),
        }
    }

    /// Begins to watch a lock, at any server.
    pub(super) fn watch(&mut self, number: usize, life: u64, watch: WatchId) {
        let Some(client) = self.clients.get(number).filter(|client| client.life == life) else {
            return;
        };
        let Some(name) = client.watches.get(&watch).map(|watch| watch.name.clone()) else { return };
        let Some(node) = self.rng.pick(&client.servers).copied() else { return };
        let wire = self.connect(End::Watch { client: number, life, watch }, node);
        self.send_up(wire, Up::Watch(name));
        let client = self.clients.get_mut(number);
        if let Some(watch) = client.and_then(|client| client.watches.get_mut(&watch)) {
            watch.wire = Some(wire);
        }
    }

    fn watched(&mut self, number: usize, life: u64, id: WatchId, wire: WireId, frame: Down) {
        let client = self.clients.get_mut(number).filter(|client| client.life == life);
        let Some(client) = client else { return };
        let Some(watch) = client.watches.get_mut(&id).filter(|watch| watch.wire == Some(wire))
        else {
            return;
        };
        let news = match frame {
            Down::Connected => return,
            Down::Watched(event) => match (event.what, watch.token) {
                (Some(watch_event::What::Watching(_)), _) => {
                    watch.begun = true;
                    Some(WatchUpdate::Begun)
                }
                (Some(watch_event::What::Ended(ended)), token) if ended.token == token => {
                    Some(WatchUpdate::Ended(how(ended.how())))
                }
                (Some(watch_event::What::Revocation(asked)), token) if asked.token == token => {
                    Some(WatchUpdate::Revocation(Revocation {
                        within: Duration::from_millis(asked.within_ms),
                        by: asked.by,
                        reason: asked.reason,
                        force: asked.force,
                    }))
                }
                _ => None,
            },
            _ => {
                watch.wire = None;
                self.hang_up_wire(wire);
                let again = Event::WatchAgain { client: number, life, watch: id };
                return self.schedule(WATCH_RETRY_US, again);
            }
        };
        if let Some(news) = news {
            client.inputs.push((None, Input::Watched(id, news)));
            self.wake_client(number);
        }
    }

    /// A client's process ends, and another one begins.
    pub(super) fn restart_client(&mut self, number: usize) {
        let nodes = self.known_nodes();
        let Some(client) = self.clients.get_mut(number) else { return };
        let (life, done, turn) = (client.life + 1, client.done, client.turn);
        let watches = client.watches.values().filter_map(|watch| watch.wire);
        let wires: Vec<WireId> = client.wires.values().copied().chain(watches).collect();
        let mut next = Client::new(number, life, &mut self.rng, &nodes);
        (next.done, next.turn) = (done, turn);
        *client = next;
        for wire in wires {
            self.hang_up_wire(wire);
        }
        self.wake_client(number);
    }

    /// The nodes that a new client is told of.
    pub(super) fn known_nodes(&self) -> Vec<NodeId> {
        let here = self.hosts.values().filter(|host| !host.removed && !host.damaged);
        here.map(|host| host.id).collect()
    }
}

impl Client {
    /// What a frame means for the session.
    fn session_input(&mut self, wire: WireId, connection: ConnectionId, frame: Down) {
        match frame {
            Down::Connected => self.inputs.push((None, Input::Connected(connection))),
            Down::Message(stream, message) => {
                if let Some(to_client::What::Opened(opened)) = &message.what
                    && let Some(session) = NonZeroU64::new(opened.session).map(SessionId)
                {
                    self.opened.insert(stream, session);
                }
                self.inputs.push((Some(stream), Input::Received(stream, message)));
            }
            Down::StreamEnded(stream, status) => {
                self.streams.remove(&stream);
                self.inputs.push((None, Input::StreamEnded(stream, status.map(failure))));
            }
            Down::Replied(query, reply) => {
                self.queries.remove(&query);
                self.inputs.push((None, Input::Replied(query, reply.map_err(failure))));
            }
            Down::Reset => {
                let streams: Vec<StreamId> =
                    self.streams.iter().filter(|(_, w)| **w == wire).map(|(s, _)| *s).collect();
                let ended = streams.iter().map(|s| Input::StreamEnded(*s, Some(lost())));
                self.inputs.extend(ended.map(|input| (None, input)));
                self.streams.retain(|_, over| *over != wire);
                let queries = self.queries.extract_if(.., |_, over| *over == wire);
                let failed = queries.map(|(query, _)| Input::Replied(query, Err(lost())));
                self.inputs.extend(failed.map(|input| (None, input)));
                self.inputs.push((None, Input::NotConnected(connection, lost())));
            }
            Down::Watched(_) | Down::Answered(..) | Down::Bytes(_) => {}
        }
    }
}

fn how(how: proto::EndReason) -> EndReason {
    match how {
        proto::EndReason::Released => EndReason::Released,
        proto::EndReason::Expired => EndReason::Expired,
        proto::EndReason::Closed => EndReason::Closed,
        proto::EndReason::Forced => EndReason::Forced,
        proto::EndReason::Cancelled => EndReason::Cancelled,
        proto::EndReason::TimedOut => EndReason::TimedOut,
        proto::EndReason::Restored => EndReason::Restored,
        proto::EndReason::Unknown => EndReason::Unknown,
    }
}
