//! The door's guarantees beyond single replies: the order of events and replies, sessions that move
//! and end, heartbeats, and one lock for every door.

mod support;

use holdfast_core::{
    Acl, Acquire, Answer, Command, Door, Lease, LockName, Mode, NodeData, NodeKind, NodeOp, Proof,
    SessionId, SessionRef, Target, TicketStatus, Token, Wait,
};
use holdfast_zookeeper::codec::{
    AddWatchMode, Connect, Connected, MultiResult, ReadOp, ReadResult, Reader, Reply, ReplyBody,
    Request, SetWatches, WatchEvent, WatchEventType, WatcherType, xid,
};
use holdfast_zookeeper::connection::HeartbeatReply;
use holdfast_zookeeper::{ClientId, Code};
use std::num::NonZeroU64;
use std::time::Duration;
use support::{Bench, Received};

const A: ClientId = ClientId(0);
const B: ClientId = ClientId(1);

fn connect(session: i64, password: &[u8]) -> Connect {
    Connect {
        protocol_version: 0,
        last_zxid: 0,
        timeout_ms: 9_000,
        session,
        password: password.to_vec(),
        read_only: Some(false),
    }
}

/// A client with a session of its own.
fn client(bench: &mut Bench, id: ClientId) -> Connected {
    bench.open(id);
    bench.send(id, &connect(0, &[0; 16]).encode());
    connected(bench, id)
}

fn connected(bench: &mut Bench, id: ClientId) -> Connected {
    match bench.receive(id) {
        Some(Received::Frame(frame)) => Connected::decode(&frame[4..]).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn frame(bench: &mut Bench, id: ClientId) -> Vec<u8> {
    match bench.receive(id) {
        Some(Received::Frame(frame)) => frame[4..].to_vec(),
        other => panic!("{other:?}"),
    }
}

fn event(bench: &mut Bench, id: ClientId) -> (WatchEventType, String) {
    let event = WatchEvent::decode(&frame(bench, id)).unwrap();
    (event.what, event.path)
}

fn reply(bench: &mut Bench, id: ClientId, request: &Request) -> Result<ReplyBody, Code> {
    Reply::decode(&frame(bench, id), request).unwrap().result
}

fn ask(bench: &mut Bench, id: ClientId, request: &Request) -> Result<ReplyBody, Code> {
    bench.send(id, &request.encode(1));
    reply(bench, id, request)
}

fn create(path: &str, kind: NodeKind, sequential: bool) -> Request {
    let (path, data) = (path.to_owned(), NodeData::parse("me").ok());
    let op = NodeOp::Create { path, data, acl: vec![Acl::open()], kind, sequential };
    Request::Write { op, stat: true }
}

fn delete(path: &str) -> Request {
    Request::Write { op: NodeOp::Delete { path: path.to_owned(), version: None }, stat: false }
}

fn set(path: &str) -> Request {
    let (path, data) = (path.to_owned(), NodeData::parse("new").ok());
    Request::Write { op: NodeOp::SetData { path, data, version: None }, stat: false }
}

fn get(path: &str, watch: bool) -> Request {
    Request::GetData { path: path.to_owned(), watch }
}

fn children(path: &str, watch: bool) -> Request {
    Request::GetChildren { path: path.to_owned(), watch, stat: false }
}

fn id_of(connected: &Connected) -> SessionId {
    SessionId(NonZeroU64::new(connected.session.cast_unsigned()).unwrap())
}

#[test]
fn client_receives_its_own_watch_event_before_the_reply() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    ask(&mut bench, A, &get("/a", true)).unwrap();
    bench.send(A, &set("/a").encode(2));
    assert_eq!(event(&mut bench, A), (WatchEventType::DataChanged, "/a".into()));
    reply(&mut bench, A, &set("/a")).unwrap();
}

/// The watch is set while the change is in flight. The client is notified of the change if and only
/// if the reply does not show it yet.
#[test]
fn client_receives_the_watch_event_before_it_reads_the_change() {
    let mut bench = Bench::new();
    for id in [A, B] {
        client(&mut bench, id);
    }
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    bench.hold = true;
    bench.send(B, &set("/a").encode(1));
    let Ok(ReplyBody::DataStat(_, before)) = ask(&mut bench, A, &get("/a", true)) else { panic!() };
    assert_eq!(before.version, 0);
    bench.release();
    assert_eq!(event(&mut bench, A), (WatchEventType::DataChanged, "/a".into()));
    let Ok(ReplyBody::DataStat(_, after)) = ask(&mut bench, A, &get("/a", true)) else { panic!() };
    assert_eq!(after.version, 1);
    assert_eq!(bench.receive(A), None);
}

/// Reads that follow a change in the same batch see its effect, and it does not fire their watches.
#[test]
fn a_pipeline_is_answered_in_order() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    let requests =
        [create("/a", NodeKind::Persistent, false), get("/a", true), set("/a"), get("/a", false)];
    let frames: Vec<u8> = requests.iter().flat_map(|request| request.encode(1)).collect();
    bench.send(A, &frames);
    reply(&mut bench, A, &requests[0]).unwrap();
    reply(&mut bench, A, &requests[1]).unwrap();
    assert_eq!(event(&mut bench, A), (WatchEventType::DataChanged, "/a".into()));
    reply(&mut bench, A, &requests[2]).unwrap();
    let Ok(ReplyBody::DataStat(_, stat)) = reply(&mut bench, A, &requests[3]) else { panic!() };
    assert_eq!(stat.version, 1);
}

#[test]
fn moved_session_closes_its_old_connection() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Ephemeral, false)).unwrap();
    // A change from the old connection is still in flight.
    bench.hold = true;
    bench.send(A, &set("/a").encode(2));
    bench.hold = false;
    bench.open(B);
    bench.send(B, &connect(session.session, &session.password).encode());
    assert_eq!(connected(&mut bench, B).session, session.session);
    assert_eq!(bench.receive(A), Some(Received::Closed));
    bench.release();
    let Ok(ReplyBody::DataStat(_, stat)) = ask(&mut bench, B, &get("/a", false)) else { panic!() };
    assert_eq!(stat.version, 0, "the late change took effect");
    ask(&mut bench, B, &set("/a")).unwrap();
}

/// A node that was behind used to give the client's old connection the attachment of its new one,
/// so that both could write.
#[test]
fn session_that_moved_on_in_the_same_turn_is_not_served_twice() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    let (left, current) = (ClientId(2), ClientId(3));
    bench.hold = true;
    for id in [left, current] {
        bench.open(id);
        bench.send(id, &connect(session.session, &session.password).encode());
    }
    bench.release_in_one_turn();
    assert_eq!(bench.receive(left), Some(Received::Closed));
    assert_eq!(connected(&mut bench, current).session, session.session);
    ask(&mut bench, current, &create("/a", NodeKind::Ephemeral, false)).unwrap();
}

#[test]
fn session_that_ended_in_the_same_turn_is_told_expired() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    bench.hold = true;
    bench.open(B);
    bench.send(B, &connect(session.session, &session.password).encode());
    bench.send(A, &Request::CloseSession.encode(1));
    bench.release_in_one_turn();
    assert_eq!(connected(&mut bench, B).timeout_ms, 0);
    assert_eq!(bench.receive(B), Some(Received::Closed));
}

#[test]
fn session_cannot_be_attached_without_its_password() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    for (number, (id, password)) in
        [(session.session, [9; 16]), (777, session.password), (-5, session.password)]
            .iter()
            .enumerate()
    {
        let other = ClientId(10 + number as u64);
        bench.open(other);
        bench.send(other, &connect(*id, password).encode());
        assert_eq!(connected(&mut bench, other), Connected::expired(Some(false)));
        assert_eq!(bench.receive(other), Some(Received::Closed));
    }
    ask(&mut bench, A, &children("/", false)).unwrap();
}

#[test]
fn client_ahead_of_this_node_is_refused() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    bench.open(B);
    let connect = Connect { last_zxid: 1 << 40, ..connect(session.session, &session.password) };
    bench.send(B, &connect.encode());
    assert_eq!(bench.receive(B), Some(Received::Closed));
}

/// A client lost a watch event for good. It reconnected; the reply to its first ping, which did not
/// wait for its `setWatches`, had the zxid of the node's state, in which the znode had changed. The
/// connection broke again before the event came, and with that zxid the next `setWatches` said that
/// the client knew of the change. There are clients that take the zxid from every reply, such as
/// older versions of libzookeeper.
#[test]
fn ping_shows_nothing_that_a_returning_client_has_not_been_told() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    bench.send(A, &get("/a", true).encode(1));
    let mut seen = Reply::decode(&frame(&mut bench, A), &get("/a", true)).unwrap().zxid;
    // The connection is lost, and the znode changes.
    bench.clients.forget(A);
    client(&mut bench, B);
    ask(&mut bench, B, &set("/a")).unwrap();
    let back = |bench: &mut Bench, id: ClientId, last_zxid: i64| {
        bench.open(id);
        let connect = Connect { last_zxid, ..connect(session.session, &session.password) };
        bench.send(id, &connect.encode());
        assert_eq!(connected(bench, id).session, session.session);
    };
    let ping = |bench: &mut Bench, id: ClientId| {
        bench.send(id, &Request::Ping.encode(xid::PING));
        Reply::decode(&frame(bench, id), &Request::Ping).unwrap().zxid
    };
    let (interrupted, current) = (ClientId(2), ClientId(3));
    back(&mut bench, interrupted, seen);
    seen = seen.max(ping(&mut bench, interrupted));
    bench.clients.forget(interrupted);
    back(&mut bench, current, seen);
    let data = vec!["/a".to_owned()];
    let again = Request::SetWatches(SetWatches { zxid: seen, data, ..SetWatches::default() });
    bench.send(current, &again.encode(xid::SET_WATCHES));
    assert_eq!(event(&mut bench, current), (WatchEventType::DataChanged, "/a".into()));
    let told = Reply::decode(&frame(&mut bench, current), &again).unwrap().zxid;
    assert!(told > seen);
    // From here on, pings are as new as the other replies.
    assert_eq!(ping(&mut bench, current), told);
}

#[test]
fn expired_session_closes_its_connection_and_removes_its_ephemerals() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    client(&mut bench, B);
    ask(&mut bench, A, &create("/one", NodeKind::Ephemeral, false)).unwrap();
    ask(&mut bench, A, &create("/two", NodeKind::Ephemeral, false)).unwrap();
    ask(&mut bench, B, &get("/two", true)).unwrap();
    ask(&mut bench, B, &get("/one", true)).unwrap();
    bench.expire(id_of(&session));
    assert_eq!(bench.receive(A), Some(Received::Closed));
    assert_eq!(event(&mut bench, B), (WatchEventType::Deleted, "/one".into()));
    assert_eq!(event(&mut bench, B), (WatchEventType::Deleted, "/two".into()));
    assert_eq!(bench.clients.watches(), 0);
}

#[test]
fn closed_session_is_answered_before_its_connection_closes() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    assert_eq!(ask(&mut bench, A, &Request::CloseSession), Ok(ReplyBody::Empty));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

/// A request is also a heartbeat. The heartbeat of a `closeSession` used to be answered "no such
/// session", which closed the connection before the reply was sent (7 times in 500).
#[test]
fn close_session_is_answered_even_if_its_heartbeat_finds_the_session_ended() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.wait(Duration::from_secs(2));
    bench.heartbeats = Some(HeartbeatReply::Ended);
    assert_eq!(ask(&mut bench, A, &Request::CloseSession), Ok(ReplyBody::Empty));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

#[test]
fn ping_is_answered_once_the_cluster_confirmed_it() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.heartbeats = None;
    bench.wait(Duration::from_secs(2));
    bench.send(A, &Request::Ping.encode(-2));
    assert_eq!(bench.receive(A), None);
    // The acknowledgement does not cover a second ping, which arrived after the heartbeat was sent.
    bench.send(A, &Request::Ping.encode(-2));
    let now = bench.now;
    let actions =
        bench.connections.get_mut(&A).unwrap().heartbeat_reply(HeartbeatReply::Alive, now);
    assert_eq!(actions.len(), 2, "a reply and the next heartbeat: {actions:?}");
}

#[test]
fn connection_without_confirmed_heartbeats_is_closed_in_time() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.heartbeats = None;
    bench.wait(Duration::from_secs(2));
    ask(&mut bench, A, &children("/", false)).unwrap();
    bench.wait(Duration::from_millis(2_900));
    assert_eq!(bench.receive(A), None);
    bench.wait(Duration::from_millis(200));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

/// A `multiRead` could request the same listing thousands of times, and its reply took gigabytes.
#[test]
fn replies_are_bounded() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    let data = NodeData::parse(vec![b'x'; 500_000]).ok();
    let op = NodeOp::SetData { path: "/a".into(), data, version: None };
    ask(&mut bench, A, &Request::Write { op, stat: false }).unwrap();
    let read = || ReadOp::GetData { path: "/a".into() };
    let many = Request::MultiRead((0..513).map(|_| read()).collect());
    assert_eq!(ask(&mut bench, A, &many), Err(Code::BadArguments));
    let some = Request::MultiRead((0..20).map(|_| read()).collect());
    let Ok(ReplyBody::MultiRead(results)) = ask(&mut bench, A, &some) else { panic!("no results") };
    let fits = |result: &ReadResult| matches!(result, ReadResult::DataStat(..));
    assert_eq!(results.iter().filter(|result| fits(result)).count(), 8);
    assert_eq!(results.last(), Some(&ReadResult::Error(Code::QuotaExceeded)));
}

/// A heartbeat with an unknown outcome is sent again, and counts as unacknowledged since it was
/// first sent. It used to restart the time limit, and a node that was cut off kept connections with
/// long timeouts forever.
#[test]
fn heartbeats_that_come_to_nothing_do_not_buy_time() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.heartbeats = Some(HeartbeatReply::Unknown);
    bench.wait(Duration::from_secs(2));
    bench.send(A, &Request::Ping.encode(-2));
    for _ in 0..29 {
        bench.wait(Duration::from_millis(100));
        assert_eq!(bench.receive(A), None);
    }
    bench.wait(Duration::from_millis(200));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

#[test]
fn a_ping_is_answered_once_the_cluster_can_be_reached_again() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.heartbeats = Some(HeartbeatReply::Unknown);
    bench.wait(Duration::from_secs(2));
    bench.send(A, &Request::Ping.encode(-2));
    assert_eq!(bench.receive(A), None);
    bench.heartbeats = Some(HeartbeatReply::Alive);
    bench.wait(Duration::from_secs(2));
    assert_eq!(reply(&mut bench, A, &Request::Ping), Ok(ReplyBody::Empty));
    bench.wait(Duration::from_secs(5));
    assert_eq!(bench.receive(A), None);
}

/// A request that came just after a heartbeat had none of its own: if the node was cut off then, its
/// client waited for the reply for the whole timeout instead of a third of it.
#[test]
fn every_request_is_followed_by_a_heartbeat() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.wait(Duration::from_secs(2));
    bench.send(A, &Request::Ping.encode(-2));
    assert_eq!(reply(&mut bench, A, &Request::Ping), Ok(ReplyBody::Empty));
    bench.heartbeats = None;
    bench.wait(Duration::from_millis(100));
    ask(&mut bench, A, &children("/", false)).unwrap();
    // An eighth of 9s until the heartbeat, and a third until the connection is closed.
    for _ in 0..40 {
        bench.wait(Duration::from_millis(100));
        assert_eq!(bench.receive(A), None);
    }
    bench.wait(Duration::from_millis(300));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

/// A session that was attached just before its end used to expire anyway: the first heartbeat was
/// sent with the client's next request.
#[test]
fn going_on_with_a_session_is_a_heartbeat() {
    let mut bench = Bench::new();
    let session = client(&mut bench, A);
    bench.heartbeats = None;
    bench.open(B);
    bench.send(B, &connect(session.session, &session.password).encode());
    connected(&mut bench, B);
    bench.wait(Duration::from_millis(3_100));
    assert_eq!(bench.receive(B), Some(Received::Closed), "no heartbeat was sent");
}

#[test]
fn a_client_that_is_silent_for_its_whole_timeout_is_hung_up_on() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.wait(Duration::from_millis(8_900));
    assert_eq!(bench.receive(A), None);
    bench.wait(Duration::from_millis(200));
    assert_eq!(bench.receive(A), Some(Received::Closed));
}

/// A thousand reads of a large znode in one batch used to become one reply of half a gigabyte,
/// built on the loop's thread.
#[test]
fn a_batch_of_large_reads_is_answered_piece_by_piece() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    let data = NodeData::parse(vec![b'x'; 500_000]).ok();
    let op = NodeOp::SetData { path: "/a".into(), data, version: None };
    ask(&mut bench, A, &Request::Write { op, stat: false }).unwrap();
    bench.steps = Some(0);
    let frames: Vec<u8> = (0..20).flat_map(|_| get("/a", false).encode(1)).collect();
    bench.send(A, &frames);
    for _ in 0..20 {
        reply(&mut bench, A, &get("/a", false)).unwrap();
    }
    assert!(bench.steps.unwrap() >= 6, "{:?} tasks", bench.steps);
}

/// Requests beyond the limit stay in the socket, and are read when there is room.
#[test]
fn outstanding_requests_have_a_bound_in_bytes() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    bench.hold = true;
    ask_later(&mut bench, A, &create("/a", NodeKind::Persistent, false));
    let data = NodeData::parse(vec![b'x'; 400_000]).ok();
    let op = NodeOp::SetData { path: "/a".into(), data, version: None };
    let large = Request::Write { op, stat: false };
    for _ in 0..3 {
        assert!(bench.connections[&A].wants_bytes());
        ask_later(&mut bench, A, &large);
    }
    assert!(!bench.connections[&A].wants_bytes());
    bench.release();
    assert!(bench.connections[&A].wants_bytes());
    reply(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    for _ in 0..3 {
        reply(&mut bench, A, &large).unwrap();
    }
}

/// A malformed request is refused in its turn. The connection used to be closed if other requests
/// were outstanding.
#[test]
fn a_request_that_can_not_be_read_is_answered_in_its_turn() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    let first = create("/a", NodeKind::Persistent, false);
    let mut frames = first.encode(1);
    // `removeWatches` with a kind of watch that does not exist.
    frames.extend([0, 0, 0, 18, 0, 0, 0, 2, 0, 0, 0, 18, 0, 0, 0, 2, b'/', b'a', 0, 0, 0, 4]);
    frames.extend(get("/a", false).encode(3));
    bench.send(A, &frames);
    reply(&mut bench, A, &first).unwrap();
    assert_eq!(reply(&mut bench, A, &get("/a", false)), Err(Code::MarshallingError));
    reply(&mut bench, A, &get("/a", false)).unwrap();
}

/// A persistent watch has two halves: a client that removes one still receives events of the other.
#[test]
fn half_of_a_watch_can_be_removed() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    ask(&mut bench, A, &create("/a", NodeKind::Persistent, false)).unwrap();
    let (path, mode) = ("/a".to_owned(), AddWatchMode::Persistent);
    ask(&mut bench, A, &Request::AddWatch { path: path.clone(), mode }).unwrap();
    let remove = |kind| Request::Watches { path: path.clone(), kind, remove: true };
    ask(&mut bench, A, &remove(WatcherType::Data)).unwrap();
    assert_eq!(ask(&mut bench, A, &remove(WatcherType::Data)), Err(Code::NoWatcher));
    ask(&mut bench, A, &set("/a")).unwrap();
    bench.send(A, &create("/a/b", NodeKind::Persistent, false).encode(2));
    assert_eq!(event(&mut bench, A), (WatchEventType::ChildrenChanged, path.clone()));
    reply(&mut bench, A, &create("/a/b", NodeKind::Persistent, false)).unwrap();
    ask(&mut bench, A, &remove(WatcherType::Any)).unwrap();
    assert_eq!(bench.clients.watches(), 0);
}

/// As in ZooKeeper.
#[test]
fn create2_within_a_multi_is_answered_like_create() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    let Request::Write { op, stat } = create("/a", NodeKind::Persistent, false) else { panic!() };
    assert!(stat);
    let multi = Request::Multi(vec![(op, stat)]);
    let created = vec![MultiResult::Created("/a".to_owned())];
    assert_eq!(ask(&mut bench, A, &multi), Ok(ReplyBody::Multi(created)));
}

fn ask_later(bench: &mut Bench, id: ClientId, request: &Request) {
    bench.send(id, &request.encode(1));
}

#[test]
fn unreadable_request_closes_only_its_connection() {
    let mut bench = Bench::new();
    for id in [A, B] {
        client(&mut bench, id);
    }
    // A truncated request is refused.
    bench.send(A, &[0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 4, 0]);
    let mut reader = Reader::new(&[]);
    assert!(reader.int().is_err());
    assert_eq!(reply(&mut bench, A, &get("/", false)), Err(Code::MarshallingError));
    ask(&mut bench, A, &children("/", false)).unwrap();
    // A frame that is not a request, or an unknown request, closes the connection.
    bench.send(A, &[0, 0, 0, 1, 0]);
    assert_eq!(bench.receive(A), Some(Received::Closed));
    bench.send(B, &[0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 16]);
    assert_eq!(reply(&mut bench, B, &Request::Unknown), Err(Code::Unimplemented));
    assert_eq!(bench.receive(B), Some(Received::Closed));
}

#[test]
fn four_letter_words_need_no_session() {
    let mut bench = Bench::new();
    bench.open(A);
    bench.send(A, b"ru");
    assert_eq!(bench.receive(A), None);
    bench.send(A, b"ok");
    assert_eq!(bench.receive(A), Some(Received::Frame(b"imok".to_vec())));
}

fn acquire(session: SessionRef, name: &str) -> Command {
    Command::Acquire(Acquire {
        names: vec![LockName::parse(name).unwrap()],
        mode: Mode::Exclusive,
        session: Some(session),
        lease: Lease::Session,
        wait: Wait::Forever,
        label: None,
        note: None,
        secret: None,
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    })
}

/// kazoo's contender and a native client share one lock: the first to arrive holds it, each is
/// notified when the other is gone, and the tokens rise.
#[test]
fn lock_is_shared_by_every_door() {
    let mut bench = Bench::new();
    client(&mut bench, A);
    let native = bench.native_session();
    for path in ["/locks", "/locks/seat"] {
        ask(&mut bench, A, &create(path, NodeKind::Persistent, false)).unwrap();
    }
    let Ok(Answer::TicketStatus(TicketStatus::Held(first))) =
        bench.other_door(acquire(native, "locks/seat"))
    else {
        panic!()
    };
    let contend = create("/locks/seat/0123__lock__", NodeKind::Ephemeral, true);
    let Ok(ReplyBody::PathStat(own, stat)) = ask(&mut bench, A, &contend) else { panic!() };
    let own_token = Token(stat.czxid);
    assert!(own_token > first.token);
    assert!(!bench.state.is_held(own_token));
    // It sees the contender before it, and is woken when that one is gone.
    let Ok(ReplyBody::Texts(names)) = ask(&mut bench, A, &children("/locks/seat", false)) else {
        panic!()
    };
    let before = names.iter().find(|name| !own.ends_with(name.as_str())).unwrap().clone();
    let number = |name: &str| name[name.len() - 10..].to_owned();
    assert!(number(&before) < number(&own), "{before} is not before {own}");
    let before = format!("/locks/seat/{before}");
    let Ok(ReplyBody::DataStat(_, stat)) = ask(&mut bench, A, &get(&before, true)) else {
        panic!()
    };
    assert_eq!(stat.czxid, first.token.0);
    assert_eq!(ask(&mut bench, A, &delete(&before)), Err(Code::NoAuth));
    // A native client gets in line behind it.
    let Ok(Answer::TicketStatus(TicketStatus::Waiting { token: second, .. })) =
        bench.other_door(acquire(native, "locks/seat"))
    else {
        panic!()
    };
    let target = Target { name: LockName::parse("locks/seat").unwrap(), token: Some(first.token) };
    let proof = Proof::Secret(native.secret);
    bench.other_door(Command::Release { target, proof }).unwrap();
    assert_eq!(event(&mut bench, A), (WatchEventType::Deleted, before));
    assert!(bench.state.is_held(own_token));
    ask(&mut bench, A, &delete(&own)).unwrap();
    assert!(bench.state.is_held(second) && second > own_token);
    bench.state.check().unwrap();
}

/// When the holder dies, the next waiter gets the lock, and only that waiter is woken.
#[test]
fn death_of_a_holder_wakes_only_the_next_waiter() {
    let mut bench = Bench::new();
    let ids: Vec<ClientId> = (0..20).map(ClientId).collect();
    let mut sessions = Vec::new();
    for id in &ids {
        sessions.push(client(&mut bench, *id));
    }
    ask(&mut bench, A, &create("/seat", NodeKind::Persistent, false)).unwrap();
    let mut paths = Vec::<String>::new();
    for id in &ids {
        let contend = create("/seat/x__lock__", NodeKind::Ephemeral, true);
        let Ok(ReplyBody::PathStat(path, _)) = ask(&mut bench, *id, &contend) else { panic!() };
        if let Some(before) = paths.last() {
            ask(&mut bench, *id, &get(before, true)).unwrap();
        }
        paths.push(path);
    }
    bench.expire(id_of(&sessions[0]));
    assert_eq!(bench.receive(ids[0]), Some(Received::Closed));
    assert_eq!(event(&mut bench, ids[1]), (WatchEventType::Deleted, paths[0].clone()));
    for id in &ids[2..] {
        assert_eq!(bench.receive(*id), None);
    }
    bench.tick(1);
}

fn count(path: &str) -> Request {
    Request::GetAllChildrenNumber { path: path.to_owned() }
}

/// `getAllChildrenNumber` used to count all znodes in one go on the loop's thread: with a million
/// of them, every client of the node waited for it, and a client could send a thousand such
/// requests at once.
#[test]
fn many_znodes_are_counted_in_bounded_steps() {
    const DIRECTORIES: usize = 30;
    const CHILDREN: usize = 1_000;
    let mut bench = Bench::new();
    client(&mut bench, A);
    for directory in ["/a", "/a/b", "/a.b", "/ab"] {
        ask(&mut bench, A, &create(directory, NodeKind::Persistent, false)).unwrap();
    }
    for directory in 0..DIRECTORIES {
        let directory = format!("/a/b/{directory}");
        ask(&mut bench, A, &create(&directory, NodeKind::Persistent, false)).unwrap();
        for child in 0..CHILDREN {
            let path = format!("{directory}/{child}");
            ask(&mut bench, A, &create(&path, NodeKind::Persistent, false)).unwrap();
        }
    }
    let below = DIRECTORIES * (1 + CHILDREN);
    let number = |count: usize| Ok(ReplyBody::Number(i32::try_from(count).unwrap()));
    // A step counts at most 4,096, and other tasks have their turn before the next.
    for (path, expected) in [("/a/b", below), ("/a", below + 1), ("/a/b/29", CHILDREN), ("/ab", 0)]
    {
        bench.reads = 0;
        assert_eq!(ask(&mut bench, A, &count(path)), number(expected), "{path}");
        assert_eq!(bench.reads, expected / 4_096, "{path}");
    }
    // The root has ZooKeeper's own three znodes below it, and these.
    assert_eq!(ask(&mut bench, A, &count("/")), number(3 + 4 + below));
    assert_eq!(ask(&mut bench, A, &count("/none")), Err(Code::NoNode));

    // Requests that arrive together are each counted in a task of their own.
    let asked: Vec<u8> = (0..10).flat_map(|_| count("/a/b/0").encode(1)).collect();
    bench.steps = Some(0);
    bench.send(A, &asked);
    assert_eq!(bench.steps, Some(10));
    for _ in 0..10 {
        assert_eq!(reply(&mut bench, A, &count("/a/b/0")), number(CHILDREN));
    }
}
