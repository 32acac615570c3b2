//! The loop's thread: takes what has arrived, runs the gateway and the node, and performs their
//! outputs.

use super::calls::{Completed, ReplyTo, Server};
use super::disk::Job;
use super::inbox::{Inbox, Post, StopReason};
use crate::audit;
use crate::metrics::Metrics;
use crate::peers::Peers;
use holdfast_core::Effect;
use holdfast_gateway::{CallOutcome, Completion, Gateway, Output, SubmitError};
use holdfast_node::{self as node, Moment, Node, SnapshotTask};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) struct Driver {
    node: Node,
    gateway: Gateway<Server>,
    inbox: Arc<Inbox>,
    disk: Sender<Job>,
    snapshots: Sender<Box<SnapshotTask>>,
    peers: Peers,
    metrics: Arc<Metrics>,
    begun: Instant,
    end: Option<StopReason>,
}

impl Driver {
    pub(crate) fn new(
        node: Node,
        inbox: Arc<Inbox>,
        disk: Sender<Job>,
        snapshots: Sender<Box<SnapshotTask>>,
        mut peers: Peers,
        metrics: Arc<Metrics>,
    ) -> Self {
        peers.know(node.cluster());
        inbox.accounts.set(node.state().accounts().clone());
        let (gateway, begun) = (Gateway::new(), Instant::now());
        Self { node, gateway, inbox, disk, snapshots, peers, metrics, begun, end: None }
    }

    pub(crate) fn run(mut self) -> StopReason {
        let mut posts = Vec::new();
        let mut inputs = Vec::new();
        let mut node_outputs = Vec::new();
        let mut outputs = Vec::new();
        let mut now = self.begun.elapsed();
        loop {
            let pause = self.gateway.pause(now, &self.node);
            self.inbox.take(&mut posts, pause);
            let begun = self.begun.elapsed();
            self.gateway.begin_turn(begun, &self.node);
            for post in posts.drain(..) {
                match post {
                    Post::Node(input) => inputs.push(input),
                    Post::Gateway(input) => self.gateway.handle(input, begun, &self.node),
                    Post::Peek(look) => look(Ok((&self.node, self.gateway.channels()))),
                    Post::Stop(end) => self.end = Some(end),
                }
            }
            self.gateway.take_node_inputs(&mut inputs);
            self.node.turn(self.moment(), inputs.drain(..), &mut node_outputs);
            let applied =
                node_outputs.iter().any(|output| matches!(output, node::Output::Applied { .. }));
            now = self.begun.elapsed();
            for output in node_outputs.drain(..) {
                self.act(output, now);
            }
            self.peers.flush();
            // Listeners are notified before tasks resume that have seen the change.
            self.deliver_all(&mut outputs);
            self.gateway.finish_turn(now, &self.node);
            self.deliver_all(&mut outputs);
            self.count(applied, begun);
            if let Some(end) = self.end.take() {
                self.inbox.close();
                return end;
            }
        }
    }

    fn moment(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { mono_ms: millis(self.begun.elapsed()), wall_ms: millis(wall) }
    }

    fn act(&mut self, output: node::Output, now: Duration) {
        match output {
            node::Output::Send { to, message } => self.peers.send(to, &message),
            node::Output::OfferSnapshot { to, message } => self.peers.offer_snapshot(to, message),
            node::Output::Persist(persist) => self.hand_to_disk(Job::Persist(persist)),
            node::Output::Compact(at) => self.hand_to_disk(Job::Compact(at)),
            node::Output::WriteSnapshot(task) => {
                // The receiving thread outlives this one.
                let _ = self.snapshots.send(task);
            }
            node::Output::Reply { ask, reply } => {
                self.gateway.reply(ask, reply, now, &self.node);
            }
            node::Output::Applied { effects, .. } => {
                self.applied(effects, now);
                self.peers.know(self.node.cluster());
            }
            node::Output::LostTrack => {
                self.peers.know(self.node.cluster());
                self.inbox.accounts.set(self.node.state().accounts().clone());
                self.gateway.lost_track(now, &self.node);
            }
            node::Output::Stop(why) => self.end = Some(StopReason::Fault(why)),
            node::Output::Lost(why) => self.end = Some(StopReason::Lost { why, may_rejoin: true }),
        }
    }

    fn applied(&mut self, effects: Vec<Effect>, now: Duration) {
        self.metrics.entries.inc();
        for effect in &effects {
            self.metrics.record(effect);
            match effect {
                Effect::AccessChanged(_) => {
                    self.inbox.accounts.set(self.node.state().accounts().clone());
                }
                Effect::Audited(record) => audit::log(record),
                _ => {}
            }
        }
        self.gateway.applied(effects, now, &self.node);
    }

    fn hand_to_disk(&mut self, job: Job) {
        // If the disk thread has ended, it has posted the reason.
        let _ = self.disk.send(job);
    }

    fn deliver_all(&mut self, outputs: &mut Vec<Output<Server>>) {
        self.gateway.take_outputs(outputs);
        for output in outputs.drain(..) {
            self.deliver(output);
        }
    }

    fn deliver(&self, output: Output<Server>) {
        match output {
            // If nobody receives the completion, it is dropped, and a ticket that only its caller
            // could know of is given up.
            Output::Complete(ReplyTo::Caller(caller), completion) => {
                let _ = caller.send(Completed::new(completion, &self.inbox));
            }
            Output::Complete(ReplyTo::Look(look), Completion { outcome, .. }) => {
                look(match outcome {
                    Ok(CallOutcome::Current) => Ok((&self.node, self.gateway.channels())),
                    Ok(_) => Err(SubmitError::Unknown),
                    Err(error) => Err(error),
                });
            }
            Output::Event(sink, event) => sink.push(event),
            Output::Finished(task) => task.finish(),
            Output::Close(sink) => sink.close(),
            Output::CloseIfAbove(sink, bytes) => sink.close_if_above(bytes),
        }
    }

    fn count(&mut self, applied: bool, begun: Duration) {
        let took = self.begun.elapsed().saturating_sub(begun).as_secs_f64();
        self.metrics.turn.observe(took);
        if applied {
            self.metrics.apply.observe(took);
        }
        self.metrics.requests.inc_by(std::mem::take(&mut self.gateway.submitted));
        for took in self.gateway.answered_after.drain(..) {
            self.metrics.answers.observe(took.as_secs_f64());
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
