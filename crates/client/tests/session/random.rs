//! Everything in any order, over connections that delay messages or break, with clocks of different
//! rates, against a naive cluster. At every moment:
//!
//! - no guard is good while its ticket may be over on the server, unless an operator broke it;
//! - nothing that is kept exceeds its limit.
//!
//! And once the connections work again: every call completes, everything that was dropped is
//! undone, no ticket and no session is left behind.

mod network;

use crate::server::{Cluster, State};
use bytes::Bytes;
use holdfast_client::session::{
    Call, CallId, Config, ConnectionId, Failure, Input, Lease, LeaseHealth, ModeChange, Moment,
    Query, QueryId, Room, RoomLimit, SessionState, StreamId, TicketRef, WatchId,
};
use holdfast_proto::v1::{self as proto, request};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const SERVERS: usize = 3;
const TICK_MS: u64 = 20;
const SESSION_TTL: Duration = Duration::from_secs(6);
const ROOMS: usize = 40;

/// Longer than any run.
const LONG_TTL_MS: u64 = 600_000;

/// After this long, everything must have ended: calls time out after 10s, a session after 6s.
const END_WITHIN_MS: u64 = 120_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    AnswersWait,
    Stalled,
    Cut,
}

#[derive(Debug, Clone)]
enum Action {
    Acquire {
        name: u8,
        shared: bool,
        ttl_ms: Option<u64>,
        wait_ms: Option<u64>,
    },
    /// The future of the call at this place is dropped.
    Abandon(usize),
    Drop(usize),
    Release(usize),
    Upgrade(usize, Option<u64>),
    Downgrade(usize),
    Note(usize),
    Set(usize, Way),
    Pass(u64),
    /// The cluster ends all sessions.
    EndSessions,
    Force(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let wait = || prop_oneof![Just(None), Just(Some(u64::MAX)), (1..4_000_u64).prop_map(Some)];
    let ttl = prop_oneof![3 => Just(None), 2 => Just(Some(LONG_TTL_MS)), 1 => Just(Some(4_000))];
    let way = prop_oneof![
        4 => Just(Way::Open),
        2 => Just(Way::AnswersWait),
        2 => Just(Way::Stalled),
        2 => Just(Way::Cut),
    ];
    let place = 0..8_usize;
    let acquire = (0..3_u8, any::<bool>(), ttl, wait());
    let action = prop_oneof![
        8 => acquire.prop_map(|(name, shared, ttl_ms, wait_ms)| {
            Action::Acquire { name, shared, ttl_ms, wait_ms }
        }),
        3 => place.clone().prop_map(Action::Abandon),
        3 => place.clone().prop_map(Action::Drop),
        2 => place.clone().prop_map(Action::Release),
        3 => (place.clone(), wait()).prop_map(|(guard, wait)| Action::Upgrade(guard, wait)),
        1 => place.clone().prop_map(Action::Downgrade),
        1 => place.clone().prop_map(Action::Note),
        4 => (0..SERVERS, way).prop_map(|(server, way)| Action::Set(server, way)),
        8 => (1..200_u64).prop_map(Action::Pass),
        2 => (1_000..7_000_u64).prop_map(Action::Pass),
        1 => Just(Action::EndSessions),
        1 => place.prop_map(Action::Force),
    ];
    proptest::collection::vec(action, 1..80)
}

struct Stream {
    connection: ConnectionId,
    /// `None` until the first message has arrived.
    session: Option<u64>,
    to_server: VecDeque<(u64, proto::ToServer)>,
    to_client: VecDeque<(u64, Result<proto::ToClient, Option<Failure>>)>,
}

struct Guard {
    ticket: TicketRef,
    mode: proto::Mode,
    lease: Option<Lease>,
    /// Which of the client's sessions it depends on.
    session: usize,
    lost: bool,
    forced_at: Option<Moment>,
    unsettled: bool,
    room: Room,
}

struct World {
    session: SessionState,
    cluster: Cluster,
    now_ms: u64,
    /// The rate of the server's clock, in thousandths of the client's.
    rate: u64,
    random: u64,
    ways: [Way; SERVERS],
    connections: BTreeMap<ConnectionId, usize>,
    connecting: Vec<(u64, ConnectionId)>,
    streams: BTreeMap<StreamId, Stream>,
    queries: Vec<(u64, ConnectionId, QueryId, Query)>,
    watches: BTreeMap<WatchId, u64>,
    last_call: u64,
    calls: BTreeMap<CallId, Option<CallId>>,
    /// Dropped by the application, before the session knows.
    gone: BTreeSet<CallId>,
    abandons: Vec<(u64, CallId)>,
    guards: BTreeMap<CallId, Guard>,
    leases: Vec<Lease>,
    rooms: Arc<RoomLimit>,
}

impl World {
    fn new(rate: u64, seed: u64) -> Self {
        let config = Config {
            servers: (0..SERVERS).map(|server| server.to_string()).collect(),
            ttl: SESSION_TTL,
            label: None,
            timeout: Duration::from_secs(10),
        };
        Self {
            session: SessionState::new(config, Moment::from_nanos(0)),
            cluster: Cluster::default(),
            now_ms: 0,
            rate,
            random: seed | 1,
            ways: [Way::Open; SERVERS],
            connections: BTreeMap::new(),
            connecting: Vec::new(),
            streams: BTreeMap::new(),
            queries: Vec::new(),
            watches: BTreeMap::new(),
            last_call: 0,
            calls: BTreeMap::new(),
            gone: BTreeSet::new(),
            abandons: Vec::new(),
            guards: BTreeMap::new(),
            leases: Vec::new(),
            rooms: RoomLimit::new(ROOMS),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(self.now_ms * 1_000_000)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Acquire { name, shared, ttl_ms, wait_ms } => {
                let mode = if shared { proto::Mode::Shared } else { proto::Mode::Exclusive };
                let acquire = proto::Acquire {
                    names: vec![Bytes::from(format!("lock-{name}"))],
                    mode: mode.into(),
                    ttl_ms,
                    wait_ms,
                    ..proto::Acquire::default()
                };
                self.ask(request::What::Acquire(acquire), None);
            }
            Action::Abandon(place) => {
                let call = self.calls.keys().copied().cycle().nth(place);
                if let Some(call) = call {
                    self.abandon(call);
                }
            }
            Action::Drop(place) => {
                if let Some(guard) = self.guard_at(place) {
                    self.drop_guard(guard);
                }
            }
            Action::Release(place) => {
                let Some(id) = self.guard_at(place).filter(|id| !self.guards[id].unsettled) else {
                    return;
                };
                let Guard { ticket, room, .. } = self.guards.remove(&id).unwrap();
                let (call, what) = (self.next_call(), request::What::Release(ticket));
                self.calls.insert(call, None);
                self.input(Input::Call(Call { call, what, room, change: None }));
            }
            Action::Upgrade(place, wait_ms) => self.change(place, |own| {
                let own = Some(own);
                request::What::Upgrade(proto::Upgrade { own, wait_ms, claims: Vec::new() })
            }),
            Action::Downgrade(place) => self.change(place, request::What::Downgrade),
            Action::Note(place) => {
                if let Some(id) = self.guard_at(place).filter(|id| !self.guards[id].unsettled) {
                    let own = Some(self.guards[&id].ticket.clone());
                    self.ask(request::What::Note(proto::NoteRequest { own, note: None }), None);
                }
            }
            Action::Set(server, way) => self.ways[server] = way,
            Action::Pass(ms) => self.pass(ms),
            Action::EndSessions => self.cluster.end_all_sessions(),
            Action::Force(place) => {
                if let Some(id) = self.guard_at(place) {
                    self.cluster.force(self.guards[&id].ticket.token);
                }
            }
        }
    }

    fn guard_at(&self, place: usize) -> Option<CallId> {
        self.guards.keys().copied().cycle().nth(place)
    }

    fn next_call(&mut self) -> CallId {
        self.last_call += 1;
        CallId(self.last_call)
    }

    fn ask(&mut self, what: request::What, change: Option<ModeChange>) {
        let Some(room) = self.rooms.take() else { return };
        let call = self.next_call();
        self.calls.insert(call, change.as_ref().map(|change| change.guard));
        self.input(Input::Call(Call { call, what, room, change }));
    }

    fn change(&mut self, place: usize, what: impl FnOnce(TicketRef) -> request::What) {
        let has_room = self.rooms.free() > 0;
        let Some(id) = self.guard_at(place).filter(|id| has_room && !self.guards[id].unsettled)
        else {
            return;
        };
        let guard = self.guards.get_mut(&id).unwrap();
        let change = ModeChange {
            guard: id,
            names: vec![guard.ticket.name.clone()],
            before: guard.mode,
            own_ttl: guard.lease.map(|lease| lease.ttl()),
        };
        let what = what(guard.ticket.clone());
        let is_downgrade = matches!(what, request::What::Downgrade(_));
        if guard.mode == (if is_downgrade { proto::Mode::Shared } else { proto::Mode::Exclusive }) {
            return;
        }
        guard.unsettled = true;
        if is_downgrade {
            guard.mode = proto::Mode::Shared;
        }
        self.ask(what, Some(change));
    }

    /// A future is dropped. The session learns of it a little later.
    fn abandon(&mut self, call: CallId) {
        self.calls.remove(&call);
        self.gone.insert(call);
        let due = self.due();
        self.abandons.push((due, call));
    }

    fn drop_guard(&mut self, id: CallId) {
        let changes: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, guard)| **guard == Some(id))
            .map(|(call, _)| *call)
            .collect();
        for call in changes {
            self.abandon(call);
        }
        let now = self.now();
        let guard = self.guards.remove(&id).unwrap();
        let lost = !self.is_good(&guard, now);
        self.input(Input::Drop { ticket: guard.ticket, lost, room: guard.room });
    }

    fn is_good(&self, guard: &Guard, now: Moment) -> bool {
        let lease = guard.lease.unwrap_or_else(|| self.leases[guard.session]);
        let forced = guard.forced_at.is_some_and(|at| now >= at);
        !guard.lost && !forced && lease.health(now) != LeaseHealth::Over
    }

    fn input(&mut self, input: Input) {
        self.session.input(self.now(), input);
        self.step();
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(TICK_MS) {
            self.now_ms += TICK_MS;
            self.cluster.pass_to(self.now_ms * self.rate / 1_000);
            self.check();
            self.network();
            self.step();
            self.check();
        }
    }

    fn check(&self) {
        let now = self.now();
        for (id, guard) in &self.guards {
            if !self.is_good(guard, now) {
                continue;
            }
            let token = guard.ticket.token;
            assert!(
                self.cluster.may_be_held(token),
                "{id:?} is good at {now:?}, and token {token} is {:?}",
                self.cluster.tickets.get(&token)
            );
            if guard.mode == proto::Mode::Exclusive {
                assert!(self.cluster.may_write(token), "{id:?} is not exclusive");
            }
        }
        let sizes = self.session.sizes();
        let kept = sizes.queued + sizes.pending + sizes.waiting + sizes.held + sizes.orphans;
        // A ticket may be held while it is renewed, and in line while it is cancelled.
        assert!(kept <= 3 * ROOMS, "{sizes:?}");
        assert!(sizes.attempts <= 100, "{sizes:?}");
    }

    fn is_quiet(&self) -> bool {
        let live = |state| !matches!(state, State::Over(_));
        let left = self.cluster.tickets.values().any(|t| live(t.state) && !t.excused);
        let sizes = self.session.sizes();
        let kept = sizes.queued + sizes.pending + sizes.waiting + sizes.held + sizes.orphans;
        self.calls.is_empty() && !left && kept == 0 && self.rooms.free() == ROOMS
    }

    /// The connections work again: everything ends.
    fn end(&mut self) {
        self.ways = [Way::Open; SERVERS];
        let until = self.now_ms + END_WITHIN_MS;
        while self.now_ms < until && !self.is_quiet() {
            for guard in self.guards.keys().copied().collect::<Vec<_>>() {
                self.drop_guard(guard);
            }
            self.pass(500);
            self.cluster.end_excused();
        }
        let live = |state| !matches!(state, State::Over(_));
        let left: Vec<_> =
            self.cluster.tickets.iter().filter(|(_, t)| live(t.state) && !t.excused).collect();
        assert!(self.calls.is_empty(), "calls that do not complete: {:?}", self.calls);
        assert!(left.is_empty(), "tickets that nobody wants: {left:?}");
        assert!(self.is_quiet(), "{:?}, room for {}", self.session.sizes(), self.rooms.free());
        assert!(self.watches.is_empty());
        self.input(Input::Close);
        let until = self.now_ms + END_WITHIN_MS;
        while self.now_ms < until && !self.session.is_finished() {
            self.pass(500);
        }
        assert!(self.session.is_finished());
        // What the client could not close expires: nothing keeps it alive.
        self.pass(SESSION_TTL.as_millis() as u64 * 2);
        assert_eq!(self.cluster.alive_sessions(), 0);
        assert!(self.connections.is_empty() && self.streams.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(150, |cases| cases.parse().unwrap()),
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_runs_make_no_false_claims_and_terminate(
        actions in actions(),
        rate in 990..=1_010_u64,
        seed in any::<u64>(),
    ) {
        let mut world = World::new(rate, seed);
        for action in actions {
            world.act(action);
        }
        world.end();
    }
}
