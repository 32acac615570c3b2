//! Calls that wait for the node's reply, and what a reply means for each of them.

use crate::gateway::{CallPlace, Gateway};
use crate::io::{Attached, CallId, CallOutcome, Completion, Driver, Output, Sink, submit_error};
use crate::tasks::{Running, Woken};
use crate::waits::Waiter;
use crate::{Caller, SubmitError, TicketRef, Topic};
use holdfast_core::{
    Answer, Effect, Grant, Refusal, SessionId, SessionRef, State, TicketStatus, Token,
};
use holdfast_node::{self as node, Node, Reply, RequestTag};
use std::time::Duration;

/// A call that waits for the node's reply.
pub(crate) struct Call<D: Driver> {
    /// `None` if it can't be abandoned.
    pub(crate) id: Option<CallId>,
    /// Distinguishes it from an earlier call in the same slot.
    pub(crate) serial: u64,
    pub(crate) since: Duration,
    /// When it is withdrawn.
    pub(crate) deadline: Option<Duration>,
    pub(crate) withdrawn: bool,
    pub(crate) kind: Kind<D>,
}

/// Where the outcome of a call goes.
pub(crate) enum ReplyTo<D: Driver> {
    /// To a caller that waits for this call alone.
    One(D::ReplyTo),
    /// To a sink, as the reply to this number.
    Sink { sink: D::Sink, number: u64 },
    /// Nowhere: the caller is gone, or was told that the outcome is unknown.
    Nobody,
}

pub(crate) enum Kind<D: Driver> {
    Submit {
        reply_to: ReplyTo<D>,
        /// The ticket that this draws, if nobody but the caller can know of it.
        draws: Option<TicketRef>,
        wait: bool,
        follow: Option<D::Sink>,
    },
    Heartbeat {
        reply_to: ReplyTo<D>,
        session: SessionRef,
    },
    Read(ReplyTo<D>),
    Change(ReplyTo<D>),
    Open {
        reply_to: ReplyTo<D>,
        sink: D::Sink,
    },
    /// The heartbeat of an attach. The leader confirmed it, which does not mean that this node is
    /// up to date.
    Attach {
        reply_to: ReplyTo<D>,
        session: SessionRef,
        tickets: Vec<Token>,
        sink: D::Sink,
    },
    /// The read that follows it.
    LookAt {
        reply_to: ReplyTo<D>,
        session: SessionId,
        tickets: Vec<Token>,
        sink: D::Sink,
    },
    /// The read after a heartbeat of a session that is not alive: a client with the wrong secret
    /// must not learn anything else about the session.
    NotAlive {
        reply_to: ReplyTo<D>,
        session: SessionRef,
    },
    Subscribe {
        caller: Caller,
        reply_to: ReplyTo<D>,
        sink: D::Sink,
        topics: Vec<Topic>,
    },
    Task {
        caller: Caller,
        task: D::Task,
        woken: Option<Woken>,
        /// When it times out while blocked; `None` is never.
        until: Option<Duration>,
    },
    /// Ends a ticket that has no caller any more.
    GiveUp(TicketRef),
    /// Confirms a grant that a caller on this node waits for: its deadline starts to count.
    Confirm(Box<Grant>),
}

impl<D: Driver> Kind<D> {
    pub(crate) fn has_deadline(&self) -> bool {
        !matches!(self, Self::Change(_) | Self::GiveUp(_) | Self::Confirm(_))
    }

    fn reply_to(&mut self) -> Option<&mut ReplyTo<D>> {
        match self {
            Self::Submit { reply_to, .. }
            | Self::Heartbeat { reply_to, .. }
            | Self::Read(reply_to)
            | Self::Change(reply_to)
            | Self::Open { reply_to, .. }
            | Self::Attach { reply_to, .. }
            | Self::LookAt { reply_to, .. }
            | Self::NotAlive { reply_to, .. }
            | Self::Subscribe { reply_to, .. } => Some(reply_to),
            Self::Task { .. } | Self::GiveUp(_) | Self::Confirm(_) => None,
        }
    }
}

impl<D: Driver> Call<D> {
    pub(crate) fn reply_to(&mut self) -> Option<&mut ReplyTo<D>> {
        self.kind.reply_to()
    }

    /// From now on nobody receives the outcome.
    pub(crate) fn take_reply_to(&mut self) -> ReplyTo<D> {
        let reply_to = self.kind.reply_to();
        reply_to.map_or(ReplyTo::Nobody, |to| std::mem::replace(to, ReplyTo::Nobody))
    }

    pub(crate) fn abandon(&mut self) {
        self.id = None;
        self.take_reply_to();
    }
}

impl<D: Driver> Gateway<D> {
    /// Handles a reply from the node.
    pub fn reply(&mut self, ask: RequestTag, reply: Reply, now: Duration, node: &Node) {
        let key = usize::try_from(ask.0).unwrap_or(usize::MAX);
        let Some(call) = self.calls.try_remove(key) else { return };
        let took = now.saturating_sub(call.since);
        let (id, deadline) = (call.id, call.deadline);
        if let Some(id) = id {
            self.places.remove(&id);
        }
        match call.kind {
            Kind::Submit { reply_to, draws, wait, follow } => {
                self.answered_after.push(took);
                match (reply_to, id) {
                    (ReplyTo::One(reply_to), Some(id)) => {
                        let waiter = Waiter { call: id, reply_to, ticket: draws, follow };
                        self.answer(waiter, wait, reply);
                    }
                    (ReplyTo::Sink { sink, number }, _) => {
                        self.events.reply(sink, number, reply, &mut self.outputs);
                    }
                    _ => {
                        if let Some(ticket) = known(draws, &reply) {
                            self.give_up(ticket, now, node);
                        }
                    }
                }
            }
            Kind::Heartbeat { reply_to: ReplyTo::Sink { sink, number }, .. } => {
                self.events.reply(sink, number, reply, &mut self.outputs);
            }
            Kind::Heartbeat { reply_to, session } => match reply {
                Reply::Beat(true) => self.complete(reply_to, CallOutcome::Alive.into()),
                Reply::Beat(false) => {
                    self.read_on(id, deadline, now, Kind::NotAlive { reply_to, session })
                }
                reply => self.complete(reply_to, submit_error(&reply).into()),
            },
            Kind::NotAlive { reply_to, session } => self.complete(
                reply_to,
                match reply {
                    Reply::Current => CallOutcome::NotAlive(not_alive(session, node)).into(),
                    reply => submit_error(&reply).into(),
                },
            ),
            Kind::Read(reply_to) => self.complete(
                reply_to,
                match reply {
                    Reply::Current => CallOutcome::Current.into(),
                    reply => submit_error(&reply).into(),
                },
            ),
            Kind::Change(reply_to) => self.complete(
                reply_to,
                match reply {
                    Reply::Changed(changed) => CallOutcome::Changed(changed).into(),
                    reply => submit_error(&reply).into(),
                },
            ),
            Kind::Open { reply_to, sink } => {
                self.answered_after.push(took);
                let there = !matches!(reply_to, ReplyTo::Nobody);
                if let (Reply::Answer(Ok(Answer::SessionOpened(id))), true) = (&reply, there) {
                    self.events.bind(*id, &sink, &mut self.outputs);
                }
                self.complete(reply_to, answered(reply));
            }
            Kind::Attach { reply_to: ReplyTo::Nobody, .. } => {}
            Kind::Attach { reply_to, session, tickets, sink } => match reply {
                // The sink receives events before its client learns the status of its tickets, so
                // nothing is missed in between.
                Reply::Beat(true) => {
                    self.events.bind(session.id, &sink, &mut self.outputs);
                    let session = session.id;
                    if tickets.is_empty() {
                        let attached = CallOutcome::Attached(Box::default());
                        self.complete(reply_to, attached.into());
                    } else {
                        let look = Kind::LookAt { reply_to, session, tickets, sink };
                        self.read_on(id, deadline, now, look);
                    }
                }
                Reply::Beat(false) => {
                    self.read_on(id, deadline, now, Kind::NotAlive { reply_to, session })
                }
                reply => self.complete(reply_to, submit_error(&reply).into()),
            },
            Kind::LookAt { reply_to, session, tickets, sink } => match reply {
                Reply::Current => {
                    let attached = attached(node.state(), session, &tickets);
                    self.complete(reply_to, CallOutcome::Attached(Box::new(attached)).into());
                }
                reply => {
                    self.events.close(sink.id());
                    self.complete(reply_to, submit_error(&reply).into());
                }
            },
            Kind::Subscribe { reply_to: ReplyTo::Nobody, .. } => {}
            Kind::Subscribe { caller, reply_to, sink, topics } => {
                let completion = match reply {
                    Reply::Current if self.events.subscribe(&sink, Some(caller), topics) => {
                        CallOutcome::Subscribed.into()
                    }
                    Reply::Current => SubmitError::QueueFull.into(),
                    reply => submit_error(&reply).into(),
                };
                self.complete(reply_to, completion);
            }
            Kind::Task { caller, task, woken, until } => {
                if matches!(reply, Reply::Answer(_)) {
                    self.answered_after.push(took);
                }
                match id {
                    Some(call) => {
                        self.replied.push((Running { caller, call, task, woken, until }, reply));
                    }
                    // It was abandoned. What it did not take is left for the next task.
                    None => self.stirred.extend(woken.map(|woken| (woken.name, woken.kind))),
                }
            }
            Kind::GiveUp(ticket) => self.given_up(ticket, &reply, now),
            Kind::Confirm(grant) => self.confirmed(grant, &reply, now),
        }
    }

    /// Continues a call with a read, under the same deadline.
    fn read_on(
        &mut self,
        id: Option<CallId>,
        deadline: Option<Duration>,
        now: Duration,
        kind: Kind<D>,
    ) {
        let ask = self.pending(id, now, kind);
        if let Some(call) = self.calls.get_mut(ask.0 as usize) {
            call.deadline = deadline;
        }
        if let Some(id) = id {
            self.places.insert(id, CallPlace::Pending(ask.0 as usize));
        }
        self.node_inputs.push(node::Input::Read(ask));
    }

    pub(crate) fn complete(&mut self, reply_to: ReplyTo<D>, completion: Completion) {
        if let ReplyTo::One(reply_to) = reply_to {
            self.outputs.push(Output::Complete(reply_to, completion));
        }
    }

    /// Answers a caller; if it waits for its ticket to be served, adds it to the waits instead.
    fn answer(&mut self, mut waiter: Waiter<D>, wait: bool, reply: Reply) {
        waiter.ticket = known(waiter.ticket, &reply);
        match &reply {
            Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Waiting { token, .. })))
                if wait =>
            {
                let token = *token;
                self.places.insert(waiter.call, CallPlace::Waiting(token));
                self.waits.add(token, waiter);
                return;
            }
            Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(grant)))) => {
                if let Some(sink) = &waiter.follow {
                    self.events.follow(grant.token, sink);
                }
            }
            _ => {}
        }
        let completion = Completion { ticket: waiter.ticket, ..answered(reply) };
        self.outputs.push(Output::Complete(waiter.reply_to, completion));
    }
}

fn answered(reply: Reply) -> Completion {
    match reply {
        Reply::Answer(answer) => CallOutcome::Answer(answer).into(),
        reply => submit_error(&reply).into(),
    }
}

/// The drawn ticket, now that its token is known; `None` if it is over or was not drawn.
fn known(draws: Option<TicketRef>, reply: &Reply) -> Option<TicketRef> {
    let mut ticket = draws?;
    match reply {
        Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Over { .. }))) => None,
        Reply::Answer(Ok(Answer::TicketStatus(status))) => {
            ticket.target.token = Some(status.token());
            Some(ticket)
        }
        _ => None,
    }
}

fn not_alive(session: SessionRef, node: &Node) -> Refusal {
    match node.state().session_owner(&session) {
        Some(false) => Refusal::NotOwner,
        Some(true) | None => Refusal::NoSession(session.id),
    }
}

/// What a client learns when it attaches to its session.
fn attached(state: &State, session: SessionId, tickets: &[Token]) -> Attached {
    let own = |token: &&Token| {
        state.ticket_view(**token).is_none_or(|ticket| ticket.session == Some(session))
    };
    let own: Vec<Token> = tickets.iter().filter(own).copied().collect();
    let revocations: Vec<Effect> =
        own.iter().filter_map(|token| state.revocation_asked(*token)).collect();
    let statuses = own.iter().map(|token| state.ticket_status(*token)).collect();
    Attached { statuses, revocations, now_ms: state.now_ms() }
}
