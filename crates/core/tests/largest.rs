//! The largest legal values of everything fit into a snapshot, and are counted.

use holdfast_core::{
    Acquire, Answer, Command, Door, Effect, Element, Expiry, Label, Lease, Limits, LockName, Mode,
    Note, Object, OpenSession, Proof, Proposal, ProposalOutcome, Reason, Refusal, RequestId,
    RequestKey, RequestRef, Revoke, Secret, SessionKind, SessionRef, SnapshotCheck, State, Target,
    Tick, Token, Transaction, Value, Wait, Write, WriteOp,
};

/// The largest piece that a snapshot file, or a node that receives one, accepts.
const PIECE_BYTES_MAX: usize = 16 << 20;

/// The few hundred bytes per record that the limits on their number account for.
const RECORD_BYTES: usize = 400;

/// A text of exactly this many bytes, different for each number.
fn text(bytes: usize, number: usize) -> Vec<u8> {
    let mut text = vec![b'x'; bytes];
    let number = format!("{number:07}");
    let end = number.len().min(bytes);
    text[..end].copy_from_slice(&number.as_bytes()[..end]);
    text
}

fn name(number: usize) -> LockName {
    LockName::parse(text(LockName::BYTES_MAX, number)).unwrap()
}

fn label(number: usize) -> Label {
    Label::parse(text(Label::BYTES_MAX, number)).unwrap()
}

fn note(number: usize) -> Note {
    Note::parse(text(Note::BYTES_MAX, number)).unwrap()
}

fn reason(number: usize) -> Reason {
    Reason::parse(text(Reason::BYTES_MAX, number)).unwrap()
}

fn value(number: usize) -> Value {
    Value::parse(text(Value::BYTES_MAX, number)).unwrap()
}

fn key(number: usize) -> RequestKey {
    RequestKey::parse(text(RequestKey::BYTES_MAX, number)).unwrap()
}

struct Stage {
    state: State,
}

impl Stage {
    fn new() -> Self {
        Self { state: State::new(Limits::DEFAULT, 1) }
    }

    fn apply(&mut self, proposal: impl Into<Proposal>) -> Result<Answer, Refusal> {
        let mut effects: Vec<Effect> = Vec::new();
        match self.state.apply(proposal.into(), &mut effects) {
            ProposalOutcome::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, request: RequestRef, command: Command) -> Result<Answer, Refusal> {
        self.apply(Proposal { from: None, request: Some(request), command })
    }

    fn open(&mut self, number: usize) -> SessionRef {
        let secret = Secret([7; 16]);
        let (label, kind) = (Some(label(number)), SessionKind::Client);
        let open = OpenSession { secret, ttl_ms: 1_000, label, kind };
        match self.apply(Command::OpenSession(open)) {
            Ok(Answer::SessionOpened(id)) => SessionRef { id, secret },
            other => panic!("{other:?}"),
        }
    }

    fn acquire(&mut self, names: Vec<LockName>, number: usize) -> Token {
        let answer = self.apply(Command::Acquire(Acquire {
            names,
            mode: Mode::Exclusive,
            session: None,
            lease: Lease::Permanent,
            wait: Wait::Try,
            label: Some(label(number)),
            note: Some(note(number)),
            secret: Some(Secret([1; 16])),
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Native,
        }));
        match answer {
            Ok(Answer::TicketStatus(status)) => status.token(),
            other => panic!("{other:?}"),
        }
    }

    fn force(&mut self, name: LockName, number: usize) {
        let (by, reason) = (label(number), reason(number));
        self.apply(Command::Force { name, token: None, by, reason }).unwrap();
    }

    fn put(&mut self, number: usize, token: Token) {
        let (key, value, mode) = (name(number), value(number), Mode::Exclusive);
        self.apply(Command::Put { key, value, token, mode }).unwrap();
    }

    fn object(&mut self, number: usize, object: Object) {
        let to = WriteOp::Object { object, expiry: Expiry::Never, fresh: false };
        let writes = vec![Write { name: name(number), to }];
        let (seen, publish) = (Vec::new(), Vec::new());
        let transaction = Transaction { door: Door::Redis, seen, seen_all: None, writes, publish };
        self.apply(Command::Transact(transaction)).unwrap();
    }

    fn pieces(&self) -> Vec<Vec<u8>> {
        self.state.snapshot().pieces().collect::<Result<_, _>>().unwrap()
    }

    /// Bytes counted, and bytes that a snapshot takes.
    fn counted_and_real(&self) -> (usize, usize) {
        (self.state.counts().bytes, self.pieces().iter().map(Vec::len).sum())
    }
}

fn in_session(session: SessionRef, id: u64) -> RequestRef {
    let id = RequestId::new(id).unwrap();
    RequestRef::InSession { session, id, lowest: RequestId::FIRST }
}

/// What is written can be read, is bounded, and gives the same state.
fn check_snapshot(stage: &Stage) {
    let pieces = stage.pieces();
    let mut check = SnapshotCheck::default();
    for piece in &pieces {
        assert!(piece.len() <= PIECE_BYTES_MAX / 2, "a piece of {} bytes", piece.len());
        check.piece(piece).unwrap();
    }
    check.end().unwrap();
    let loaded = State::load(&pieces, Limits::DEFAULT, 2).unwrap();
    loaded.check().unwrap();
    assert_eq!(loaded.counts(), stage.state.counts());
    let again: Vec<Vec<u8>> = loaded.snapshot().pieces().collect::<Result<_, _>>().unwrap();
    let sorted = |mut pieces: Vec<Vec<u8>>| {
        pieces.sort();
        pieces.into_iter().map(|piece| piece.len()).sum::<usize>()
    };
    assert_eq!(sorted(again), sorted(pieces));
}

// A piece of a snapshot had up to 256 records, however long they were: 256 register values of 64
// KiB were one piece of 16.1 MB, which no file accepts. From then on the node wrote no snapshot,
// its log grew without bound, and backups could not be read.
#[test]
fn full_register_fits_into_a_snapshot() {
    let mut stage = Stage::new();
    let token = stage.acquire(vec![name(0)], 0);
    for number in 0..600 {
        stage.put(number, token);
    }
    check_snapshot(&stage);
}

/// A ticket with sixteen names, each of which was broken twice, with the longest reasons; it is
/// asked to release. All of that is in the history.
#[test]
fn largest_tickets_fit_into_a_snapshot() {
    let mut stage = Stage::new();
    for wide in 0..20 {
        let names: Vec<LockName> = (0..16).map(|number| name(wide * 16 + number)).collect();
        for name in &names {
            stage.acquire(vec![name.clone()], 1);
            stage.force(name.clone(), 2);
            stage.acquire(vec![name.clone()], 3);
            stage.force(name.clone(), 4);
        }
        stage.acquire(names.clone(), 5);
        let revoke = Revoke {
            name: names[0].clone(),
            token: None,
            by: label(6),
            reason: reason(6),
            within_ms: 1_000,
            force: true,
        };
        stage.apply(Command::Revoke(revoke)).unwrap();
    }
    check_snapshot(&stage);
    let (counted, real) = stage.counted_and_real();
    let history: usize = stage.state.events().count() * 10_000;
    assert!(counted + history > real, "{counted} bytes counted, {real} real");
}

// A session's memory of requests was limited in answers, not in bytes, and not counted: with the
// answers to 1,024 writes of the longest register values it took 65 MB.
#[test]
fn remembered_requests_are_counted_and_bounded() {
    let mut stage = Stage::new();
    let token = stage.acquire(vec![name(0)], 0);
    let sessions: Vec<SessionRef> = (0..3).map(|number| stage.open(number)).collect();
    let before = stage.state.counts().bytes;
    let mut taken = 0;
    for session in &sessions {
        for id in 1..=1_024 {
            let put = Command::Put { key: name(0), value: value(id), token, mode: Mode::Exclusive };
            match stage.ask(in_session(*session, id as u64), put) {
                Ok(_) => taken += 1,
                Err(refusal) => {
                    assert!(matches!(refusal, Refusal::Full(_)), "{refusal}");
                    break;
                }
            }
        }
    }
    assert!((3 * 60..3 * 70).contains(&taken), "{taken}");
    let counted = stage.state.counts().bytes - before;
    assert!(counted >= taken * Value::BYTES_MAX, "{counted} bytes for {taken} answers");
    check_snapshot(&stage);
    // What the client has acknowledged is forgotten, and no longer counts.
    for session in &sessions {
        let id = RequestId::new(2_000).unwrap();
        let request = RequestRef::InSession { session: *session, id, lowest: id };
        let raise = Command::Raise { key: name(0), token, mode: Mode::Exclusive };
        stage.ask(request, raise).unwrap();
    }
    let counted = stage.state.counts().bytes - before;
    assert!(counted <= 4 * (Value::BYTES_MAX + 1_024), "{counted} bytes are left");
}

/// A release must not be refused when the memory is full: nothing would ever be freed again.
#[test]
fn locks_can_be_released_when_memory_is_full() {
    let limits = Limits { bytes_max: 100_000, bytes_reserve: 200_000, ..Limits::DEFAULT };
    let mut stage = Stage { state: State::new(limits, 1) };
    let session = stage.open(0);
    let token = stage.acquire(vec![name(0)], 0);
    let mut id = 1;
    loop {
        let put = Command::Put { key: name(0), value: value(id), token, mode: Mode::Exclusive };
        match stage.ask(in_session(session, id as u64), put) {
            Ok(_) => id += 1,
            Err(refusal) => break assert!(matches!(refusal, Refusal::Full(_)), "{refusal}"),
        }
    }
    let target = Target { name: name(0), token: Some(token) };
    let release = Command::Release { target, proof: Proof::Secret(Secret([1; 16])) };
    assert_eq!(stage.ask(in_session(session, 900), release), Ok(Answer::Released(token)));
    // The reserve is limited as well.
    let refused = (1_000..2_000).find_map(|id| {
        let target = Target { name: name(id), token: Some(token) };
        let release = Command::Release { target, proof: Proof::Secret(Secret([1; 16])) };
        let answer = stage.ask(in_session(session, id as u64), release);
        answer.err().filter(|refusal| matches!(refusal, Refusal::Full(_)))
    });
    assert!(refused.is_some());
}

/// For everything: what is counted is at least what a snapshot of it takes, less the few hundred
/// bytes per record that the limit on their number accounts for.
#[test]
fn all_unbounded_data_is_counted() {
    let many = 500;
    let mut empty = Stage::new();
    let keeper = empty.acquire(vec![name(9_999_999)], 0);
    let (counted_before, real_before) = empty.counted_and_real();
    let fill = |what: &str, records: usize, fill: &dyn Fn(&mut Stage)| {
        let mut stage = Stage::new();
        stage.acquire(vec![name(9_999_999)], 0);
        fill(&mut stage);
        // The history has a limit of its own.
        let events = stage.state.events().count();
        let (counted, real) = stage.counted_and_real();
        let (counted, real) = (counted - counted_before, real - real_before);
        let known = counted + records * RECORD_BYTES + (events - 1) * 10_000;
        assert!(known >= real, "{what}: {counted} bytes counted for {real}");
        check_snapshot(&stage);
    };
    fill("random ids", many, &|stage| {
        for number in 0..many {
            let acquire = Acquire {
                names: vec![name(9_999_999)],
                mode: Mode::Exclusive,
                session: None,
                lease: Lease::Permanent,
                wait: Wait::Try,
                label: None,
                note: None,
                secret: None,
                claims: Vec::new(),
                lock_delay_ms: 0,
                door: Door::Native,
            };
            let refused = stage.ask(RequestRef::Alone(key(number)), Command::Acquire(acquire));
            assert!(matches!(refused, Err(Refusal::Busy { .. })), "{refused:?}");
        }
    });
    fill("random ids that are barred", many, &|stage| {
        for number in 0..many {
            stage.apply(Command::Outcome(RequestRef::Alone(key(number)))).unwrap();
        }
    });
    fill("claims", many, &|stage| {
        let session = stage.open(0);
        let short = |text: &str| vec![LockName::parse(text).unwrap()];
        let (kept, _) = (stage.acquire(short("kept"), 0), stage.acquire(short("wanted"), 0));
        for _ in 0..many {
            let acquire = Acquire {
                names: short("wanted"),
                mode: Mode::Exclusive,
                session: Some(session),
                lease: Lease::Session,
                wait: Wait::Forever,
                label: None,
                note: None,
                secret: None,
                claims: vec![kept; 64],
                lock_delay_ms: 0,
                door: Door::Native,
            };
            let before = stage.state.counts().bytes;
            stage.apply(Command::Acquire(acquire)).unwrap();
            assert!(stage.state.counts().bytes - before >= 64 * 8);
        }
    });
    fill("register values", many, &|stage| {
        (0..many).for_each(|number| stage.put(number, keeper));
    });
    fill("refusals of a session", many, &|stage| {
        let session = stage.open(0);
        for id in 1..=many {
            let target = Target { name: name(id), token: Some(keeper) };
            let release = Command::Release { target, proof: Proof::Secret(Secret([1; 16])) };
            let refused = stage.ask(in_session(session, id as u64), release);
            assert!(matches!(refused, Err(Refusal::NotHeld { .. })), "{refused:?}");
        }
    });
    fill("long lists", many, &|stage| {
        let item = |number| Element::parse(text(8_192, number)).unwrap();
        for number in 0..many / 10 {
            stage.object(number, Object::List((0..32).map(item).collect()));
        }
    });
}

/// Elements take memory even if they are empty.
#[test]
fn empty_elements_are_counted() {
    let mut stage = Stage::new();
    let empty = || Element::parse([]).unwrap();
    stage.object(1, Object::List((0..4_096).map(|_| empty()).collect()));
    assert!(stage.state.counts().bytes > 4_096 * 48, "{:?}", stage.state.counts());
    stage.object(1, Object::List(vec![empty()]));
    assert!(stage.state.counts().bytes < 1_024, "{:?}", stage.state.counts());
    check_snapshot(&stage);
}

/// The further names of a ticket cost a lock each, however short they are.
#[test]
fn many_short_names_are_counted() {
    let mut stage = Stage::new();
    let names = (0..16).map(|number| LockName::parse([b'a' + number]).unwrap()).collect();
    let before = stage.state.counts().bytes;
    stage.acquire(names, 0);
    let texts = Label::BYTES_MAX + Note::BYTES_MAX + 16;
    assert!(stage.state.counts().bytes - before >= texts + 15 * 200);
}

// The history was limited in events only: with the longest labels and reasons it took 600 MB.
#[test]
fn history_is_bounded_in_bytes() {
    let limits = Limits { history_bytes_max: 4 << 20, ..Limits::DEFAULT };
    let mut stage = Stage { state: State::new(limits, 1) };
    for number in 0..1_500 {
        stage.acquire(vec![name(number)], number);
        stage.force(name(number), number);
        let tick = Tick { elapsed_ms: limits.death_kept_ms, wall_ms: 0, term: Default::default() };
        stage.apply(Command::Tick(tick)).unwrap();
    }
    let real: usize = stage.pieces().iter().map(Vec::len).sum();
    assert!(real < 8 << 20, "{real} bytes");
    assert!(stage.state.events().count() >= 256);
    stage.state.check().unwrap();
}

// A release that was repeated after 33 hand-offs of its lock was answered "not held": only the last
// 64 events of the lock were searched.
#[test]
fn repeated_release_is_recognised_after_thousands_of_hand_offs() {
    let mut stage = Stage::new();
    let lock = LockName::parse("hot").unwrap();
    let release = |token| Command::Release {
        target: Target { name: LockName::parse("hot").unwrap(), token: Some(token) },
        proof: Proof::Secret(Secret([1; 16])),
    };
    let first = stage.acquire(vec![lock.clone()], 0);
    assert_eq!(stage.apply(release(first)), Ok(Answer::Released(first)));
    for number in 0..3_000 {
        let token = stage.acquire(vec![lock.clone()], number % 3);
        assert_eq!(stage.apply(release(token)), Ok(Answer::Released(token)));
        if number % 500 == 32 {
            assert_eq!(stage.apply(release(first)), Ok(Answer::Released(first)), "{number}");
        }
    }
    // Beyond what is remembered, nothing is made up.
    for number in 0..35_000 {
        let token = stage.acquire(vec![LockName::parse("other").unwrap()], number % 3);
        let target = Target { name: LockName::parse("other").unwrap(), token: Some(token) };
        let proof = Proof::Secret(Secret([1; 16]));
        stage.apply(Command::Release { target, proof }).unwrap();
    }
    let refused = stage.apply(release(first)).unwrap_err();
    assert_eq!(refused, Refusal::NotHeld { name: lock, token: Some(first), how: None });
    assert!(refused.to_string().contains("forgotten"), "{refused}");
}

/// Members of different versions must behave the same until all of them support more.
#[test]
fn older_levels_behave_as_before() {
    let mut stage = Stage::new();
    stage.state.set_level(2);
    let acquire = |name: LockName| Acquire {
        names: vec![name],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Permanent,
        wait: Wait::Try,
        label: None,
        note: None,
        secret: None,
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    };
    let first = stage.ask(RequestRef::Alone(key(1)), Command::Acquire(acquire(name(1))));
    let other = stage.ask(RequestRef::Alone(key(1)), Command::Acquire(acquire(name(2))));
    assert_eq!(first, other);
    assert_eq!(stage.state.counts().bytes, LockName::BYTES_MAX);
    // Members of older versions can read it.
    let pieces = stage.pieces();
    assert_eq!(pieces[0][8..10], 2_u16.to_le_bytes());
    let mut loaded = State::load(&pieces, Limits::DEFAULT, 3).unwrap();
    loaded.set_level(3);
    stage.state = loaded;
    // A request from before has no fingerprint, on any member.
    let other = stage.ask(RequestRef::Alone(key(1)), Command::Acquire(acquire(name(2))));
    assert_eq!(first, other);
    stage.ask(RequestRef::Alone(key(2)), Command::Acquire(acquire(name(2)))).unwrap();
    let other = stage.ask(RequestRef::Alone(key(2)), Command::Acquire(acquire(name(3))));
    assert_eq!(other, Err(Refusal::OtherRequest));
    assert_eq!(stage.pieces()[0][8..10], 3_u16.to_le_bytes());
    let reloaded = State::load(stage.pieces(), Limits::DEFAULT, 4).unwrap();
    stage.state = reloaded;
    let other = stage.ask(RequestRef::Alone(key(2)), Command::Acquire(acquire(name(3))));
    assert_eq!(other, Err(Refusal::OtherRequest));
}
