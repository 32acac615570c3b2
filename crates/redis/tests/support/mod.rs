//! The door in front of its own state: no sockets, no threads, time only by ticks.

#![allow(dead_code, reason = "each test uses its part of it")]

pub(crate) mod show;

use bytes::Bytes;
use holdfast_core::{
    Acquire, Answer, Command, Door, Effect, Label, Lease, Limits, LockName, Mode, OpenSession,
    Proof, ProposalOutcome, Refusal, Secret, SessionKind, SessionRef, State, Target, Term, Tick,
    TicketStatus, Token, Wait,
};
use holdfast_gateway::Caller;
use holdfast_redis::acquiring::Acquiring;
use holdfast_redis::client::{Client, Plan};
use holdfast_redis::lua::Scripts;
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Answered, Job, Local, NodeFacts, ReadSet, Run};
use std::collections::BTreeMap;

/// When logical time starts, by the wall clock.
pub(crate) const WALL_MS: u64 = 1_700_000_000_000;

pub(crate) struct Harness {
    pub(crate) state: State,
    pub(crate) clients: BTreeMap<String, Client>,
    pub(crate) effects: Vec<Effect>,
    node: Node,
    session: Option<SessionRef>,
}

/// The node around the door.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) wall_ms: u64,
    random: std::cell::Cell<u64>,
    scripts: Scripts,
    channels: Vec<Bytes>,
}

impl Local for Node {
    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }
    fn random(&self) -> u64 {
        self.random.set(self.random.get() + 1);
        self.random.get()
    }
    fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.iter().filter(|heard| *heard == channel).count()
    }
    fn channels(&self) -> Vec<(Bytes, usize)> {
        self.channels.iter().map(|channel| (channel.clone(), self.subscribers(channel))).collect()
    }
    fn patterns(&self) -> usize {
        0
    }
    fn facts(&self) -> NodeFacts {
        NodeFacts { port: 7401, ..NodeFacts::default() }
    }
    fn scripts(&self) -> &Scripts {
        &self.scripts
    }
}

impl Default for Harness {
    fn default() -> Self {
        Self::with(Limits::DEFAULT)
    }
}

impl Harness {
    pub(crate) fn with(limits: Limits) -> Self {
        Self {
            state: State::new(limits, 7),
            clients: BTreeMap::new(),
            effects: Vec::new(),
            node: Node { wall_ms: WALL_MS, ..Node::default() },
            session: None,
        }
    }

    pub(crate) fn apply(&mut self, command: Command) -> Result<Answer, Refusal> {
        match self.state.apply(command.into(), &mut self.effects) {
            ProposalOutcome::Answered(answer) => answer,
            other => panic!("not taken: {other:?}"),
        }
    }

    pub(crate) fn set_wall_ms(&mut self, wall_ms: u64) {
        self.node.wall_ms = wall_ms;
    }

    pub(crate) fn tick(&mut self, elapsed_ms: u64) {
        self.node.wall_ms += elapsed_ms;
        let wall_ms = self.node.wall_ms;
        self.apply(Command::Tick(Tick { elapsed_ms, wall_ms, term: Term(1) })).unwrap();
    }

    /// Sends one request of one client; returns all its replies.
    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, who: &str, request: &[T]) -> Vec<Reply> {
        let request = request.iter().map(|word| Bytes::copy_from_slice(word.as_ref())).collect();
        let next = self.clients.len() as u64 + 1;
        let client = self.clients.entry(who.to_owned()).or_insert_with(|| Client::new(next, false));
        match client.take(&request) {
            Plan::Reply(replies) => replies,
            Plan::Close(reply) => {
                self.clients.remove(who);
                vec![reply]
            }
            Plan::Run(job) => self.run(who, &job),
            Plan::Watch(names) => {
                let stamp = |name: LockName| {
                    let stamp = self.state.stamp(&name);
                    (name, stamp)
                };
                let stamps: Vec<_> = names.into_iter().map(stamp).collect();
                vec![self.client(who).watch(stamps)]
            }
            Plan::Acquire(acquiring) => vec![self.stand_in_line(&acquiring)],
            Plan::Password { password, hello, .. } => {
                let right = password == "right";
                vec![self.client(who).passed(right, hello.as_ref())]
            }
            Plan::ListClients => vec![Reply::bulk("a list")],
        }
    }

    pub(crate) fn client(&mut self, who: &str) -> &mut Client {
        self.clients.get_mut(who).unwrap()
    }

    fn run(&mut self, who: &str, job: &Job) -> Vec<Reply> {
        let mut wanted = job.wanted();
        for _ in 0..10_000 {
            let seen = ReadSet::read(&Caller::NODE, &self.state, &wanted).unwrap();
            match job.run(&seen, &self.node) {
                Run::Need(more) => {
                    assert!(more != wanted, "nothing new is wanted");
                    wanted = more;
                }
                Run::Block(_) => return vec![Reply::NullArray],
                Run::Lua => panic!("Lua may run here"),
                Run::Apart => panic!("one request is not joined"),
                Run::Done(mut done) => {
                    let Some(transaction) = done.transaction.take() else {
                        return self.client(who).ran(done);
                    };
                    let again = done.again;
                    match self.apply(Command::Transact(transaction)) {
                        Ok(_) if again => wanted = job.wanted(),
                        Ok(_) => return self.client(who).ran(done),
                        Err(refusal) => match done.refused(&refusal) {
                            Answered::Again => wanted = job.wanted(),
                            Answered::Reply(reply) => return vec![reply],
                        },
                    }
                }
            }
        }
        panic!("the job does not end");
    }

    fn stand_in_line(&mut self, acquiring: &Acquiring) -> Reply {
        let waits = |token: Token| Reply::status(format!("waits, token={token}"));
        while let Some(earlier) = acquiring.find(&self.state) {
            match acquiring.take_over(earlier) {
                Ok(command) => drop(self.apply(command).unwrap()),
                Err(error) => return Reply::Error(error),
            }
        }
        let session = self.session();
        match self.apply(Command::Acquire(acquiring.acquire(Some(session)))) {
            Ok(Answer::TicketStatus(TicketStatus::Held(grant))) => acquiring.granted(&grant),
            Ok(Answer::TicketStatus(status)) => waits(status.token()),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => acquiring.refused(&refusal),
        }
    }

    /// Someone who uses the native door.
    pub(crate) fn acquire(&mut self, name: &str, label: &str, ttl_ms: u64, wait_ms: u64) -> String {
        let session = self.session();
        let command = Command::Acquire(Acquire {
            names: vec![LockName::parse(name).unwrap()],
            mode: Mode::Exclusive,
            session: Some(session),
            lease: Lease::Deadline { ttl_ms },
            wait: if wait_ms == 0 { Wait::Try } else { Wait::For { ms: wait_ms } },
            label: Some(Label::parse(label).unwrap()),
            note: None,
            secret: Some(Secret([3; 16])),
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Native,
        });
        match self.apply(command) {
            Ok(Answer::TicketStatus(status)) => show::ticket_status(&status),
            Ok(other) => format!("{other:?}"),
            Err(refusal) => format!("refused: {refusal}"),
        }
    }

    pub(crate) fn release(&mut self, name: &str) -> String {
        let target = Target { name: LockName::parse(name).unwrap(), token: None };
        let proof = Proof::Secret(Secret([3; 16]));
        match self.apply(Command::Release { target, proof }) {
            Ok(_) => "released".to_owned(),
            Err(refusal) => format!("refused: {refusal}"),
        }
    }

    fn session(&mut self) -> SessionRef {
        if let Some(session) = self.session {
            return session;
        }
        let secret = Secret([1; 16]);
        let open =
            OpenSession { secret, ttl_ms: 86_400_000, label: None, kind: SessionKind::Client };
        let Ok(Answer::SessionOpened(id)) = self.apply(Command::OpenSession(open)) else {
            panic!("no session");
        };
        let session = SessionRef { id, secret };
        self.session = Some(session);
        session
    }
}
