//! A gateway in front of a real node: one voter, whose disk is instant unless it is stalled.

use holdfast_core::{
    Acquire, Answer, Channel, Command, Door, Effect, Element, Expiry, Grant, Label, Lease, Limits,
    LockName, Message, Mode, Object, OpenSession, Proof, Secret, SessionKind, SessionRef, State,
    Target, TicketStatus, Token, Transaction, Wait, Write, WriteOp,
};
use holdfast_gateway::{
    CallId, CallOutcome, Caller, Completion, Driver, Gateway, Input, Output, Resume, SessionEvent,
    Sink, SinkId, Step, SubmitError, Task, View,
};
use holdfast_node::{
    self as node, Boot, Cluster, Config, HardState, LEVEL, Loaded, Moment, Node, NodeId, Position,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(crate) const SECRET: Secret = Secret([7; 16]);

pub(crate) struct Virtual;

impl Driver for Virtual {
    type ReplyTo = CallId;
    type Sink = VirtualSink;
    type Task = Script;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VirtualSink(pub(crate) u64);

impl Sink for VirtualSink {
    fn id(&self) -> SinkId {
        SinkId(self.0)
    }
}

/// A task with these steps, which records why it was resumed.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) resumed: Vec<String>,
}

impl Script {
    pub(crate) fn new(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { name, steps: steps.into_iter().collect(), resumed: Vec::new() }
    }
}

impl Task for Script {
    fn resume(&mut self, _: &View<'_>, resume: Resume) -> Step {
        let over = matches!(resume, Resume::TimedOut | Resume::NoRoom);
        self.resumed.push(format!("{resume:?}"));
        if over { Step::Done } else { self.steps.pop_front().unwrap_or(Step::Done) }
    }
}

pub(crate) struct Bench {
    pub(crate) gateway: Gateway<Virtual>,
    pub(crate) node: Node,
    pub(crate) now: Duration,
    pub(crate) completions: BTreeMap<CallId, Completion>,
    pub(crate) events: Vec<(u64, SessionEvent)>,
    pub(crate) finished: Vec<Script>,
    pub(crate) closed: Vec<u64>,
    /// The numbers of writes that are stalled; `None` unless the disk is.
    pub(crate) stalled: Option<Vec<u64>>,
    stalls_next: bool,
    node_inputs: Vec<node::Input>,
    next: u64,
}

impl Bench {
    /// A node that leads.
    pub(crate) fn new() -> Self {
        let mut bench = Self::without_leader();
        bench.lead();
        bench
    }

    /// A node without a leader: its disk does not finish its own vote.
    pub(crate) fn without_leader() -> Self {
        let cluster = Cluster::begin([(NodeId(1), "node-1".to_owned())]);
        let at = Position { index: 1, term: 1 };
        let boot = Boot {
            loaded: Loaded { at, state: State::new(Limits::DEFAULT, 1), cluster },
            hard_state: HardState { term: 1, vote: 0, commit: 1 },
            entries: Vec::new(),
        };
        let config = Config {
            id: NodeId(1),
            birth: 1,
            rng_key: 1,
            secret: Secret([1; 16]),
            nonce: 1,
            snapshot_every_bytes: 1 << 20,
            level: LEVEL,
        };
        Self {
            gateway: Gateway::new(),
            node: Node::new(config, boot).unwrap(),
            now: Duration::ZERO,
            completions: BTreeMap::new(),
            events: Vec::new(),
            finished: Vec::new(),
            closed: Vec::new(),
            stalled: Some(Vec::new()),
            stalls_next: false,
            node_inputs: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn lead(&mut self) {
        self.unstall();
        self.node_inputs.push(node::Input::Campaign);
        self.pass(1_000);
        assert!(self.node.is_leader() && self.node.own_session().is_some());
    }

    pub(crate) fn handle(&mut self, input: Input<Virtual>) {
        self.gateway.handle(input, self.now, &self.node);
    }

    /// One turn, as a driver runs it.
    pub(crate) fn turn(&mut self) {
        self.gateway.begin_turn(self.now, &self.node);
        let mut inputs = std::mem::take(&mut self.node_inputs);
        self.gateway.take_node_inputs(&mut inputs);
        let moment = Moment { mono_ms: self.now.as_millis() as u64, wall_ms: 0 };
        let mut outputs = Vec::new();
        self.node.turn(moment, inputs, &mut outputs);
        for output in outputs {
            match output {
                node::Output::Persist(persist) => match &mut self.stalled {
                    Some(stalled) => stalled.push(persist.number),
                    None => {
                        self.node_inputs.push(node::Input::Persisted(persist.number));
                        let has_entries = !persist.entries.is_empty();
                        if std::mem::take(&mut self.stalls_next) && has_entries {
                            self.stalled = Some(Vec::new());
                        }
                    }
                },
                node::Output::Reply { ask, reply } => {
                    self.gateway.reply(ask, reply, self.now, &self.node);
                }
                node::Output::Applied { effects, .. } => {
                    self.gateway.applied(effects, self.now, &self.node);
                }
                _ => {}
            }
        }
        self.gateway.finish_turn(self.now, &self.node);
        self.deliver();
    }

    pub(crate) fn deliver(&mut self) {
        let mut outputs = Vec::new();
        self.gateway.take_outputs(&mut outputs);
        for output in outputs {
            match output {
                Output::Complete(call, completion) => {
                    assert!(self.completions.insert(call, completion).is_none(), "twice: {call:?}");
                }
                Output::Event(sink, event) => self.events.push((sink.0, event)),
                Output::Finished(task) => self.finished.push(task),
                Output::Close(sink) => self.closed.push(sink.0),
                Output::CloseIfAbove(..) => {}
            }
        }
    }

    /// Lets milliseconds pass, with as many turns as each needs.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            for _ in 0..6 {
                self.turn();
            }
        }
    }

    /// Stalls the disk after the next entries have been written.
    pub(crate) fn stall_after_next_write(&mut self) {
        self.stalls_next = true;
    }

    pub(crate) fn disk_full(&mut self, full: bool) {
        self.node_inputs.push(node::Input::DiskFull(full));
    }

    /// Lets the disk finish.
    pub(crate) fn unstall(&mut self) {
        let numbers = self.stalled.take().unwrap_or_default();
        self.node_inputs.extend(numbers.into_iter().map(node::Input::Persisted));
    }

    pub(crate) fn next_call(&mut self) -> CallId {
        self.next += 1;
        CallId(self.next)
    }

    pub(crate) fn submit(&mut self, command: Command) -> CallId {
        let call = self.next_call();
        let (request, follow) = (None, None);
        self.handle(Input::Submit {
            caller: Caller::NODE,
            call,
            reply_to: call,
            request,
            command,
            wait: true,
            follow,
        });
        call
    }

    pub(crate) fn abandon(&mut self, call: CallId) {
        self.handle(Input::Abandon { call, ticket: None });
    }

    pub(crate) fn is_completed(&self, call: CallId) -> bool {
        self.completions.contains_key(&call)
    }

    pub(crate) fn outcome(&mut self, call: CallId) -> Result<CallOutcome, SubmitError> {
        self.completion(call).outcome
    }

    pub(crate) fn completion(&mut self, call: CallId) -> Completion {
        self.completions.remove(&call).unwrap_or_else(|| panic!("{call:?} is not completed"))
    }

    /// Acquires a free lock.
    pub(crate) fn take(&mut self, name: &str) -> Grant {
        let call = self.submit(acquire(name, Wait::Try));
        self.pass(5);
        granted(self.outcome(call))
    }

    pub(crate) fn release(&mut self, name: &str, token: Token) {
        let target = Target { name: lock(name), token: Some(token) };
        let call = self.submit(Command::Release { target, proof: Proof::Secret(SECRET) });
        self.pass(5);
        assert!(matches!(self.outcome(call), Ok(CallOutcome::Answer(Ok(_)))));
    }

    /// Opens a session whose events go to this sink.
    pub(crate) fn open(&mut self, sink: u64) -> SessionRef {
        let call = self.next_call();
        let (kind, label) = (SessionKind::Client, None);
        let command =
            Command::OpenSession(OpenSession { secret: SECRET, ttl_ms: 60_000, label, kind });
        self.handle(Input::Open {
            caller: Caller::NODE,
            call,
            reply_to: call,
            command,
            sink: VirtualSink(sink),
        });
        self.pass(5);
        match self.outcome(call) {
            Ok(CallOutcome::Answer(Ok(Answer::SessionOpened(id)))) => {
                SessionRef { id, secret: SECRET }
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn events_of(&mut self, sink: u64) -> Vec<SessionEvent> {
        let of_sink = self.events.extract_if(.., |(to, _)| *to == sink);
        of_sink.map(|(_, event)| event).collect()
    }

    pub(crate) fn in_line(&self, name: &str) -> (usize, usize) {
        let view = self.node.state().lock_view(&lock(name), 100);
        view.map_or((0, 0), |view| (view.holders.len(), view.waiting))
    }

    pub(crate) fn start(&mut self, task: Script, block_for: Option<Duration>) -> CallId {
        let call = self.next_call();
        self.handle(Input::Start { caller: Caller::NODE, call, task, block_for });
        call
    }
}

pub(crate) fn granted(outcome: Result<CallOutcome, SubmitError>) -> Grant {
    match outcome {
        Ok(CallOutcome::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(grant))))) => grant,
        Ok(CallOutcome::Served(grant)) => *grant,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn lock(name: &str) -> LockName {
    LockName::parse(name).unwrap()
}

pub(crate) fn acquire(name: &str, wait: Wait) -> Command {
    Command::Acquire(Acquire {
        names: vec![lock(name)],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Deadline { ttl_ms: 60_000 },
        wait,
        label: Some(Label::parse("ana").unwrap()),
        note: None,
        secret: Some(SECRET),
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    })
}

pub(crate) const WAIT: Wait = Wait::For { ms: 50_000 };

pub(crate) fn acquire_in(session: SessionRef, name: &str) -> Command {
    match acquire(name, WAIT) {
        Command::Acquire(acquire) => Command::Acquire(Acquire {
            session: Some(session),
            lease: Lease::Session,
            secret: None,
            ..acquire
        }),
        other => other,
    }
}

pub(crate) fn transact(writes: Vec<Write>, publish: Vec<(Channel, Message)>) -> Command {
    let (seen, seen_all) = (Vec::new(), None);
    Command::Transact(Transaction { door: Door::Redis, seen, seen_all, writes, publish })
}

pub(crate) fn publish(channel: &str, message: &str) -> Command {
    let (channel, message) = (Channel::parse(channel).unwrap(), Message::parse(message).unwrap());
    transact(Vec::new(), vec![(channel, message)])
}

/// Puts a list under a name.
pub(crate) fn push(name: &str) -> Command {
    let object = Object::List(vec![Element::parse("item").unwrap()]);
    let to = WriteOp::Object { object, expiry: Expiry::Never, fresh: true };
    transact(vec![Write { name: lock(name), to }], Vec::new())
}

pub(crate) fn effect(event: &SessionEvent) -> Option<&Effect> {
    match event {
        SessionEvent::Effect { effect, .. } => Some(effect),
        _ => None,
    }
}
