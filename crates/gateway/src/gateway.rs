//! The gateway: takes the requests of doors and the replies of the node, and returns what is to be
//! delivered.
//!
//! In each turn, a driver calls [`Gateway::begin_turn`]; [`Gateway::handle`] for each input; the
//! node, with what [`Gateway::take_node_inputs`] returns; [`Gateway::reply`], [`Gateway::applied`]
//! and [`Gateway::lost_track`] for the node's outputs; [`Gateway::finish_turn`]; and then it
//! delivers [`Gateway::take_outputs`] in order. If tasks depend on how a sink handles events, it
//! must handle them before [`Gateway::finish_turn`], which resumes tasks. [`Gateway::pause`]
//! returns how long to wait for the next turn. Time is an argument: how long the driver has run, on
//! any clock that never goes backwards.

use crate::audit::{Repeats, audit_entry};
use crate::blocked::Blocked;
use crate::calls::{Call, Kind, ReplyTo};
use crate::events::Events;
use crate::index::Index;
use crate::io::{CallId, CallOutcome, Completion, Driver, Input, Output, Sink, SinkId};
use crate::task::{Resume, View};
use crate::tasks::Running;
use crate::tickets::Retries;
use crate::waits::{Waiter, Waits};
use crate::{Caller, Channels, SubmitError, TicketRef};
use holdfast_core::{
    AuditAction, AuditEntry, Command, Effect, Grant, KeyKind, Lease, LockName, Operation, Refusal,
    Token,
};
use holdfast_node::{self as node, Node, Reply, RequestTag};
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for the cluster to accept it. An election takes about a second.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// If a turn starts this much later than it was due, the driver was paused.
const PAUSED: Duration = Duration::from_secs(1);

/// Keeps the loop from spinning while something that is due waits for the disk.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// How often the gateway looks for calls that have timed out.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// After a pause, the driver's queue holds requests whose callers have already given up, followed
/// by the notice that they did. So requests are held back for this long.
pub const HOLD_BACK_FOR: Duration = Duration::from_millis(250);

/// The layer between doors and the node. The module documentation says how to drive it.
pub struct Gateway<D: Driver> {
    pub(crate) calls: Slab<Call<D>>,
    /// Where each call that can be abandoned is.
    pub(crate) places: Index<CallId, CallPlace>,
    pub(crate) waits: Waits<D>,
    pub(crate) events: Events<D>,
    pub(crate) blocked: Blocked<D::Task>,
    /// Tasks whose step has a reply. They resume once all effects of the turn have been published,
    /// so that none reports a message that has not been delivered.
    pub(crate) replied: Vec<(Running<D::Task>, Reply)>,
    /// Names under which an object was put that tasks may be blocked on.
    pub(crate) stirred: Vec<(LockName, KeyKind)>,
    pub(crate) retries: Retries,
    /// Requests that arrived just after a pause, and until when they are held back.
    held_back: Vec<Input<D>>,
    held_back_until: Option<Duration>,
    /// When the last turn started.
    began: Duration,
    /// A turn that starts later than this comes after a pause; `None` until it is known when the
    /// next turn is due.
    late_after: Option<Duration>,
    swept: Duration,
    withdrawing: Vec<(usize, u64)>,
    closed: BTreeSet<SinkId>,
    next_serial: u64,
    repeats: Repeats,
    pub(crate) node_inputs: Vec<node::Input>,
    pub(crate) outputs: Vec<Output<D>>,
    /// Requests submitted to the log since this was last read.
    pub submitted: u64,
    /// Latencies of the requests answered since this was last read.
    pub answered_after: Vec<Duration>,
}

/// Where a call is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallPlace {
    /// Waiting for the node's reply.
    Pending(usize),
    /// Waiting for its ticket to be served.
    Waiting(Token),
    /// Its task is blocked.
    Blocked,
}

impl<D: Driver> Default for Gateway<D> {
    fn default() -> Self {
        Self {
            calls: Slab::new(),
            places: Index::default(),
            waits: Waits::default(),
            events: Events::default(),
            blocked: Blocked::default(),
            replied: Vec::new(),
            stirred: Vec::new(),
            retries: Retries::default(),
            held_back: Vec::new(),
            held_back_until: None,
            began: Duration::ZERO,
            late_after: None,
            swept: Duration::ZERO,
            withdrawing: Vec::new(),
            closed: BTreeSet::new(),
            next_serial: 0,
            repeats: Repeats::default(),
            node_inputs: Vec::new(),
            outputs: Vec::new(),
            submitted: 0,
            answered_after: Vec::new(),
        }
    }
}

impl<D: Driver> Gateway<D> {
    /// A gateway without any calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// The channels that have subscribers on this node.
    pub fn channels(&self) -> &Arc<Channels> {
        &self.events.channels
    }

    /// How long the driver may wait before the next turn, after a turn is done.
    pub fn pause(&mut self, now: Duration, node: &Node) -> Duration {
        let pause = Duration::from_millis(node.next_turn_in_ms()).max(PAUSE_MIN);
        let pause = self.next_due().map_or(pause, |due| pause.min(due.saturating_sub(now)));
        self.late_after = Some(self.began.saturating_add(pause).saturating_add(PAUSED));
        pause
    }

    /// When the next turn is due at the latest; `None` if nothing is due at any time.
    pub fn next_due(&self) -> Option<Duration> {
        if !self.node_inputs.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = [self.retries.due(), self.held_back_until, self.blocked.next_timeout()];
        due.into_iter().flatten().min()
    }

    /// The driver was paused: callers may have gone in the meantime.
    fn hold_back_after_pause(&mut self, now: Duration) {
        self.held_back_until = Some(now.saturating_add(HOLD_BACK_FOR));
    }

    /// Starts a turn, and handles what is due.
    pub fn begin_turn(&mut self, now: Duration, node: &Node) {
        if self.late_after.take().is_some_and(|late_after| now > late_after) {
            self.hold_back_after_pause(now);
        }
        self.began = now;
        if self.held_back_until.is_some_and(|until| until <= now) {
            self.held_back_until = None;
            for input in std::mem::take(&mut self.held_back) {
                self.handle(input, now, node);
            }
        }
        while let Some(entry) = self.blocked.time_out(now) {
            self.time_out(entry, node);
        }
        self.retry(now, node);
        if now.saturating_sub(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            self.sweep(now);
        }
    }

    /// Withdraws calls that have timed out.
    fn sweep(&mut self, now: Duration) {
        for (key, call) in &mut self.calls {
            let sink_is_closed = match call.reply_to() {
                Some(ReplyTo::Sink { sink, .. }) => self.closed.contains(&sink.id()),
                _ => false,
            };
            if !call.withdrawn
                && (sink_is_closed || call.deadline.is_some_and(|until| until <= now))
            {
                call.withdrawn = true;
                self.node_inputs.push(node::Input::Withdraw(RequestTag(key as u64)));
                self.withdrawing.push((key, call.serial));
            }
        }
        self.closed.clear();
    }

    /// Handles an input from a door.
    pub fn handle(&mut self, input: Input<D>, now: Duration, node: &Node) {
        if self.held_back_until.is_some_and(|until| now < until) && input.is_request() {
            self.held_back.push(input);
            return;
        }
        match input {
            Input::Submit { caller, call, reply_to, request, command, wait, follow } => {
                let command = match self.checked(&caller, command, now, node) {
                    Ok(command) => command,
                    Err(refusal) => return self.refuse(reply_to, refusal),
                };
                // With a request id, a retry finds the ticket; without one, only the caller knows
                // of it.
                let draws = if request.is_none() { TicketRef::drawn_by(&command) } else { None };
                self.submitted += 1;
                let reply_to = ReplyTo::One(reply_to);
                let ask = self.ask(call, now, Kind::Submit { reply_to, draws, wait, follow });
                self.node_inputs.push(node::Input::Submit { ask, request, command });
            }
            Input::Heartbeat { call, reply_to, session } => {
                let kind = Kind::Heartbeat { reply_to: ReplyTo::One(reply_to), session };
                let ask = self.ask(call, now, kind);
                self.node_inputs.push(node::Input::Beat { ask, session });
            }
            Input::Read { call, reply_to } => {
                let ask = self.ask(call, now, Kind::Read(ReplyTo::One(reply_to)));
                self.node_inputs.push(node::Input::Read(ask));
            }
            Input::Change { call, reply_to, change, force } => {
                let ask = self.ask(call, now, Kind::Change(ReplyTo::One(reply_to)));
                self.node_inputs.push(node::Input::Change { ask, change, force });
            }
            Input::Open { caller, call, reply_to, command, sink } => {
                let command = match self.checked(&caller, command, now, node) {
                    Ok(command) => command,
                    Err(refusal) => return self.refuse(reply_to, refusal),
                };
                self.submitted += 1;
                let ask =
                    self.ask(call, now, Kind::Open { reply_to: ReplyTo::One(reply_to), sink });
                self.node_inputs.push(node::Input::Submit { ask, request: None, command });
            }
            Input::Attach { call, reply_to, session, tickets, sink } => {
                let reply_to = ReplyTo::One(reply_to);
                let ask = self.ask(call, now, Kind::Attach { reply_to, session, tickets, sink });
                self.node_inputs.push(node::Input::Beat { ask, session });
            }
            Input::Subscribe { caller, call, reply_to, sink, topics } => {
                if let Err(refusal) = caller.check_topics(node.state(), &topics) {
                    self.record_refusal(&caller, &refusal, now, node);
                    return self.refuse(reply_to, refusal);
                }
                let reply_to = ReplyTo::One(reply_to);
                let ask = self.ask(call, now, Kind::Subscribe { caller, reply_to, sink, topics });
                self.node_inputs.push(node::Input::Read(ask));
            }
            Input::Listen { sink, topics } => {
                self.events.subscribe(&sink, None, topics);
            }
            Input::Unsubscribe { sink, left } => self.events.keep_topics(sink, &left),
            Input::Unfollow { sink, token } => self.events.unfollow(token, sink),
            Input::SubmitOn { caller, sink, number, request, command } => {
                let command = match self.checked(&caller, command, now, node) {
                    Ok(command) => command,
                    Err(refusal) => {
                        let reply = Reply::Answer(Err(refusal));
                        return self.events.reply(sink, number, reply, &mut self.outputs);
                    }
                };
                self.submitted += 1;
                let reply_to = ReplyTo::Sink { sink, number };
                let (draws, follow) = (None, None);
                let kind = Kind::Submit { reply_to, draws, wait: false, follow };
                let ask = self.pending(None, now, kind);
                self.node_inputs.push(node::Input::Submit { ask, request, command });
            }
            Input::HeartbeatOn { sink, number, session } => {
                let reply_to = ReplyTo::Sink { sink, number };
                let ask = self.pending(None, now, Kind::Heartbeat { reply_to, session });
                self.node_inputs.push(node::Input::Beat { ask, session });
            }
            Input::Start { caller, call, task, block_for } => {
                let until = block_for.and_then(|block_for| now.checked_add(block_for));
                let running = Running { caller, call, task, woken: None, until };
                self.go_on(running, Resume::Started, now, node);
            }
            Input::Record { caller, entry } => self.record(&caller, entry, now, node),
            Input::Abandon { call, ticket } => {
                self.abandon(call, now, node);
                if let Some(ticket) = ticket {
                    self.give_up(ticket, now, node);
                }
            }
            Input::Close(sink) => {
                self.closed.insert(sink);
                self.held_back.retain(|input| !input.is_of_sink(sink));
                self.events.close(sink);
            }
        }
    }

    /// The command as it is submitted, if the caller may give it.
    pub(crate) fn checked(
        &mut self,
        caller: &Caller,
        command: Command,
        now: Duration,
        node: &Node,
    ) -> Result<Command, Refusal> {
        match caller.check(node.state(), &command) {
            Ok(()) if node.cluster().supports_access() => Ok(caller.sign(command)),
            Ok(()) => Ok(command),
            Err(refusal) => {
                self.record_refusal(caller, &refusal, now, node);
                Err(refusal)
            }
        }
    }

    fn refuse(&mut self, reply_to: D::ReplyTo, refusal: Refusal) {
        let completion = CallOutcome::Answer(Err(refusal)).into();
        self.outputs.push(Output::Complete(reply_to, completion));
    }

    fn record_refusal(&mut self, caller: &Caller, refusal: &Refusal, now: Duration, node: &Node) {
        let Refusal::NoRight { right, name, .. } = refusal else { return };
        let subject = name.as_ref().map_or(&[][..], LockName::as_bytes);
        if let Some(entry) = audit_entry(AuditAction::RightRefused, subject, right.as_str()) {
            self.record(caller, entry, now, node);
        }
    }

    /// Records what somebody did, or tried. What a client repeats is recorded once in a while.
    fn record(&mut self, caller: &Caller, entry: AuditEntry, now: Duration, node: &Node) {
        if !node.cluster().supports_access() || !self.repeats.is_news(caller, &entry, now) {
            return;
        }
        let operation = Box::new(Operation::Record(entry));
        let command = Command::Operate { by: caller.actor(), operation };
        let (draws, follow) = (None, None);
        let kind = Kind::Submit { reply_to: ReplyTo::Nobody, draws, wait: false, follow };
        let ask = self.pending(None, now, kind);
        self.node_inputs.push(node::Input::Submit { ask, request: None, command });
    }

    fn ask(&mut self, call: CallId, now: Duration, kind: Kind<D>) -> RequestTag {
        let ask = self.pending(Some(call), now, kind);
        self.places.insert(call, CallPlace::Pending(ask.0 as usize));
        ask
    }

    /// Adds a call that waits for the node's reply.
    pub(crate) fn pending(
        &mut self,
        id: Option<CallId>,
        now: Duration,
        kind: Kind<D>,
    ) -> RequestTag {
        self.next_serial = self.next_serial.wrapping_add(1);
        let deadline = kind.has_deadline().then(|| now.saturating_add(TIMEOUT));
        let serial = self.next_serial;
        let call = Call { id, serial, since: now, deadline, withdrawn: false, kind };
        RequestTag(self.calls.insert(call) as u64)
    }

    /// Abandons a call: nobody receives its completion. A command that was not sent is dropped. If
    /// it was sent and drew a ticket that nobody else knows of, the ticket is given up once its
    /// token is known.
    fn abandon(&mut self, id: CallId, now: Duration, node: &Node) {
        match self.places.remove(&id) {
            Some(CallPlace::Pending(key)) => {
                if let Some(call) = self.calls.get_mut(key) {
                    call.abandon();
                    if !call.withdrawn {
                        call.withdrawn = true;
                        self.node_inputs.push(node::Input::Withdraw(RequestTag(key as u64)));
                    }
                }
            }
            Some(CallPlace::Waiting(token)) => {
                let ticket = self.waits.remove(token, id).and_then(|waiter| waiter.ticket);
                if let Some(ticket) = ticket {
                    self.give_up(ticket, now, node);
                }
            }
            Some(CallPlace::Blocked) => {
                self.blocked.remove(id);
            }
            None => self.held_back.retain(|input| !input.is_of_call(id)),
        }
    }

    /// Takes the inputs for the node's next turn.
    pub fn take_node_inputs(&mut self, into: &mut Vec<node::Input>) {
        into.append(&mut self.node_inputs);
    }

    /// Takes the outputs to deliver, in order.
    pub fn take_outputs(&mut self, into: &mut Vec<Output<D>>) {
        into.append(&mut self.outputs);
    }

    /// An entry was applied.
    pub fn applied(&mut self, effects: Vec<Effect>, now: Duration, node: &Node) {
        for effect in effects {
            match &effect {
                Effect::Granted(grant) if matches!(grant.lease, Lease::Unconfirmed { .. }) => {
                    self.confirm(Box::new(grant.clone()), now, node);
                }
                Effect::Granted(grant) => self.served(grant),
                Effect::Ended(ended) => {
                    // This includes a grant that was never confirmed: its caller has not been
                    // notified of it.
                    for waiter in self.waits.take(ended.token) {
                        let outcome = CallOutcome::Ended(Box::new(ended.clone()));
                        self.complete_wait(waiter, outcome.into());
                    }
                }
                Effect::AccessChanged(_) => {
                    self.events.recheck(node.state(), &mut self.outputs);
                }
                Effect::ObjectChanged { name, now: Some(kind), .. } if !self.blocked.is_empty() => {
                    self.stirred.push((name.clone(), *kind));
                }
                _ => {}
            }
            self.events.publish(effect, node.state().now_ms(), &mut self.outputs);
        }
        self.events.entry_done();
    }

    pub(crate) fn served(&mut self, grant: &Grant) {
        for mut waiter in self.waits.take(grant.token) {
            if let Some(sink) = waiter.follow.take() {
                self.events.follow(grant.token, &sink);
            }
            let (outcome, ticket) =
                (CallOutcome::Served(Box::new(grant.clone())), waiter.ticket.take());
            self.complete_wait(waiter, Completion { outcome: Ok(outcome), ticket });
        }
    }

    fn complete_wait(&mut self, waiter: Waiter<D>, completion: Completion) {
        self.places.remove(&waiter.call);
        self.outputs.push(Output::Complete(waiter.reply_to, completion));
    }

    /// The node skipped entries, so the status of tickets is unknown. Their waiters are notified,
    /// and tickets that only they know of are given up.
    pub fn lost_track(&mut self, now: Duration, node: &Node) {
        for waiter in self.waits.take_all() {
            self.places.remove(&waiter.call);
            let completion = Completion::from(SubmitError::Unknown);
            self.outputs.push(Output::Complete(waiter.reply_to, completion));
            if let Some(ticket) = waiter.ticket {
                self.give_up(ticket, now, node);
            }
        }
        self.events.lost_track(&mut self.outputs);
        self.wake_all(now, node);
    }

    /// Ends a turn, after all outputs of the node have been handled.
    pub fn finish_turn(&mut self, now: Duration, node: &Node) {
        for (key, serial) in std::mem::take(&mut self.withdrawing) {
            // Another call may have taken its slot in the meantime.
            if self.calls.get(key).is_some_and(|call| call.serial == serial) {
                self.leave(key);
            }
        }
        self.resume_tasks(now, node);
    }

    /// It was withdrawn too late for the node to say that it has no effect, so the caller is
    /// answered "unknown". Once the outcome is known, a ticket without a caller is given up.
    fn leave(&mut self, key: usize) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.deadline = None;
        let id = call.id.take();
        let left = call.take_reply_to();
        if let Kind::Task { .. } = call.kind {
            let (draws, follow) = (None, None);
            let nobody = Kind::Submit { reply_to: ReplyTo::Nobody, draws, wait: false, follow };
            if let (Some(call), Kind::Task { caller, task, woken, until }) =
                (id, std::mem::replace(&mut call.kind, nobody))
            {
                self.places.remove(&call);
                let running = Running { caller, call, task, woken, until };
                self.replied.push((running, Reply::Unknown));
            }
            return;
        }
        if let Some(id) = id {
            self.places.remove(&id);
        }
        match left {
            ReplyTo::One(reply_to) => {
                self.outputs.push(Output::Complete(reply_to, SubmitError::Unknown.into()));
            }
            // Its client sends it again under the same number.
            ReplyTo::Sink { sink, number } => {
                self.events.reply(sink, number, Reply::Unknown, &mut self.outputs);
            }
            ReplyTo::Nobody => {}
        }
    }

    /// What a task sees.
    pub(crate) fn view<'a>(&'a self, caller: &'a Caller, node: &'a Node) -> View<'a> {
        View { caller, state: node.state(), channels: &self.events.channels }
    }
}
