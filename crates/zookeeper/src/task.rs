//! Runs a client's requests on the loop's thread: the task that a
//! [`Connection`](crate::connection::Connection) starts, run by the gateway.
//!
//! A task does the requests that can be done at one moment: a change and the reads that follow it,
//! or reads alone. It returns at that moment too, so that its replies and the events of watches are
//! sent in the right order.

use crate::clients::{ClientId, Clients};
use crate::code::Code;
use crate::codec::{Connect, Connected, Malformed, MultiResult, Reply, ReplyBody, Request};
use crate::reads::Reading;
use holdfast_core::{
    Answer, AuthId, Command, Label, NodeKind, NodeOp, NodeResult, OpenSession, Refusal, Secret,
    SessionId, SessionKind, SessionRef, State, TreeCommand, TreeWrite, is_allowed, perms,
};
use holdfast_gateway::{Caller, Resume, Step, SubmitError, submit_error};
use holdfast_node::Reply as NodeReply;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) xid: i32,
    pub(crate) request: Result<Request, Malformed>,
    /// The identities that the client had proven when the request arrived.
    pub(crate) ids: Arc<[AuthId]>,
    /// The size of its frame.
    pub(crate) bytes: usize,
}

/// Bytes of replies that one task collects before it returns; the remaining requests become another
/// task. A single reply may be longer.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Znodes counted per step, which takes about a millisecond of the loop's thread.
const COUNTED_MAX: usize = 4_096;

/// The progress of `getAllChildrenNumber`: how many znodes were counted, and the last of them.
#[derive(Debug, Default)]
struct Count {
    found: usize,
    last: Option<String>,
}

/// A session, and the attachment that this connection has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachedSession {
    pub(crate) session: SessionRef,
    pub(crate) attachment: u64,
    pub(crate) timeout_ms: u64,
}

#[derive(Debug)]
enum Work {
    /// Opens a session.
    Open { timeout_ms: u64, secret: Secret, label: Option<Label>, read_only: Option<bool> },
    /// Attaches an existing session to this connection.
    Attach { connect: Connect, session: SessionRef, current: bool },
    /// Requests of a session, the first of which may need the log.
    Requests { speaker: AttachedSession, asked: Vec<QueuedRequest>, count: Count },
}

/// The outcome of a task.
#[derive(Debug)]
pub(crate) enum TaskOutcome {
    /// The session is open, with the reply to send first.
    Connected(AttachedSession, Connected),
    /// There is no such session; the reply to send before closing.
    Expired(Connected),
    /// This server is behind what the client has seen and could not catch up: the client must try
    /// another.
    Behind,
    /// Another connection has attached the session in the meantime.
    Moved,
    /// Frames in order, whether to close the connection after them, and the requests that were left
    /// over because the replies would have been too large.
    Replied { frames: Vec<Vec<u8>>, close: bool, rest: Vec<QueuedRequest> },
    /// The outcome is unknown.
    Failed(SubmitError),
}

/// How long the cluster keeps a session without a heartbeat: half a timeout longer than its client
/// relies on. When a request is answered, the last acknowledged heartbeat may be older than it by a
/// third of the timeout, after which the connection is closed, plus an eighth, the time between the
/// heartbeats of a busy client.
fn ttl_ms(timeout_ms: u64) -> u64 {
    timeout_ms.saturating_add(timeout_ms.div_ceil(2))
}

/// The inverse of [`ttl_ms`]: the timeout of a session with this TTL.
fn timeout_ms(ttl_ms: u64) -> u64 {
    ttl_ms.saturating_mul(2) / 3
}

/// Requests of one client, run on the loop's thread.
#[derive(Debug)]
pub struct ClientTask {
    client: ClientId,
    /// On whose behalf it runs.
    caller: Caller,
    work: Work,
    pub(crate) outcome: Option<TaskOutcome>,
    /// The zxid of the state at the last step.
    pub(crate) zxid: u64,
}

impl ClientTask {
    fn new(client: ClientId, caller: Caller, work: Work) -> Self {
        Self { client, caller, work, outcome: None, zxid: 0 }
    }

    pub(crate) fn open(
        client: ClientId,
        caller: Caller,
        timeout_ms: u64,
        secret: Secret,
        label: Option<Label>,
        read_only: Option<bool>,
    ) -> Self {
        Self::new(client, caller, Work::Open { timeout_ms, secret, label, read_only })
    }

    /// `None` if no session can have this id or this password.
    pub(crate) fn attach(client: ClientId, caller: Caller, connect: Connect) -> Option<Self> {
        let id = u64::try_from(connect.session).ok().and_then(NonZeroU64::new)?;
        let secret = Secret(connect.password.as_slice().try_into().ok()?);
        let session = SessionRef { id: SessionId(id), secret };
        Some(Self::new(client, caller, Work::Attach { connect, session, current: false }))
    }

    pub(crate) fn requests(
        client: ClientId,
        caller: Caller,
        speaker: AttachedSession,
        asked: Vec<QueuedRequest>,
    ) -> Self {
        Self::new(client, caller, Work::Requests { speaker, asked, count: Count::default() })
    }

    /// The client that it belongs to.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// On whose behalf it runs.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Why its outcome is unknown, for the log. `None` if it is known.
    pub fn failure(&self) -> Option<&SubmitError> {
        match &self.outcome {
            Some(TaskOutcome::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Does the next step.
    pub fn resume(&mut self, state: &State, clients: &mut Clients, resume: Resume) -> Step {
        self.zxid = state.zxid();
        let reply = match resume {
            Resume::Started => None,
            Resume::Replied(reply @ (NodeReply::Answer(_) | NodeReply::Current)) => Some(reply),
            Resume::Replied(reply) => return self.done(TaskOutcome::Failed(submit_error(&reply))),
            Resume::Woken | Resume::TimedOut | Resume::NoRoom => {
                return self.done(TaskOutcome::Failed(SubmitError::Unknown));
            }
        };
        match &mut self.work {
            Work::Open { .. } => self.opened(state, clients, reply),
            Work::Attach { .. } => self.attached(state, clients, reply),
            Work::Requests { .. } => self.requested(state, clients, reply),
        }
    }

    fn done(&mut self, outcome: TaskOutcome) -> Step {
        self.outcome = Some(outcome);
        Step::Done
    }

    fn opened(&mut self, state: &State, clients: &mut Clients, reply: Option<NodeReply>) -> Step {
        let Work::Open { timeout_ms, secret, label, read_only } = &self.work else {
            return Step::Done;
        };
        let (timeout_ms, secret, read_only) = (*timeout_ms, *secret, *read_only);
        match reply {
            None => Step::Submit(Command::OpenSession(OpenSession {
                secret,
                ttl_ms: ttl_ms(timeout_ms),
                label: label.clone(),
                kind: SessionKind::Client,
            })),
            Some(NodeReply::Answer(Ok(Answer::SessionOpened(id)))) => {
                let session = SessionRef { id, secret };
                self.connected(state, clients, session, 0, read_only)
            }
            Some(_) => self.done(TaskOutcome::Failed(SubmitError::QueueFull)),
        }
    }

    fn attached(&mut self, state: &State, clients: &mut Clients, reply: Option<NodeReply>) -> Step {
        let Work::Attach { connect, session, current } = &mut self.work else { return Step::Done };
        let (session, read_only) = (*session, connect.read_only.map(|_| false));
        match reply {
            None | Some(NodeReply::Current) => {
                *current |= reply.is_some();
                let behind = u64::try_from(connect.last_zxid).is_ok_and(|seen| seen > state.zxid());
                if !behind {
                    return Step::Submit(Command::Tree(TreeCommand::Attach(session)));
                }
                if *current { self.done(TaskOutcome::Behind) } else { Step::Read }
            }
            Some(NodeReply::Answer(Ok(Answer::SessionAttached { attachment }))) => {
                self.connected(state, clients, session, attachment, read_only)
            }
            Some(NodeReply::Answer(Err(Refusal::NoSession(_) | Refusal::NotOwner))) => {
                self.done(TaskOutcome::Expired(Connected::expired(read_only)))
            }
            Some(_) => self.done(TaskOutcome::Failed(SubmitError::Unknown)),
        }
    }

    fn connected(
        &mut self,
        state: &State,
        clients: &mut Clients,
        session: SessionRef,
        attachment: u64,
        read_only: Option<bool>,
    ) -> Step {
        // The state may be ahead of the answer, and this client was not notified of what happened
        // to the session since: it was not bound to it yet.
        let view = state.session_view(session.id, 0).filter(|_| state.session_lives(&session));
        let Some(timeout_ms) = view.map(|view| timeout_ms(view.ttl_ms)) else {
            return self.done(TaskOutcome::Expired(Connected::expired(read_only)));
        };
        if state.attachment(session.id) != attachment {
            return self.done(TaskOutcome::Moved);
        }
        clients.bind(self.client, session.id, attachment);
        let connected = Connected {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session: session.id.0.get().cast_signed(),
            password: session.secret.0,
            read_only,
        };
        let speaker = AttachedSession { session, attachment, timeout_ms };
        self.done(TaskOutcome::Connected(speaker, connected))
    }

    fn requested(
        &mut self,
        state: &State,
        clients: &mut Clients,
        reply: Option<NodeReply>,
    ) -> Step {
        let Work::Requests { speaker, asked, count } = &mut self.work else { return Step::Done };
        let (client, speaker) = (self.client, *speaker);
        if reply.is_none()
            && let Some(first) = asked.first()
            && let Some(step) = first_step(first, &speaker)
        {
            return step;
        }
        if let Some(first) = asked.first()
            && first.count_on(&self.caller, state, count)
        {
            // Other tasks have their turn before it continues.
            return Step::Read;
        }
        let descendants = count.found;
        let (mut frames, mut frames_bytes, mut close) = (Vec::new(), 0_usize, false);
        let mut answer = match reply {
            Some(NodeReply::Answer(answer)) => Some(answer),
            _ => None,
        };
        let mut asked = std::mem::take(asked).into_iter();
        while frames_bytes < REPLY_BYTES_MAX
            && let Some(QueuedRequest { xid, request, ids, .. }) = asked.next()
        {
            let (xid, zxid) = (xid, state.zxid().cast_signed());
            let (result, events) = match (answer.take(), request) {
                (_, Err(malformed)) => (Err(Code::of_malformed(&malformed)), Vec::new()),
                (Some(answer), Ok(request)) => {
                    close |= request == Request::CloseSession;
                    (written(&request, answer), Vec::new())
                }
                (None, Ok(request)) => {
                    let session = speaker.session.id;
                    let (ids, events) = (&ids[..], Vec::new());
                    let mut reading = Reading {
                        state,
                        clients,
                        client,
                        caller: &self.caller,
                        session,
                        ids,
                        descendants,
                        events,
                    };
                    (reading.answer(&request), reading.events)
                }
            };
            let events = events.iter().map(crate::codec::WatchEvent::encode);
            for frame in events.chain([Reply { xid, zxid, result }.encode()]) {
                frames_bytes = frames_bytes.saturating_add(frame.len());
                frames.push(frame);
            }
        }
        self.done(TaskOutcome::Replied { frames, close, rest: asked.collect() })
    }
}

impl QueuedRequest {
    /// Whether it may take more than one step, so that it must be the first of its task.
    pub(crate) fn takes_steps(&self) -> bool {
        matches!(
            self.request,
            Ok(Request::Write { .. }
                | Request::Multi(_)
                | Request::Sync { .. }
                | Request::GetAllChildrenNumber { .. }
                | Request::CloseSession)
        )
    }

    /// If this is a `getAllChildrenNumber` that is allowed, counts the next batch of znodes.
    /// Returns whether there may be more. As in ZooKeeper, znodes may be created and deleted during
    /// the count.
    fn count_on(&self, caller: &Caller, state: &State, count: &mut Count) -> bool {
        let Ok(Request::GetAllChildrenNumber { path }) = &self.request else { return false };
        let node = state.node(path);
        let allowed = node.is_some_and(|node| is_allowed(node.acl, perms::READ, &self.ids));
        if !allowed || !caller.may_look_below(state, path) {
            return false;
        }
        let (found, last) = state.node_descendants(path, count.last.as_deref(), COUNTED_MAX);
        count.found = count.found.saturating_add(found);
        count.last = last;
        count.last.is_some()
    }
}

/// The step that a request needs before it can be answered. `None` if it needs none.
fn first_step(asked: &QueuedRequest, speaker: &AttachedSession) -> Option<Step> {
    let ops: Vec<NodeOp> = match asked.request.as_ref().ok()? {
        Request::Write { op, .. } => vec![op.clone()],
        Request::Multi(ops) => ops.iter().map(|(op, _)| op.clone()).collect(),
        Request::Sync { .. } => return Some(Step::Read),
        Request::CloseSession => return Some(Step::Submit(Command::CloseSession(speaker.session))),
        _ => return None,
    };
    let AttachedSession { session, attachment, .. } = *speaker;
    let write = TreeWrite { session, attachment, ids: asked.ids.to_vec(), ops };
    Some(Step::Submit(Command::Tree(TreeCommand::Write(write))))
}

/// The reply to a change.
fn written(request: &Request, answer: Result<Answer, Refusal>) -> Result<ReplyBody, Code> {
    let results = match (answer, request) {
        (Ok(Answer::Written(results)), _) => results,
        (Ok(_), _) => return Ok(ReplyBody::Empty),
        (Err(refusal @ Refusal::Node { op, .. }), Request::Multi(ops)) => {
            let failed = op as usize;
            let result = |at: usize| match at.cmp(&failed) {
                std::cmp::Ordering::Less => MultiResult::Error(0),
                std::cmp::Ordering::Equal => {
                    MultiResult::Error(Code::of_refusal(&refusal).number())
                }
                std::cmp::Ordering::Greater => {
                    MultiResult::Error(Code::RuntimeInconsistency.number())
                }
            };
            return Ok(ReplyBody::Multi((0..ops.len()).map(result).collect()));
        }
        // Closing a session that has already ended succeeds.
        (Err(Refusal::NoSession(_)), Request::CloseSession) => return Ok(ReplyBody::Empty),
        (Err(refusal), _) => return Err(Code::of_refusal(&refusal)),
    };
    match request {
        Request::Multi(ops) => {
            let both = results.into_iter().zip(ops);
            let results = both.map(|(result, (op, _))| multi_result(result, op));
            Ok(ReplyBody::Multi(results.collect()))
        }
        Request::Write { stat: with_stat, .. } => Ok(match results.into_iter().next() {
            Some(NodeResult::Created { path, stat }) if *with_stat => {
                ReplyBody::PathStat(path.to_string(), stat)
            }
            Some(NodeResult::Created { path, .. }) => ReplyBody::Path(path.to_string()),
            Some(NodeResult::Set(stat)) => ReplyBody::Stat(stat),
            Some(NodeResult::Deleted | NodeResult::Checked) | None => ReplyBody::Empty,
        }),
        _ => Ok(ReplyBody::Empty),
    }
}

fn multi_result(result: NodeResult, op: &NodeOp) -> MultiResult {
    match result {
        // As ZooKeeper does: here `create2` is answered like `create`, and the others like
        // `create2`.
        NodeResult::Created { path, stat } => match op {
            NodeOp::Create { kind: NodeKind::Container | NodeKind::Ttl { .. }, .. } => {
                MultiResult::CreatedStat(crate::codec::op::CREATE2, path.to_string(), stat)
            }
            _ => MultiResult::Created(path.to_string()),
        },
        NodeResult::Deleted => MultiResult::Deleted,
        NodeResult::Set(stat) => MultiResult::Set(stat),
        NodeResult::Checked => MultiResult::Checked,
    }
}
