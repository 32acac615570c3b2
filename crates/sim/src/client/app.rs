//! The application of a client: it takes locks in every way that there is, works under them, changes
//! its mind, and drops what it has at any moment.

use super::Guard;
use crate::rng::Rng;
use bytes::Bytes;
use holdfast_client::session::{
    Answer, Call, CallId, GuardChange, Input, Lease, Moment, Room, RoomLimit, TicketRef,
};
use holdfast_client::{EndReason, Error, ErrorCode, Health};
use holdfast_core::{LockName, Mode, Note, Token, Value};
use holdfast_proto::v1::{self as proto, request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names in play: few, so that clients meet.
const NAMES: u64 = 4;
/// Permits of the locks that have several.
const PERMITS: u32 = 2;
/// Locks that one client has or wants at a time.
const WANTED_MAX: usize = 3;
/// A lease that outlasts the run.
const LONG_TTL_MS: u64 = 3_600_000;
/// So many acquires in a thousand are for a lock that is held for long.
const KEPT_PER_MILLE: u64 = 80;
/// Calls and guards that there is room for.
const ROOMS: usize = 40;

/// A call that was made.
#[derive(Debug)]
pub(crate) struct Asked {
    kind: Kind,
    /// The highest token that anybody had been told when it was made.
    floor: u64,
}

#[derive(Debug)]
enum Kind {
    Acquire {
        permits: u32,
        labelled: bool,
        kept: bool,
    },
    /// A guard is let go; until when it would have been good, if it was.
    Release {
        token: Token,
        until: Option<Moment>,
    },
    /// The mode of a guard is changed.
    Change {
        guard: CallId,
    },
    Put {
        key: LockName,
        token: Token,
        floor: Token,
    },
    Other,
}

/// Something that a checker wants to know.
#[derive(Debug)]
pub(crate) enum ClientEvent {
    /// A lock was handed out.
    Granted { token: Token, floor: u64 },
    /// A guard that would have been good was let go, and the server said that it was not held.
    NotHeld { token: Token },
    /// A register took a token; no lower one may pass that is asked for from now on.
    Passed { key: LockName, token: Token, floor: Token },
    /// A lock was asked for that an operator is about to break.
    Unwelcome(Bytes),
    /// Somebody who reads under this lock lets go of it.
    ReaderLeaves(LockName),
    /// A guard became the writer.
    Upgraded,
    /// A server said that the ticket of a guard is over.
    Lost { token: Token, how: EndReason },
    /// A call came to its end.
    Done,
}

#[derive(Debug)]
pub(crate) struct App {
    number: usize,
    life: u64,
    now_us: u64,
    next_act_us: u64,
    /// It is being closed, and takes up nothing any more.
    pub(crate) closing: bool,
    last_call: u64,
    pub(crate) calls: BTreeMap<CallId, Asked>,
    pub(crate) guards: BTreeMap<CallId, Guard>,
    /// Calls that were abandoned: what still comes for them is given back.
    gone: BTreeSet<CallId>,
    /// Calls whose callers have hardly any time, and until when they wait.
    hurried: Vec<(u64, CallId)>,
    rooms: Arc<RoomLimit>,
    pub(crate) client_event: Vec<ClientEvent>,
    /// The highest token that each register is known to have taken.
    pub(crate) taken: BTreeMap<LockName, Token>,
}

impl App {
    pub(crate) fn new(number: usize, life: u64, rng: &mut Rng) -> Self {
        Self {
            number,
            life,
            now_us: 0,
            next_act_us: rng.range(0, 1_000_000),
            closing: false,
            last_call: 0,
            calls: BTreeMap::new(),
            guards: BTreeMap::new(),
            gone: BTreeSet::new(),
            hurried: Vec::new(),
            rooms: RoomLimit::new(ROOMS),
            client_event: Vec::new(),
            taken: BTreeMap::new(),
        }
    }

    fn next_call(&mut self) -> CallId {
        self.last_call += 1;
        CallId(self.last_call)
    }

    fn call(&mut self, kind: Kind, what: request::What, room: Room, floor: u64) -> (CallId, Call) {
        let call = self.next_call();
        self.calls.insert(call, Asked { kind, floor });
        (call, Call { call, what, room, change: None })
    }

    /// Does the next thing, at the time of its own choice.
    pub(crate) fn act(
        &mut self,
        now_us: u64,
        now: Moment,
        leases: &[Lease],
        floor: u64,
        rng: &mut Rng,
    ) -> Vec<Input> {
        self.now_us = now_us;
        let mut due = Vec::new();
        for (id, guard) in &mut self.guards {
            guard.look(leases, now);
            if now_us >= guard.release_at_us {
                due.push(*id);
            }
        }
        let mut inputs = Vec::new();
        for id in due {
            // Whoever has finished lets go; whoever has lost it does too, to find out.
            inputs.extend(self.let_go(id, now, leases, floor, rng));
        }
        let hurried = self.hurried.extract_if(.., |(until_us, _)| now_us >= *until_us);
        for (_, call) in hurried.collect::<Vec<_>>() {
            inputs.extend(self.abandon_if_there(call));
        }
        if now_us >= self.next_act_us {
            self.next_act_us = now_us + rng.range(2_000, 1_400_000);
            if !self.closing {
                inputs.extend(self.begin(now, leases, floor, rng));
            }
        }
        inputs
    }

    /// Takes up nothing new until then.
    pub(crate) fn rest(&mut self, now_us: u64, until_us: u64) {
        if now_us >= self.next_act_us && now_us < until_us {
            self.next_act_us = until_us + self.next_act_us % 500_000;
        }
    }

    /// Need not rest any longer.
    pub(crate) fn go_on(&mut self, now_us: u64) {
        self.next_act_us = self.next_act_us.min(now_us + self.next_act_us % 500_000);
    }

    /// When it does something next.
    pub(crate) fn next_us(&self) -> u64 {
        let next = self.guards.values().map(|guard| guard.release_at_us).min();
        let hurried = self.hurried.iter().map(|(until_us, _)| *until_us).min();
        self.next_act_us.min(next.unwrap_or(u64::MAX)).min(hurried.unwrap_or(u64::MAX))
    }

    /// Drops everything and closes the session.
    fn close(&mut self, now: Moment, leases: &[Lease]) -> Vec<Input> {
        self.closing = true;
        let guards: Vec<CallId> = self.guards.keys().copied().collect();
        let mut inputs: Vec<Input> =
            guards.into_iter().flat_map(|id| self.drop_guard(id, now, leases)).collect();
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        inputs.extend(calls.into_iter().map(|call| self.abandon(call)));
        inputs.push(Input::Close);
        inputs
    }

    /// Lets go of a guard, with a call or by dropping it. One whose mode is being changed can only be
    /// dropped.
    fn let_go(
        &mut self,
        id: CallId,
        now: Moment,
        leases: &[Lease],
        floor: u64,
        rng: &mut Rng,
    ) -> Vec<Input> {
        let unsettled = self.guards.get(&id).is_some_and(|guard| guard.unsettled);
        if unsettled || rng.per_mille(300) {
            return self.drop_guard(id, now, leases);
        }
        let Some(mut guard) = self.guards.remove(&id) else { return Vec::new() };
        let Some(room) = guard.room.take() else { return Vec::new() };
        self.leaves(&guard);
        let good = guard.is_good(leases, now) && !guard.over_as_writer && guard.forced_at.is_none();
        let until = guard.lease(leases).map(|lease| lease.ends()).filter(|_| good);
        let kind = Kind::Release { token: guard.token(), until };
        let (_, call) = self.call(kind, request::What::Release(guard.ticket), room, floor);
        vec![Input::Call(call)]
    }

    fn drop_guard(&mut self, id: CallId, now: Moment, leases: &[Lease]) -> Vec<Input> {
        let Some(mut guard) = self.guards.remove(&id) else { return Vec::new() };
        let changes = self.calls.iter().filter(|(_, asked)| asked.changes(id));
        let changes: Vec<CallId> = changes.map(|(call, _)| *call).collect();
        let mut inputs: Vec<Input> = changes.into_iter().map(|call| self.abandon(call)).collect();
        let lost = !guard.is_good(leases, now);
        let room = guard.room.take();
        inputs.extend(room.map(|room| Input::Drop { ticket: guard.ticket, lost, room }));
        inputs
    }

    fn leaves(&mut self, guard: &Guard) {
        if guard.mode == Mode::Shared {
            self.client_event.extend(guard.names.iter().cloned().map(ClientEvent::ReaderLeaves));
        }
    }

    /// Upgrades of this lock that were asked for.
    pub(crate) fn upgrades_of(&self, name: &LockName) -> impl Iterator<Item = CallId> {
        let of_name = |guard: CallId| {
            let guard = self.guards.get(&guard);
            guard.is_some_and(|guard| guard.mode == Mode::Shared && guard.names.contains(name))
        };
        self.calls.iter().filter_map(move |(call, asked)| match asked.kind {
            Kind::Change { guard } if of_name(guard) => Some(*call),
            _ => None,
        })
    }

    pub(crate) fn abandon_if_there(&mut self, call: CallId) -> Option<Input> {
        self.calls.contains_key(&call).then(|| self.abandon(call))
    }

    /// Some callers give up at once: what they asked for may be done just then.
    fn hurry(&mut self, call: CallId, per_mille: u64, rng: &mut Rng) {
        if rng.per_mille(per_mille) {
            let most_us = if rng.per_mille(700) { 4_000 } else { 400_000 };
            self.hurried.push((self.now_us + rng.range(0, most_us), call));
        }
    }

    fn abandon(&mut self, call: CallId) -> Input {
        self.calls.remove(&call);
        self.gone.insert(call);
        Input::Abandon(call)
    }

    /// Takes up something new.
    fn begin(&mut self, now: Moment, leases: &[Lease], floor: u64, rng: &mut Rng) -> Vec<Input> {
        if rng.per_mille(4) {
            return self.close(now, leases);
        }
        let guards: Vec<CallId> = self.guards.keys().copied().collect();
        let guard = rng.pick(&guards).copied();
        let wanted = self.calls.values().filter(|asked| asked.is_acquire()).count();
        match (rng.range(0, 20), guard) {
            (0..=1, _) => {
                let calls: Vec<CallId> = self.calls.keys().copied().collect();
                let call = rng.pick(&calls).copied();
                call.map(|call| self.abandon(call)).into_iter().collect()
            }
            (2, Some(id)) => self.drop_guard(id, now, leases),
            (3..=5, Some(id)) => self.change(id, floor, rng),
            (6, Some(id)) => self.note(id, floor, rng),
            (7..=8, Some(id)) => self.fence(id, floor, rng),
            _ if wanted + self.guards.len() < WANTED_MAX => {
                self.acquire(floor, rng).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn acquire(&mut self, floor: u64, rng: &mut Rng) -> Option<Input> {
        let room = self.rooms.take()?;
        let permit = rng.per_mille(120);
        // Nobody but readers wants these, so that there are several at a time.
        let reads = !permit && rng.per_mille(150);
        let shared = reads || (!permit && rng.per_mille(250));
        // So long that only a release or a cancel frees the lock within the run.
        let long = !permit && !reads && rng.per_mille(60);
        // Held for longer than it may take to find out that an operator broke it.
        let kept = !permit && !long && !shared && rng.per_mille(KEPT_PER_MILLE);
        let kind = match (permit, long, kept) {
            (true, ..) => "permits",
            (_, true, _) => "long",
            (.., true) => "kept",
            _ if reads => "read",
            _ => "lock",
        };
        let count = if !kept && !reads && rng.per_mille(150) { rng.range(2, 4) } else { 1 };
        let among = if reads { 1 } else { NAMES };
        let names: BTreeSet<String> =
            (0..count).map(|_| format!("{kind}-{}", rng.range(0, among))).collect();
        // A label goes on with the ticket of an upgrade: one that is upgraded has none.
        let labelled = !shared && rng.per_mille(700);
        let label = labelled.then(|| format!("c{}-l{}-{}", self.number, self.life, self.last_call));
        let claims = if rng.per_mille(100) {
            self.guards.values().map(|guard| guard.ticket.token).collect()
        } else {
            Vec::new()
        };
        let mode = match (permit, shared) {
            (true, _) => proto::Mode::Permit,
            (_, true) => proto::Mode::Shared,
            _ => proto::Mode::Exclusive,
        };
        let acquire = proto::Acquire {
            names: names.into_iter().map(Bytes::from).collect(),
            mode: mode.into(),
            permits: if permit { PERMITS } else { 0 },
            ttl_ms: match long {
                true => Some(LONG_TTL_MS),
                false if kept => None,
                false => rng.per_mille(500).then(|| rng.range(1_000, 6_000)),
            },
            wait_ms: match rng.range(0, 5) {
                _ if long || kept => rng.per_mille(700).then(|| rng.range(100, 3_000)),
                0 => None,
                1 => Some(u64::MAX),
                _ => Some(rng.range(100, 10_000)),
            },
            label: label.map(Bytes::from),
            note: rng.per_mille(100).then(|| filled(rng, Note::BYTES_MAX)),
            claims,
            lock_delay_ms: if rng.per_mille(100) { rng.range(100, 2_000) } else { 0 },
        };
        let permits = acquire.permits;
        if kept && rng.per_mille(500) {
            self.client_event.extend(acquire.names.first().cloned().map(ClientEvent::Unwelcome));
        }
        let kind = Kind::Acquire { permits, labelled, kept };
        let (id, call) = self.call(kind, request::What::Acquire(acquire), room, floor);
        if !kept {
            self.hurry(id, 80, rng);
        }
        Some(Input::Call(call))
    }

    /// Upgrades a reader, downgrades a writer.
    fn change(&mut self, id: CallId, floor: u64, rng: &mut Rng) -> Vec<Input> {
        let Some(guard) = self.guards.get_mut(&id).filter(|guard| !guard.unsettled) else {
            return Vec::new();
        };
        let own = guard.ticket.clone();
        let change = guard.change(id);
        let what = match guard.mode {
            Mode::Shared if guard.labelled => return Vec::new(),
            Mode::Shared => {
                let wait_ms = match rng.range(0, 3) {
                    0 => None,
                    1 => Some(u64::MAX),
                    _ => Some(rng.range(100, 4_000)),
                };
                let own = Some(own);
                request::What::Upgrade(proto::Upgrade { own, wait_ms, claims: Vec::new() })
            }
            Mode::Exclusive => request::What::Downgrade(own),
            Mode::Permit { .. } => return Vec::new(),
        };
        let Some(room) = self.rooms.take() else { return Vec::new() };
        guard.unsettled = true;
        if guard.mode == Mode::Exclusive {
            // Others may be served at any moment.
            guard.mode = Mode::Shared;
        }
        let (changing, mut call) = self.call(Kind::Change { guard: id }, what, room, floor);
        call.change = Some(change);
        self.hurry(changing, 300, rng);
        vec![Input::Call(call)]
    }

    fn note(&mut self, id: CallId, floor: u64, rng: &mut Rng) -> Vec<Input> {
        let guard = self.guards.get(&id).filter(|guard| !guard.unsettled);
        let Some((ticket, room)) = guard.map(|guard| guard.ticket.clone()).zip(self.rooms.take())
        else {
            return Vec::new();
        };
        let what = if rng.per_mille(500) {
            let note = Some(filled(rng, Note::BYTES_MAX));
            request::What::Note(proto::NoteRequest { own: Some(ticket), note })
        } else {
            request::What::Recovered(ticket)
        };
        vec![Input::Call(self.call(Kind::Other, what, room, floor).1)]
    }

    /// Writes to the register that its lock protects, with its token.
    fn fence(&mut self, id: CallId, floor: u64, rng: &mut Rng) -> Vec<Input> {
        let Some(guard) = self.guards.get(&id).filter(|guard| guard.mode == Mode::Exclusive) else {
            return Vec::new();
        };
        let Some(key) = guard.names.first().cloned() else { return Vec::new() };
        let Some(room) = self.rooms.take() else { return Vec::new() };
        let token = guard.token();
        let bytes_max = if rng.per_mille(20) { Value::BYTES_MAX } else { 64 };
        let put = proto::PutRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: filled(rng, bytes_max),
            token: token.0,
            mode: proto::Mode::Exclusive.into(),
        };
        let before = self.taken.get(&key).copied().unwrap_or(Token(0));
        let kind = Kind::Put { key, token, floor: before };
        vec![Input::Call(self.call(kind, request::What::Put(put), room, floor).1)]
    }

    /// A call is completed. A guard that nobody takes is given back.
    pub(crate) fn complete(
        &mut self,
        call: CallId,
        answer: Result<Answer, Error>,
        session: usize,
        now_us: u64,
        now: Moment,
        rng: &mut Rng,
    ) -> Option<Input> {
        let asked = self.calls.remove(&call);
        if asked.is_some() {
            self.client_event.push(ClientEvent::Done);
        }
        match (asked, answer) {
            (None, Ok(Answer::Granted { grant, room, .. })) => Some(not_taken(&grant, room)),
            (Some(asked), Ok(Answer::Granted { grant, lease, room })) => {
                let Kind::Acquire { permits, labelled, kept } = asked.kind else { return None };
                let held_us = match kept {
                    true => rng.range(25_000_000, 50_000_000),
                    false => rng.range(1_000, 1_500_000),
                };
                let token = Token(grant.token);
                self.client_event.push(ClientEvent::Granted { token, floor: asked.floor });
                let guard = Guard {
                    ticket: ticket(&grant),
                    names: grant
                        .names
                        .iter()
                        .filter_map(|n| LockName::parse(&n[..]).ok())
                        .collect(),
                    mode: mode(grant.mode(), permits),
                    lease,
                    session,
                    shown: Health::Good,
                    forced_at: None,
                    labelled,
                    unsettled: false,
                    over_as_writer: false,
                    release_at_us: now_us + held_us,
                    room: Some(room),
                };
                self.guards.insert(call, guard);
                None
            }
            (Some(Asked { kind: Kind::Release { token, until }, .. }), Err(error)) => {
                let not_held =
                    matches!(&error, Error::Refused { code, .. } if *code == ErrorCode::NotHeld);
                let in_time = until.is_some_and(|until| now < until);
                if not_held && in_time {
                    self.client_event.push(ClientEvent::NotHeld { token });
                }
                None
            }
            (Some(Asked { kind: Kind::Put { key, token, floor }, .. }), Ok(_)) => {
                self.client_event.push(ClientEvent::Passed { key, token, floor });
                None
            }
            _ => None,
        }
    }

    /// A guard gets the writer's ticket.
    pub(crate) fn upgraded(
        &mut self,
        id: CallId,
        call: Option<CallId>,
        grant: &proto::Grant,
        room: Room,
        leases: &[Lease],
        now: Moment,
    ) -> Option<Input> {
        if call.is_some_and(|call| self.calls.remove(&call).is_some()) {
            self.client_event.push(ClientEvent::Done);
        }
        let Some(guard) = self.guards.get_mut(&id) else {
            return Some(not_taken(grant, room));
        };
        match guard.look(leases, now) {
            Health::Lost(how) => {
                guard.over_as_writer = true;
                let lost = how == EndReason::Expired;
                Some(Input::Drop { ticket: ticket(grant), lost, room })
            }
            Health::Good | Health::Jeopardy => {
                (guard.ticket, guard.mode) = (ticket(grant), Mode::Exclusive);
                guard.room.get_or_insert(room);
                self.client_event.push(ClientEvent::Upgraded);
                None
            }
        }
    }

    pub(crate) fn guard_changed(&mut self, id: CallId, change: GuardChange) {
        let Some(guard) = self.guards.get_mut(&id) else { return };
        match change {
            // A guard that was lost stays lost.
            GuardChange::Health(health) if !matches!(guard.shown, Health::Lost(_)) => {
                guard.shown = health;
                if let Health::Lost(how) = health {
                    let token = guard.token();
                    self.client_event.push(ClientEvent::Lost { token, how });
                }
            }
            GuardChange::Health(_) => {}
            GuardChange::Confirmed(counts_from) => {
                if let Some(lease) = &mut guard.lease {
                    lease.confirm(counts_from);
                }
            }
            GuardChange::Revocation(_, forced_at) => {
                guard.forced_at = guard.forced_at.into_iter().chain(forced_at).min();
            }
            GuardChange::Mode(before) => guard.mode = mode(before, 0),
            GuardChange::OverAsWriter(_) => guard.over_as_writer = true,
            GuardChange::Settled => guard.unsettled = false,
        }
    }
}

impl Asked {
    fn is_acquire(&self) -> bool {
        matches!(self.kind, Kind::Acquire { .. })
    }

    fn changes(&self, id: CallId) -> bool {
        matches!(self.kind, Kind::Change { guard } if guard == id)
    }
}

/// So many bytes at most, and now and then exactly as many.
fn filled(rng: &mut Rng, bytes_max: usize) -> Bytes {
    let most = bytes_max as u64;
    let bytes = if rng.per_mille(100) { most } else { rng.range(0, most + 1) };
    Bytes::from(vec![b'x'; bytes as usize])
}

fn mode(mode: proto::Mode, permits: u32) -> Mode {
    match mode {
        proto::Mode::Exclusive => Mode::Exclusive,
        proto::Mode::Shared => Mode::Shared,
        proto::Mode::Permit => Mode::Permit { of: permits },
    }
}

fn ticket(grant: &proto::Grant) -> TicketRef {
    let name = grant.names.first().cloned().unwrap_or_default();
    TicketRef { name, token: grant.token, secret: grant.secret.clone() }
}

fn not_taken(grant: &proto::Grant, room: Room) -> Input {
    Input::Drop { ticket: ticket(grant), lost: false, room }
}
