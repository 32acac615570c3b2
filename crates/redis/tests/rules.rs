//! Rules that are easier to express in code than in a transcript.

mod support;

use bytes::Bytes;
use holdfast_core::{
    Acquire, Command, Door, Key, Label, Lease, Limits, LockName, Mode, ProposalOutcome, Refusal,
    State, Wait,
};
use holdfast_gateway::Caller;
use holdfast_redis::client::{Client, Plan};
use holdfast_redis::lua::Scripts;
use holdfast_redis::resp::Reply;
use holdfast_redis::run::{Answered, Job, Local, NodeFacts, ReadSet, Run};
use std::collections::BTreeSet;
use support::{Harness, show};

fn ask(harness: &mut Harness, request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    show::reply(&harness.ask("a", &words).remove(0))
}

#[test]
fn flush_works_in_steps() {
    let mut harness = Harness::default();
    for number in 0..1_500 {
        assert_eq!(ask(&mut harness, &format!("SET key-{number} x")), "OK");
    }
    assert_eq!(ask(&mut harness, "HSET cart f v"), "(integer) 1");
    harness.acquire("seat", "ana", 60_000, 0);
    assert_eq!(ask(&mut harness, "DBSIZE"), "(integer) 1502");
    assert_eq!(ask(&mut harness, "MULTI"), "OK");
    assert_eq!(ask(&mut harness, "FLUSHDB"), "QUEUED");
    let refused = "[(error) ERR too many keys to flush in one transaction: send FLUSHDB alone]";
    assert_eq!(ask(&mut harness, "EXEC"), refused);
    assert_eq!(ask(&mut harness, "FLUSHDB"), "OK");
    assert_eq!(ask(&mut harness, "KEYS *"), "[\"seat\"]");
}

/// One page of a scan: the next cursor, and what was found.
fn scan(harness: &mut Harness, cursor: &str) -> (String, Vec<Bytes>) {
    let reply = harness.ask("a", &["SCAN", cursor, "MATCH", "stays-*"]).remove(0);
    let Reply::Array(parts) = reply else { panic!("{reply:?}") };
    let [Reply::Bulk(next), Reply::Array(keys)] = parts.as_slice() else { panic!("{parts:?}") };
    let bulk = |reply: &Reply| match reply {
        Reply::Bulk(key) => key.clone(),
        other => panic!("{other:?}"),
    };
    (String::from_utf8(next.to_vec()).unwrap(), keys.iter().map(bulk).collect())
}

/// A key that exists during a whole scan is found, whatever else changes meanwhile.
#[test]
fn scan_misses_nothing() {
    let mut harness = Harness::default();
    for number in 0..1_000 {
        ask(&mut harness, &format!("SET stays-{number} x"));
    }
    let (mut cursor, mut found, mut pages) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let (next, keys) = scan(&mut harness, &cursor);
        for key in keys {
            assert!(found.insert(key.clone()), "{key:?} came twice");
        }
        cursor = next;
        pages += 1;
        for number in 0..50 {
            ask(&mut harness, &format!("SET comes-{pages}-{number} x"));
            ask(&mut harness, &format!("DEL comes-{}-{number}", pages - 1));
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((found.len(), pages > 2), (1_000, true));
}

/// Every page looks through all keys, so there must not be too many pages.
#[test]
fn scan_has_few_pages() {
    let mut harness = Harness::default();
    for part in 0..200 {
        let pairs = (0..100).map(|number| format!("stays-{part}-{number} x"));
        ask(&mut harness, &format!("MSET {}", pairs.collect::<Vec<_>>().join(" ")));
    }
    let (mut cursor, mut found, mut pages) = ("0".to_owned(), 0, 0);
    loop {
        let (next, keys) = scan(&mut harness, &cursor);
        (cursor, found, pages) = (next, found + keys.len(), pages + 1);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 20_000);
    assert!((60..=64).contains(&pages), "{pages} pages");
}

#[test]
fn oversized_arguments_are_refused_with_the_limit() {
    let mut harness = Harness::default();
    let long = "x".repeat(4_097);
    assert_eq!(
        ask(&mut harness, &format!("SET k {long}")),
        "(error) ERR this value can't be used here: a label has 0 to 4096 bytes, this one has 4097"
    );
    assert_eq!(
        ask(&mut harness, &format!("SET {} v", "k".repeat(513))),
        "(error) ERR this key can't be used here: a lock name has 1 to 512 bytes, this one has 513"
    );
    let shown = ask(&mut harness, &format!("HSET h f {}", "x".repeat(65_537)));
    assert!(shown.contains("has 0 to 65536 bytes, this one has 65537"), "{shown}");
    let shown = ask(&mut harness, &format!("PUBLISH {} v", "c".repeat(513)));
    assert!(shown.contains("a channel has 0 to 512 bytes"), "{shown}");
    assert_eq!(ask(&mut harness, "EXISTS k h"), "(integer) 0");
}

#[test]
fn core_limits_are_reported() {
    let limits = Limits { keys_written_max: 2, object_elements_max: 2, ..Limits::DEFAULT };
    let mut harness = Harness::with(limits);
    assert_eq!(
        ask(&mut harness, "MSET a 1 b 2 c 3"),
        "(error) ERR too many keys written in one transaction: split the work"
    );
    assert_eq!(
        ask(&mut harness, "RPUSH l a b c"),
        "(error) ERR too much in one hash or list: split it over several names"
    );
    assert_eq!(ask(&mut harness, "DBSIZE"), "(integer) 0");
}

/// During a lock-delay the key is absent, and yet nobody may take it: a try replies as Redis would,
/// anything else gives the reason.
#[test]
fn lock_delay_counts_as_held() {
    let mut harness = Harness::default();
    let acquire = Command::Acquire(Acquire {
        names: vec![LockName::parse("job").unwrap()],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Deadline { ttl_ms: 1_000 },
        wait: Wait::Try,
        label: Some(Label::parse("ana").unwrap()),
        note: None,
        secret: None,
        claims: Vec::new(),
        lock_delay_ms: 10_000,
        door: Door::Cql,
    });
    harness.apply(acquire).unwrap();
    harness.tick(1_000);
    assert_eq!(ask(&mut harness, "GET job"), "(nil)");
    assert_eq!(ask(&mut harness, "SET job me NX PX 1000"), "(nil)");
    assert_eq!(ask(&mut harness, "SETNX job me"), "(integer) 0");
    assert_eq!(ask(&mut harness, "MSETNX job me other me"), "(integer) 0");
    let held = ask(&mut harness, "SET job me");
    assert!(held.starts_with("(error) HELD job is busy, delayed after a death"), "{held}");
    harness.tick(10_000);
    assert_eq!(ask(&mut harness, "SET job me NX PX 1000"), "OK");
}

#[derive(Default)]
struct WithoutServer(Scripts);

impl Local for WithoutServer {
    fn wall_ms(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        0
    }
    fn subscribers(&self, _: &[u8]) -> usize {
        0
    }
    fn channels(&self) -> Vec<(Bytes, usize)> {
        Vec::new()
    }
    fn patterns(&self) -> usize {
        0
    }
    fn facts(&self) -> NodeFacts {
        NodeFacts::default()
    }
    fn scripts(&self) -> &Scripts {
        &self.0
    }
}

fn job(request: &str) -> Job {
    let words = request.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    match Client::new(1, false).take(&words) {
        Plan::Run(job) => job,
        other => panic!("{other:?}"),
    }
}

fn apply(state: &mut State, done: &mut holdfast_redis::run::Done) -> Result<(), Refusal> {
    let transaction = done.transaction.take().unwrap();
    match state.apply(Command::Transact(transaction).into(), &mut Vec::new()) {
        ProposalOutcome::Answered(answer) => answer.map(|_| ()),
        other => panic!("{other:?}"),
    }
}

/// Both have read that the key is free. One gets it; the other runs again and sees that.
#[test]
fn conflicting_job_is_retried() {
    let (mut state, local) = (State::new(Limits::DEFAULT, 7), WithoutServer::default());
    let jobs = ["SET job ana NX PX 1000", "SET job bo NX PX 1000"].map(job);
    let run = |state: &State, job: &Job| match job
        .run(&ReadSet::read(&Caller::NODE, state, &job.wanted()).unwrap(), &local)
    {
        Run::Done(done) => done,
        other => panic!("{other:?}"),
    };
    let [mut ana, mut bo] = [run(&state, &jobs[0]), run(&state, &jobs[1])];
    assert_eq!((&ana.replies, &bo.replies), (&vec![Reply::OK], &vec![Reply::OK]));
    apply(&mut state, &mut ana).unwrap();
    let refusal = apply(&mut state, &mut bo).unwrap_err();
    assert_eq!(bo.refused(&refusal), Answered::Again);
    let again = run(&state, &jobs[1]);
    assert_eq!((again.replies, again.transaction), (vec![Reply::Null], None));
}

#[test]
fn blpop_waits_for_an_empty_list() {
    let (state, local) = (State::new(Limits::DEFAULT, 7), WithoutServer::default());
    let job = job("BLPOP a b 1.5");
    match job.run(&ReadSet::read(&Caller::NODE, &state, &job.wanted()).unwrap(), &local) {
        Run::Block(block) => {
            assert_eq!((block.names.len(), block.wait_ms), (2, Some(1_500)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn password_is_required_first() {
    let mut client = Client::new(1, true);
    let mut take = |words: &[&str]| {
        let request = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        match client.take(&request) {
            Plan::Reply(replies) => replies.iter().map(show::reply).collect(),
            Plan::Password { password, hello, .. } => {
                show::reply(&client.passed(password == "right", hello.as_ref()))
            }
            Plan::Run(_) => "runs".to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(take(&["PING"]), "(error) NOAUTH Authentication required.");
    assert_eq!(take(&["GET", "a"]), "(error) NOAUTH Authentication required.");
    assert!(take(&["HELLO", "3"]).starts_with("(error) NOAUTH HELLO must be called with"));
    assert!(take(&["AUTH", "wrong"]).starts_with("(error) WRONGPASS"));
    assert_eq!(take(&["AUTH", "right"]), "OK");
    assert_eq!(take(&["GET", "a"]), "runs");
    assert_eq!(take(&["RESET"]), "RESET");
    assert_eq!(take(&["GET", "a"]), "(error) NOAUTH Authentication required.");
}

#[test]
fn connection_state_is_bounded() {
    let mut harness = Harness::default();
    ask(&mut harness, "MULTI");
    for _ in 0..1_024 {
        assert_eq!(ask(&mut harness, "PING"), "QUEUED");
    }
    assert!(ask(&mut harness, "PING").contains("too many commands in one MULTI"));
    assert!(ask(&mut harness, "EXEC").starts_with("(error) EXECABORT"));
    let channels: Vec<String> = (0..1_025).map(|number| format!("c{number}")).collect();
    let all = channels.join(" ");
    assert!(ask(&mut harness, &format!("SUBSCRIBE {all}")).contains("too many subscriptions"));
    assert!(ask(&mut harness, &format!("WATCH {all}")).contains("too many keys watched"));
}

/// Each missing key makes a script start over, so there is a limit.
#[test]
fn scripts_must_declare_keys_or_read_few() {
    let mut harness = Harness::default();
    let mut eval = |count: &str| {
        let script =
            "for i = 1, tonumber(ARGV[1]) do redis.call('get', 'k' .. i) end return 'fine'";
        show::reply(&harness.ask("a", &["EVAL", script, "0", count]).remove(0))
    };
    assert_eq!(eval("50"), "\"fine\"");
    let refused =
        "(error) ERR the script reads too many keys one after the other: name them in KEYS";
    assert_eq!(eval("1000"), refused);
}

fn joined(requests: &[&str]) -> Job {
    let mut jobs = requests.iter().map(|request| job(request));
    let mut first = jobs.next().unwrap();
    jobs.for_each(|next| first.join(next).unwrap());
    first
}

/// Each command sees the writes of those before it, and has its own reply; together they are one
/// transaction.
#[test]
fn joined_commands_are_one_transaction() {
    let (mut state, local) = (State::new(Limits::DEFAULT, 7), WithoutServer::default());
    let job = joined(&["SET a 1", "INCR a", "LPUSH a x", "SET b x NX PX 1000", "GET a", "DEL a"]);
    let Run::Done(mut done) =
        job.run_without_lua(&ReadSet::read(&Caller::NODE, &state, &job.wanted()).unwrap(), &local)
    else {
        panic!("it is not done");
    };
    let shown: Vec<String> = done.replies.iter().map(|reply| format!("{reply:?}")).collect();
    assert_eq!(done.replies.len(), 6);
    assert_eq!(done.replies[1], Reply::Integer(2));
    assert!(done.replies[2].is_error(), "{shown:?}");
    assert_eq!(done.replies[4], Reply::bulk("2"));
    apply(&mut state, &mut done).unwrap();
    let names: Vec<bool> =
        ["a", "b"].map(|name| state.key(&LockName::parse(name).unwrap()) != Key::Absent).into();
    assert_eq!(names, [false, true]);
    assert_eq!(job.split().count(), 6);
}

#[test]
fn exclusive_commands_are_not_joined() {
    let long = format!("SET a {}", "x".repeat(300_000));
    for alone in ["BLPOP a 0", "FLUSHDB", "KEYS *", "SCAN 0", "SCRIPT LOAD x", long.as_str()] {
        assert!(job("GET a").join(job(alone)).is_err(), "{alone}");
        assert!(job(alone).join(job("GET a")).is_err(), "{alone}");
    }
    let mut most = job("GET a");
    let count = (0..10_000).take_while(|_| most.join(job("GET a")).is_ok()).count();
    assert!((100..512).contains(&count), "{count}");
}

/// Where Lua may not run, only the scripts that every lock client has are run.
#[test]
fn lua_runs_only_where_allowed() {
    let (state, local) = (State::new(Limits::DEFAULT, 7), WithoutServer::default());
    let run = |script: &str| {
        let words =
            ["EVAL", script, "1", "a", "b"].map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let Plan::Run(job) = Client::new(1, false).take(&words.to_vec()) else { panic!("no job") };
        job.run_without_lua(&ReadSet::read(&Caller::NODE, &state, &job.wanted()).unwrap(), &local)
    };
    let known = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                 return redis.call('del', KEYS[1]) else return 0 end";
    assert!(matches!(run(known), Run::Done(_)));
    assert!(matches!(run("return 1"), Run::Lua));
    assert!(matches!(run(&format!("{known} -- {}", "x".repeat(5_000))), Run::Lua));
}
