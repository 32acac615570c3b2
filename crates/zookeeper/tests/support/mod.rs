//! One node's door without sockets, log or gateway: a driver for tests.
#![allow(dead_code, reason = "each test file needs only a part of it")]

use holdfast_core::{
    Answer, Command, Effect, Limits, OpenSession, Proposal, ProposalOutcome, Refusal, Secret,
    SessionId, SessionKind, SessionRef, State, Term, Tick,
};
use holdfast_gateway::{Resume, Step};
use holdfast_node::Reply as NodeReply;
use holdfast_zookeeper::connection::{Action, Connection, HeartbeatReply, Message, Settings};
use holdfast_zookeeper::task::ClientTask;
use holdfast_zookeeper::{ClientId, Clients};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// What a client receives from its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Frame(Vec<u8>),
    Closed,
}

pub(crate) struct Bench {
    pub(crate) state: State,
    pub(crate) clients: Clients,
    pub(crate) connections: BTreeMap<ClientId, Connection>,
    received: BTreeMap<ClientId, VecDeque<Received>>,
    /// Messages from the loop to the door, in order.
    inbox: VecDeque<(ClientId, Message)>,
    /// Tasks that wait for the log while it is paused.
    held: VecDeque<(Box<ClientTask>, Command)>,
    pub(crate) hold: bool,
    pub(crate) heartbeats: Option<HeartbeatReply>,
    pub(crate) now: Duration,
    /// How many tasks were started. `None` if they are not counted.
    pub(crate) steps: Option<usize>,
    /// How often a task yielded to others before it continued.
    pub(crate) reads: usize,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            state: State::new(Limits::DEFAULT, 7),
            clients: Clients::default(),
            connections: BTreeMap::new(),
            received: BTreeMap::new(),
            inbox: VecDeque::new(),
            held: VecDeque::new(),
            hold: false,
            heartbeats: Some(HeartbeatReply::Alive),
            now: Duration::ZERO,
            steps: None,
            reads: 0,
        }
    }

    pub(crate) fn open(&mut self, client: ClientId) {
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        let secret = Secret([u8::try_from(client.0).unwrap() + 1; 16]);
        let connection = Connection::new(client, peer, Settings::default(), secret);
        self.clients.register(client);
        self.connections.insert(client, connection);
        self.received.insert(client, VecDeque::new());
    }

    /// Sends bytes, including their length, as if they came from a socket.
    pub(crate) fn send(&mut self, client: ClientId, bytes: &[u8]) {
        let now = self.now;
        let actions = self.connections.get_mut(&client).unwrap().receive(bytes, now);
        self.act(client, actions);
        self.deliver();
    }

    pub(crate) fn receive(&mut self, client: ClientId) -> Option<Received> {
        self.received.get_mut(&client)?.pop_front()
    }

    pub(crate) fn apply(&mut self, command: Command) -> Result<Answer, Refusal> {
        let mut effects = Vec::new();
        let taken = self.state.apply(Proposal::from(command), &mut effects);
        self.publish(&effects);
        match taken {
            ProposalOutcome::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Applies a command from another door, and delivers its effects as the loop would.
    pub(crate) fn other_door(&mut self, command: Command) -> Result<Answer, Refusal> {
        let answer = self.apply(command);
        self.deliver();
        answer
    }

    pub(crate) fn native_session(&mut self) -> SessionRef {
        let secret = Secret([200; 16]);
        let (label, kind) = (None, SessionKind::Client);
        let open = OpenSession { secret, ttl_ms: 60_000, label, kind };
        match self.other_door(Command::OpenSession(open)) {
            Ok(Answer::SessionOpened(id)) => SessionRef { id, secret },
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expire(&mut self, session: SessionId) {
        let decided_in = Term::default();
        self.other_door(Command::ExpireSession { session, decided_in }).unwrap();
    }

    pub(crate) fn tick(&mut self, elapsed_ms: u64) {
        let tick = Tick { elapsed_ms, wall_ms: 0, term: Term::default() };
        self.other_door(Command::Tick(tick)).unwrap();
    }

    fn publish(&mut self, effects: &[Effect]) {
        for effect in effects {
            for (client, notice) in self.clients.effect(effect) {
                self.inbox.push_back((client, Message::Notice(notice)));
            }
        }
    }

    fn act(&mut self, client: ClientId, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(frame) => {
                    self.received.entry(client).or_default().push_back(Received::Frame(frame));
                }
                Action::Start(task) => {
                    self.steps = self.steps.map(|steps| steps + 1);
                    self.run(task, Resume::Started);
                }
                Action::Heartbeat(_) => {
                    if let Some(heartbeat_reply) = self.heartbeats {
                        let now = self.now;
                        let connection = self.connections.get_mut(&client).unwrap();
                        let actions = connection.heartbeat_reply(heartbeat_reply, now);
                        self.act(client, actions);
                    }
                }
                Action::Answer(word) => {
                    let answer = holdfast_zookeeper::four_letter::answer(word, &Default::default());
                    let frame = Received::Frame(answer.into_bytes());
                    self.received.entry(client).or_default().push_back(frame);
                }
                Action::Close => {
                    self.received.entry(client).or_default().push_back(Received::Closed);
                    self.clients.forget(client);
                }
            }
        }
    }

    fn run(&mut self, mut task: Box<ClientTask>, resume: Resume) {
        let mut resume = resume;
        loop {
            match self.clients.resume(&mut task, &self.state, resume) {
                Step::Submit(command) if self.hold => {
                    return self.held.push_back((task, command));
                }
                Step::Submit(command) => {
                    let answer = self.apply(command);
                    resume = Resume::Replied(NodeReply::Answer(answer));
                }
                Step::Read => {
                    self.reads += 1;
                    resume = Resume::Replied(NodeReply::Current);
                }
                Step::Block { .. } => panic!("nothing here blocks"),
                Step::Done => {
                    return self.inbox.push_back((task.client(), Message::Finished(task)));
                }
            }
        }
    }

    /// Resumes the log.
    pub(crate) fn release(&mut self) {
        self.hold = false;
        while let Some((task, command)) = self.held.pop_front() {
            let answer = self.apply(command);
            self.run(task, Resume::Replied(NodeReply::Answer(answer)));
        }
        self.deliver();
    }

    /// Like [`Bench::release`], for a node that was behind: it applies everything that it missed in
    /// one turn, publishes the effects, and only then continues the tasks.
    pub(crate) fn release_in_one_turn(&mut self) {
        self.hold = false;
        let held = std::mem::take(&mut self.held);
        let answered: Vec<_> =
            held.into_iter().map(|(task, command)| (task, self.apply(command))).collect();
        for (task, answer) in answered {
            self.run(task, Resume::Replied(NodeReply::Answer(answer)));
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some((client, message)) = self.inbox.pop_front() {
            let now = self.now;
            let Some(connection) = self.connections.get_mut(&client) else { continue };
            let actions = connection.message(message, now);
            self.act(client, actions);
        }
    }

    /// Advances the connections' clock.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        let clients: Vec<ClientId> = self.connections.keys().copied().collect();
        for client in clients {
            let now = self.now;
            let actions = self.connections.get_mut(&client).unwrap().tick(now);
            self.act(client, actions);
        }
    }
}
