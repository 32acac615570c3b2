//! A ZooKeeper client: one connection at a time, a session that it keeps alive and goes on with at
//! another node, requests that are answered in order, and watches that it sets again.
//!
//! It is careful: it believes in its session only as long as the last ping that was answered makes
//! certain, by its own clock.

use super::Purpose;
use super::lock::Lock;
use super::plain::Plain;
use crate::checks::{Belief, ClientKey, WatchKind, ZooKeeperChecks};
use crate::rng::Rng;
use crate::world::WireId;
use holdfast_core::{NodeOp, SessionId};
use holdfast_node::NodeId;
use holdfast_zookeeper::codec::{Connect, Decoder, Request, xid};
use std::collections::{BTreeSet, VecDeque};

/// What of its timeout a client believes in a session after the last ping that was answered.
const BELIEVES_PER_MILLE: u64 = 900;

/// What a client wants to have done.
#[derive(Debug)]
pub(crate) enum Do {
    /// To connect to some node.
    Connect(NodeId),
    Send(WireId, Vec<u8>),
    HangUp(WireId),
}

/// What it does that with.
pub(crate) struct Context<'a> {
    pub(crate) now_us: u64,
    /// Nothing new is asked for.
    pub(crate) rests: bool,
    /// The highest token that anybody has been told.
    pub(crate) floor: u64,
    pub(crate) checks: &'a mut ZooKeeperChecks,
    /// Tokens that this client was told, with the floor from when it asked; and what a sync showed.
    pub(crate) drew: Vec<(u64, u64)>,
    pub(crate) synced: Vec<(u64, u64)>,
    /// Heartbeats that were acknowledged: the session, when each was sent, the timeout.
    pub(crate) beats: Vec<(SessionId, u64, u64)>,
    pub(crate) rng: &'a mut Rng,
    pub(crate) out: Vec<Do>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(super) password: [u8; 16],
    pub(crate) timeout_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Down {
        until_us: u64,
    },
    /// The connect request is on its way.
    Connecting {
        wire: WireId,
        since_us: u64,
    },
    Open {
        wire: WireId,
    },
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) xid: i32,
    pub(super) request: Request,
    pub(super) purpose: Purpose,
    pub(super) floor: u64,
}

pub(crate) struct Client {
    pub(crate) number: usize,
    /// Counts processes: one that died is followed by another.
    pub(crate) life: u64,
    /// Its clock runs so many parts in a thousand of the true one.
    rate: u64,
    pub(crate) servers: Vec<NodeId>,
    wish_ms: u64,
    pub(crate) session: Option<Session>,
    pub(super) zxid: u64,
    pub(super) link: Link,
    pub(super) decoder: Decoder,
    pub(super) pending: VecDeque<Pending>,
    next_xid: i32,
    /// Connections so far.
    pub(super) connection: u64,
    pub(super) watches: BTreeSet<(String, WatchKind)>,
    /// When pings were sent that are not answered.
    pub(super) pings: VecDeque<u64>,
    /// When the last heartbeat was sent that was acknowledged.
    pub(super) confirmed_us: u64,
    pinged_us: u64,
    pub(super) heard_us: u64,
    pub(super) lock: Lock,
    pub(super) plain: Plain,
    /// What has arrived since its last turn; none is the end of the connection.
    pub(crate) inbox: VecDeque<(WireId, Option<Vec<u8>>)>,
    pub(crate) paused_until_us: u64,
    /// When its next turn is, and the number of that event.
    pub(crate) turn: Option<(u64, u64)>,
    /// What it got done since somebody last looked.
    pub(crate) done: u64,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        life: u64,
        now_us: u64,
        rng: &mut Rng,
        nodes: &[NodeId],
    ) -> Self {
        let mut servers = nodes.to_vec();
        let first = rng.range(0, servers.len() as u64) as usize;
        servers.rotate_left(first);
        Self {
            number,
            life,
            rate: rng.range(995, 1_006),
            servers,
            wish_ms: rng.range(2_000, 7_000),
            session: None,
            zxid: 0,
            link: Link::Down { until_us: now_us + rng.range(0, 500_000) },
            decoder: Decoder::default(),
            pending: VecDeque::new(),
            next_xid: 0,
            connection: 0,
            watches: BTreeSet::new(),
            pings: VecDeque::new(),
            confirmed_us: 0,
            pinged_us: 0,
            heard_us: 0,
            lock: Lock::new(now_us),
            plain: Plain::new(now_us),
            inbox: VecDeque::new(),
            paused_until_us: 0,
            turn: None,
            done: 0,
        }
    }

    pub(crate) fn key(&self) -> ClientKey {
        (self.number, self.life)
    }

    /// Who wrote something, and over which connection.
    pub(super) fn tag(&self) -> String {
        format!("{}.{}.{}.{}", self.number, self.life, self.connection, self.next_xid)
    }

    pub(crate) fn wire(&self) -> Option<WireId> {
        match self.link {
            Link::Connecting { wire, .. } | Link::Open { wire } => Some(wire),
            Link::Down { .. } => None,
        }
    }

    fn timeout_ms(&self) -> u64 {
        self.session.map_or(self.wish_ms, |session| session.timeout_ms)
    }

    /// Milliseconds that its clock has shown since then.
    fn elapsed_ms(&self, since_us: u64, now_us: u64) -> u64 {
        now_us.saturating_sub(since_us) * self.rate / 1_000_000
    }

    /// The true time when its clock has shown so many since then.
    fn after_us(&self, since_us: u64, ms: u64) -> u64 {
        since_us + (ms * 1_000_000).div_ceil(self.rate) + 1
    }

    /// Whether it is certain, by its own clock, that its session lives.
    fn is_certain(&self, now_us: u64) -> bool {
        let until_ms = self.timeout_ms() * BELIEVES_PER_MILLE / 1_000;
        self.session.is_some() && self.elapsed_ms(self.confirmed_us, now_us) < until_ms
    }

    /// The lock that it believes now that it holds.
    pub(crate) fn belief(&self, client: usize, now_us: u64) -> Option<Belief> {
        let (name, token, mode) = self.lock.held()?;
        let ttl_ms = self.timeout_ms();
        self.is_certain(now_us).then_some(Belief { client, name, token, mode, ttl_ms })
    }

    /// The one ticket that its session may have, or none; nothing if it does not know itself.
    pub(crate) fn ticket(&self) -> Option<Option<holdfast_core::Token>> {
        matches!(self.link, Link::Open { .. }).then_some(self.lock.ticket())?
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Open { .. })
    }

    /// When it has something to do by itself.
    pub(crate) fn next_turn_us(&self) -> u64 {
        let timeout_ms = self.timeout_ms();
        let due_us = match self.link {
            Link::Down { until_us } => until_us,
            Link::Connecting { since_us, .. } => self.after_us(since_us, timeout_ms / 3),
            Link::Open { .. } => {
                let ping_us = self.after_us(self.pinged_us, timeout_ms / 3);
                let silent_us = self.after_us(self.heard_us, timeout_ms * 2 / 3);
                let own_us = self.lock.next_us().min(self.plain.next_us());
                ping_us.min(silent_us).min(own_us)
            }
        };
        due_us.max(self.paused_until_us)
    }

    /// Takes what has arrived, and does what is due.
    pub(crate) fn turn(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        while let Some((wire, bytes)) = self.inbox.pop_front() {
            if self.wire() != Some(wire) {
                continue;
            }
            match bytes {
                Some(bytes) => self.receive(wire, &bytes, context)?,
                None => self.disconnected(context),
            }
        }
        let (now_us, timeout_ms) = (context.now_us, self.timeout_ms());
        match self.link {
            Link::Down { until_us } if until_us <= now_us => {
                self.servers.rotate_left(1);
                context.out.extend(self.servers.first().map(|node| Do::Connect(*node)));
            }
            Link::Connecting { wire, since_us }
                if self.elapsed_ms(since_us, now_us) >= timeout_ms / 3 =>
            {
                context.out.push(Do::HangUp(wire));
                self.disconnected(context);
            }
            Link::Open { wire } => {
                if self.elapsed_ms(self.heard_us, now_us) >= timeout_ms * 2 / 3 {
                    context.out.push(Do::HangUp(wire));
                    self.disconnected(context);
                    return Ok(());
                }
                if self.elapsed_ms(self.pinged_us, now_us) >= timeout_ms / 3 {
                    self.ping(wire, context);
                }
                self.act(context);
            }
            Link::Down { .. } | Link::Connecting { .. } => {}
        }
        Ok(())
    }

    pub(super) fn ping(&mut self, wire: WireId, context: &mut Context<'_>) {
        self.pinged_us = context.now_us;
        self.pings.push_back(context.now_us);
        context.out.push(Do::Send(wire, Request::Ping.encode(xid::PING)));
    }

    fn act(&mut self, context: &mut Context<'_>) {
        while let Some(request) = self.lock_request(context) {
            self.send(request, Purpose::Lock, context);
        }
        while let Some(request) = Plain::request(self, context) {
            let purpose =
                if request == Request::CloseSession { Purpose::Close } else { Purpose::Plain };
            self.send(request, purpose, context);
        }
    }

    fn lock_request(&mut self, context: &mut Context<'_>) -> Option<Request> {
        if self.plain.closes {
            return None;
        }
        let tag = self.tag();
        self.lock.request(tag, context)
    }

    /// Whether a request of that kind is on its way.
    pub(super) fn outstanding(&self, purpose: Purpose) -> usize {
        self.pending.iter().filter(|pending| pending.purpose == purpose).count()
    }

    pub(super) fn send(&mut self, request: Request, purpose: Purpose, context: &mut Context<'_>) {
        let Link::Open { wire } = self.link else { return };
        for op in written(&request) {
            if let NodeOp::Delete { path, .. } = op {
                context.checks.deletes(path);
            }
        }
        let xid = match purpose {
            Purpose::SetWatches => xid::SET_WATCHES,
            _ => {
                self.next_xid += 1;
                self.next_xid
            }
        };
        context.out.push(Do::Send(wire, request.encode(xid)));
        self.pending.push_back(Pending { xid, request, purpose, floor: context.floor });
    }

    /// A connection is being made; the connect request is the first thing to send.
    pub(crate) fn connecting(&mut self, wire: WireId, now_us: u64) -> Vec<u8> {
        self.link = Link::Connecting { wire, since_us: now_us };
        self.connection += 1;
        self.decoder = Decoder::default();
        let (session, password) = match &self.session {
            Some(session) => (session.id.0.get().cast_signed(), session.password),
            None => (0, [0; 16]),
        };
        Connect {
            protocol_version: 0,
            last_zxid: self.zxid.cast_signed(),
            timeout_ms: self.wish_ms as i32,
            session,
            password: password.to_vec(),
            read_only: Some(false),
        }
        .encode()
    }

    pub(super) fn disconnected(&mut self, context: &mut Context<'_>) {
        let wait_us = context.rng.range(1_000, 400_000);
        self.link = Link::Down { until_us: context.now_us + wait_us };
        self.pending.clear();
        self.pings.clear();
        self.lock.disconnected();
        context.checks.disconnected(self.key());
        if self.plain.closes {
            // It does not wait to see whether that was done.
            self.begin_again(context);
        }
    }

    /// Its session is over: everything that it had is gone.
    pub(super) fn begin_again(&mut self, context: &mut Context<'_>) {
        self.session = None;
        self.watches.clear();
        self.lock = Lock::new(context.now_us);
        self.plain = Plain::new(context.now_us);
        context.checks.forget(self.key());
    }
}

/// The changes that a request makes.
fn written(request: &Request) -> Vec<&NodeOp> {
    match request {
        Request::Write { op, .. } => vec![op],
        Request::Multi(ops) => ops.iter().map(|(op, _)| op).collect(),
        _ => Vec::new(),
    }
}
