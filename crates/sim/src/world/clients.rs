//! The words between clients and nodes.

use super::{DoorWait, Event, ToClient, World};
use crate::checks::nothing_lost;
use crate::client::{Act, Sent};
use crate::host::Asker;
use holdfast_node::{Ask, NodeId, Reply};

impl World {
    pub(super) fn reply(&mut self, id: NodeId, ask: Ask, reply: Reply) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let Some(asker) = host.asker(ask) else { return };
        let counter = host.node.as_ref().map_or(0, |node| node.state().counts().counter);
        match asker {
            Asker::Operator(change) => self.changed(&change, &reply),
            Asker::Beat { client, session, sent_us } => {
                let Reply::Beat(alive) = reply else { return };
                let what = ToClient::Beat { session, sent_us, alive };
                self.answer(client, what);
            }
            Asker::Look { floor } => {
                if reply == Reply::Current
                    && let Err(violation) = self.checks.read(id, counter, floor)
                {
                    self.fail(violation);
                }
            }
            Asker::WrongBeat => {
                if reply == Reply::Beat(true) {
                    let what = "a heartbeat with a wrong secret was confirmed";
                    self.fail(format!("only the owner: node {id}: {what}"));
                }
            }
            Asker::Once(label) => {
                if reply == Reply::Withdrawn
                    && let Err(violation) = self.checks.withdrawn(label)
                {
                    self.fail(violation);
                }
            }
            Asker::Pair { client, pair, second } => {
                if let Err(violation) = self.checks.pair(client, pair, second, &reply) {
                    self.fail(violation);
                }
            }
            Asker::Door { wait, sent_us } => self.door_answered(id, wait, sent_us, &reply),
            Asker::Confirm { grant, sent_us } => self.confirmed(id, grant, sent_us, &reply),
            Asker::Nobody => {}
            Asker::Client { client, attempt, floor } => {
                if reply == Reply::Current
                    && let Err(violation) = self.checks.read(id, counter, floor)
                {
                    return self.fail(violation);
                }
                self.answer(client, ToClient::Reply { attempt, reply });
            }
        }
    }

    fn answer(&mut self, client: usize, what: ToClient) {
        if self.rng.per_mille(self.network.weather.lost_per_mille) {
            return;
        }
        let in_us = self.network.delay_us(&mut self.rng);
        self.schedule(in_us, Event::ToClient { client, what });
    }

    pub(super) fn client_wakes(&mut self, number: usize) {
        let nodes: Vec<NodeId> =
            self.hosts.values().filter(|host| host.is_up()).map(|host| host.id).collect();
        let floor = self.checks.floor();
        let Some(client) = self.clients.get_mut(number) else { return };
        if client.wake_at_us != Some(self.now_us) {
            return;
        }
        let acts = client.wake(self.now_us, &mut self.rng, &nodes, floor);
        self.act(number, acts);
        self.wake_client(number);
    }

    /// Lets a client look again when something is due for it.
    pub(super) fn wake_client(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let at_us = client.next_wake_us().max(self.now_us + 1);
        if client
            .wake_at_us
            .is_some_and(|wake_at_us| wake_at_us <= at_us && wake_at_us > self.now_us)
        {
            return;
        }
        client.wake_at_us = Some(at_us);
        self.schedule(at_us - self.now_us, Event::Client(number));
    }

    fn act(&mut self, number: usize, acts: Vec<Act>) {
        for act in acts {
            let Some(client) = self.clients.get(number) else { return };
            let attempt = client.attempt;
            let floor = match &act {
                Act::Send(_, Sent::Look) => self.checks.floor(),
                _ => client.floor,
            };
            match act {
                Act::Finished => self.operations += 1,
                Act::LetGo(let_go) => {
                    if let Err(violation) = nothing_lost::released(number, &let_go) {
                        return self.fail(violation);
                    }
                }
                Act::Drew(token) => {
                    if let Err(violation) = self.checks.drew(number, token, floor) {
                        return self.fail(violation);
                    }
                }
                Act::Send(node, sent) => {
                    if self.rng.per_mille(self.network.weather.lost_per_mille) {
                        continue;
                    }
                    let in_us = self.network.delay_us(&mut self.rng);
                    let sent_us = self.now_us;
                    self.schedule(
                        in_us,
                        Event::ToNode { client: number, attempt, floor, node, sent, sent_us },
                    );
                }
            }
        }
    }

    pub(super) fn node_hears(
        &mut self,
        client: usize,
        attempt: u64,
        floor: u64,
        node: NodeId,
        sent: Sent,
        sent_us: u64,
    ) {
        let Some(host) = self.hosts.get_mut(&node).filter(|host| host.is_up()) else { return };
        let asker = match &sent {
            Sent::Beat(session) => Asker::Beat { client, session: *session, sent_us },
            Sent::Look => Asker::Look { floor },
            Sent::WrongBeat(_) => Asker::WrongBeat,
            Sent::Once { label, .. } => {
                let (epoch, asker) = (host.epoch, Asker::Once(label.clone()));
                let ask = host.ask(asker, sent);
                // Some give up before the node has taken it up, some while it is on its way.
                let in_us = match self.rng.range(0, 4) {
                    0 => 1,
                    1 => self.rng.range(0, 3_000),
                    _ => self.rng.range(0, 4_000_000),
                };
                self.schedule(in_us, Event::GiveUp { node, epoch, ask });
                return self.wake(node);
            }
            Sent::Door { name, secret, .. } => {
                let wait = DoorWait { client, name: name.clone(), secret: *secret };
                Asker::Door { wait, sent_us }
            }
            Sent::Ask { .. } | Sent::Read => Asker::Client { client, attempt, floor },
            Sent::Pair { pair, first, second } => {
                let pair = *pair;
                for (command, second) in [(first, false), (second, true)] {
                    let sent = Sent::Ask { request: None, command: (**command).clone() };
                    host.ask(Asker::Pair { client, pair, second }, sent);
                }
                return self.wake(node);
            }
        };
        host.ask(asker, sent);
        self.wake(node);
    }

    pub(super) fn client_hears(&mut self, number: usize, what: ToClient) {
        let now_us = self.now_us;
        let Some(client) = self.clients.get_mut(number) else { return };
        // A paused client reads its mail when it wakes.
        if now_us < client.paused_until_us {
            let in_us = client.paused_until_us - now_us + 1;
            return self.schedule(in_us, Event::ToClient { client: number, what });
        }
        match what {
            ToClient::Nudge => client.nudge(),
            ToClient::Beat { session, sent_us, alive } => {
                client.beat_answered(now_us, session, sent_us, alive);
                if alive {
                    let ttl_ms = client.ttl_ms();
                    self.checks.beat(session.id, sent_us, ttl_ms);
                }
            }
            ToClient::Reply { attempt, reply } => {
                // An answer to an earlier send of the same request is as good.
                if attempt < client.first_attempt() {
                    return;
                }
                let acts = client.answered(now_us, reply, &mut self.rng);
                if let Some(session) = client.session {
                    self.sessions.insert(session.id, number);
                }
                self.act(number, acts);
            }
        }
    }
}
