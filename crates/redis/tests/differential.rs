//! Sends the same random requests to a real Redis server and to the door: the replies must be the
//! same.
//!
//! Run it where `redis-server` 7.0 is installed:
//!
//! ```sh
//! cargo test --release -p holdfast-redis --test differential -- --ignored
//! ```
//!
//! With `HOLDFAST_DOOR=127.0.0.1:7401` the requests go to a running Holdfast, otherwise to the door
//! without its sockets; `HOLDFAST_SEQUENCES` sets the number of sequences, all of them different.
//! Everything in that Holdfast's databases is deleted.
//!
//! Known differences, and why:
//!
//! - SET over a hash or a list: Redis replaces it; here it is WRONGTYPE, because a hash must not
//!   silently become a lock. So keys that are plainly SET are never made hashes or lists.
//! - The order of fields and keys: here they are sorted.
//! - A key that was absent when it was watched, was created, and is absent again: here nothing has
//!   changed. So the watched key is never deleted. Nor has anything changed if a key is rewritten
//!   with the same value: what is appended to the watched key is never empty.
//! - DBSIZE and KEYS: Redis counts expired keys until it finds them.
//! - Milliseconds that passed on one side: times to live may differ by a second.

#[path = "support/connection.rs"]
mod connection;
#[path = "support/redis.rs"]
mod redis;
mod support;

use connection::Connection;
use holdfast_redis::resp::{Protocol, Reply, encode};
use std::time::{SystemTime, UNIX_EPOCH};
use support::{Harness, show};

/// The number of sequences, and the length of each.
const SEQUENCES: u64 = 1_000;
const REQUESTS: usize = 60;

/// How many differences are shown.
const DIFFERENCES_SHOWN: usize = 20;

/// What is compared with the real server.
enum Door {
    /// The door without its sockets.
    Inside(Box<Harness>),
    /// A running Holdfast.
    Outside(Connection),
}

impl Door {
    fn open() -> Self {
        match std::env::var("HOLDFAST_DOOR") {
            Ok(address) => Self::Outside(Connection::open(address)),
            Err(_) => Self::Inside(Box::default()),
        }
    }

    /// Starts from scratch.
    fn begin(&mut self) {
        match self {
            Self::Inside(harness) => {
                **harness = Harness::default();
                harness.set_wall_ms(now_ms());
            }
            Self::Outside(connection) => begin(connection),
        }
    }

    fn ask(&mut self, request: &[Vec<u8>]) -> Reply {
        match self {
            Self::Inside(harness) => harness.ask("a", request).remove(0),
            Self::Outside(connection) => connection.ask(request),
        }
    }
}

fn begin(connection: &mut Connection) {
    connection.ask(&["RESET"]);
    assert_eq!(connection.ask(&["FLUSHALL"]), Reply::OK);
}

/// A real server and the door, which get the same requests.
struct Both {
    _redis: redis::Running,
    server: Connection,
    door: Door,
    protocol: Protocol,
}

impl Both {
    fn open() -> Self {
        let redis = redis::Running::start();
        let server = Connection::open(redis.address());
        Self { _redis: redis, server, door: Door::open(), protocol: Protocol::Resp2 }
    }

    /// Starts from scratch.
    fn begin(&mut self, protocol: Protocol) {
        begin(&mut self.server);
        self.door.begin();
        self.protocol = protocol;
        if protocol == Protocol::Resp3 {
            let hello = [b"HELLO".to_vec(), b"3".to_vec()];
            self.server.ask(&hello);
            self.door.ask(&hello);
        }
    }

    /// What differs in the replies to one request; `None` if nothing does.
    fn difference(&mut self, request: &[Vec<u8>]) -> Option<String> {
        let (theirs, ours) = (self.server.ask(request), self.door.ask(request));
        let shown: Vec<_> = request.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let (their_text, our_text) = (show::reply(&theirs), show::reply(&ours));
        let [theirs, ours] = [theirs, ours].map(|reply| comparable(request, reply, self.protocol));
        (theirs != ours).then(|| format!("{shown:?}\nRedis: {their_text}\nhere:  {our_text}"))
    }
}

fn sequences() -> u64 {
    let named = std::env::var("HOLDFAST_SEQUENCES").ok();
    named.map_or(SEQUENCES, |number| number.parse().expect("a number of sequences"))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

const TEXT_ONLY: &[&str] = &["s1", "s2"];
const ANY: &[&str] = &["m1", "m2", "s1", "s2"];
const MIXED: &[&str] = &["m1", "m2"];
const VALUES: &[&str] =
    &["1", "2", "-3", "x", "", "10", "abc def", "9223372036854775807", "1.5", "01"];
const FIELDS: &[&str] = &["f", "g", "1"];
const NUMBERS: &[&str] = &["0", "1", "-1", "2", "-2", "5", "x", "9223372036854775807", "1.5", ""];
const SECONDS: &[&str] = &["100", "1000", "0", "-1", "x", "9223372036854775807", "50000"];

/// `k` is any key, `t` one that only ever holds a string, `m` one that may hold anything, `v` a
/// value, `f` a field, `n` a number, `s` seconds, `u` values that rarely repeat; other words stand
/// for themselves.
const REQUESTS_KNOWN: &[&str] = &[
    "GET k",
    "SET t v",
    "SET t v EX s",
    "SET t v PX s000",
    "SET t v NX",
    "SET t v XX",
    "SET t v GET",
    "SET t v NX GET",
    "SET t v XX GET EX 100",
    "SET t v KEEPTTL",
    "SET t v EX 100 KEEPTTL",
    "SET k v NX",
    "SET m v NX EX 100",
    "SET t v FOO",
    "SET t v EX",
    "SET t",
    "SET t v NX XX",
    "SET t v EXAT 99999999999",
    "SET t v EXAT x",
    "SETNX k v",
    "SETEX t s v",
    "PSETEX t s000 v",
    "PSETEX t n v FOO",
    "PSETEX t x v",
    "PSETEX t 0 v",
    "GETSET t v",
    "GETDEL k",
    "GETEX k",
    "GETEX k EX s",
    "GETEX k PERSIST",
    "GETEX k FOO",
    "GETEX k EX",
    "MGET k k k",
    "MSET t v t v",
    "MSET t v t",
    "MSETNX t v t v",
    "MSETNX k v t v",
    "INCR k",
    "DECR k",
    "INCRBY k n",
    "DECRBY k n",
    "APPEND k v",
    "STRLEN k",
    "GETRANGE k n n",
    "SUBSTR k n n",
    "DEL k",
    "DEL k k",
    "UNLINK k",
    "EXISTS k k k",
    "TOUCH k",
    "TTL k",
    "EXPIRE k s",
    "EXPIRE k s NX",
    "EXPIRE k s XX",
    "EXPIRE k u GT",
    "EXPIRE k u LT",
    "EXPIRE k u NX GT",
    "EXPIRE k u GT LT",
    "EXPIRE k s FOO",
    "PEXPIRE k s000",
    "EXPIREAT k 99999999999",
    "EXPIREAT k 1",
    "PERSIST k",
    "TYPE k",
    "KEYS *",
    "KEYS s*",
    "KEYS [a-r]?",
    "SCAN 0 COUNT 1000",
    "SCAN 0 TYPE hash COUNT 1000",
    "SCAN 0 MATCH m* COUNT 1000",
    "SCAN x",
    "SCAN 0 COUNT 0",
    "DBSIZE",
    "EXPIRETIME k",
    "HSET m f v",
    "HSET m f v f v",
    "HSET k f",
    "HMSET m f v",
    "HSETNX m f v",
    "HGET k f",
    "HMGET k f f",
    "HGETALL k",
    "HDEL k f",
    "HDEL k f f",
    "HEXISTS k f",
    "HLEN k",
    "HKEYS k",
    "HVALS k",
    "HSTRLEN k f",
    "HINCRBY m f n",
    "LPUSH m v",
    "RPUSH m v v",
    "LPUSHX k v",
    "RPUSHX k v",
    "LPOP k",
    "RPOP k",
    "LPOP k n",
    "RPOP k n",
    "LLEN k",
    "LRANGE k n n",
    "LINDEX k n",
    "LSET k n v",
    "LREM k n v",
    "LTRIM k n n",
    "BLPOP k k 0.01",
    "BRPOP k 0.01",
    "BLPOP k x",
    "BLPOP k -1",
    "PING",
    "PING v",
    "ECHO v",
    "ECHO",
    "NOSUCH k v",
    "GET",
    "SELECT 1",
    "SELECT 0",
    "SELECT 99",
    "SELECT x",
    "PUBLISH c v",
    "UNWATCH",
    "WATCH w",
    "INCR w",
    "APPEND w x",
    "GET w",
    "EXPIRE w 100",
    "FLUSHDB FOO",
    "TIME x",
];

fn request(dice: &mut Dice) -> Vec<Vec<u8>> {
    let template = REQUESTS_KNOWN[dice.roll(REQUESTS_KNOWN.len())];
    let word = |word: &str, dice: &mut Dice| match word {
        "k" => dice.pick(ANY).to_owned(),
        "t" => dice.pick(TEXT_ONLY).to_owned(),
        "m" => dice.pick(MIXED).to_owned(),
        "v" => dice.pick(VALUES).to_owned(),
        "f" => dice.pick(FIELDS).to_owned(),
        "n" => dice.pick(NUMBERS).to_owned(),
        "s" => dice.pick(SECONDS).to_owned(),
        "u" => (200 + dice.roll(1_000_000)).to_string(),
        "s000" => format!("{}000", dice.pick(&["100", "1000", "-1"])),
        other => other.to_owned(),
    };
    template.split(' ').map(|w| word(w, dice).into_bytes()).collect()
}

const IN_SCRIPTS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local r = redis.call(unpack(ARGV))\nlocal s = redis.call('get', 's1')\nreturn {r, s}",
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return {1, r.err} end return {2, type(r), r}",
    "local ok, r = pcall(redis.call, unpack(ARGV)) if ok then return r end return {'failed', r}",
    "redis.call('set', 's1', 'from script') return redis.call(unpack(ARGV))",
];

fn scripted(dice: &mut Dice, inner: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let script = dice.pick(IN_SCRIPTS);
    let head = ["EVAL", script, "0"].into_iter().map(|word| word.as_bytes().to_vec());
    head.chain(inner).collect()
}

/// Sorts what has no order, and rounds what may depend on timing.
fn comparable(request: &[Vec<u8>], reply: Reply, protocol: Protocol) -> String {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).to_ascii_lowercase();
    let words: Vec<String> = request.iter().map(text).collect();
    let is = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    let timed = is(&["ttl", "expiretime", "exec"]) || words.iter().any(|w| w.contains("pttl"));
    let mut bytes = Vec::new();
    encode(&if timed { rounded(reply) } else { reply }, protocol, &mut bytes);
    if is(&["keys", "scan", "hgetall", "hkeys", "hvals", "exec"]) {
        bytes.sort_unstable();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes all times to live the same.
fn rounded(reply: Reply) -> Reply {
    match reply {
        Reply::Integer(number) => Reply::Integer(number.min(90)),
        Reply::Array(items) => Reply::Array(items.into_iter().map(rounded).collect()),
        other => other,
    }
}

#[test]
#[ignore = "needs redis-server"]
fn random_requests_get_the_same_replies() {
    let mut both = Both::open();
    let mut differences = Vec::new();
    for number in 1..=sequences() {
        let mut dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        both.begin(if number % 2 == 0 { Protocol::Resp3 } else { Protocol::Resp2 });
        let begin: Vec<Vec<u8>> = vec![b"SET".to_vec(), b"w".to_vec(), b"1".to_vec()];
        assert_eq!(both.difference(&begin), None);
        let mut before = Vec::new();
        let mut queued = false;
        for _ in 0..REQUESTS {
            let mut next = request(&mut dice);
            match dice.roll(12) {
                0..=2 => next = scripted(&mut dice, next),
                3 if !queued => next = vec![b"MULTI".to_vec()],
                4 if queued => next = vec![b"EXEC".to_vec()],
                5 if queued => next = vec![b"DISCARD".to_vec()],
                _ => {}
            }
            if let Some(differs) = both.difference(&next) {
                differences.push(format!("{differs}\nafter:\n{}\n", before.join("\n")));
                break;
            }
            let shown: Vec<_> = next.iter().map(|word| String::from_utf8_lossy(word)).collect();
            before.push(shown.join(" "));
            queued = match next[0].as_slice() {
                b"MULTI" => true,
                b"EXEC" | b"DISCARD" => false,
                _ => queued,
            };
        }
    }
    let some = differences.iter().take(DIFFERENCES_SHOWN).cloned().collect::<Vec<_>>();
    assert!(differences.is_empty(), "{} sequences differ:\n{}", differences.len(), some.join("\n"));
}

/// Scripts that touch no key: Lua itself, and the libraries that Redis adds.
const SCRIPTS: &[&str] = include!("support/scripts.in");

#[test]
#[ignore = "needs redis-server"]
fn scripts_reply_the_same() {
    let mut both = Both::open();
    both.begin(Protocol::Resp2);
    let mut asked: Vec<Vec<&str>> =
        ["HSET h f 1", "SET n 5"].iter().map(|line| line.split(' ').collect()).collect();
    asked.extend(SCRIPTS.iter().map(|script| vec!["EVAL", script, "1", "key", "one", "2"]));
    let differences: Vec<String> = asked
        .iter()
        .filter_map(|request| {
            let request: Vec<_> = request.iter().map(|word| word.as_bytes().to_vec()).collect();
            both.difference(&request)
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Scripts of lock clients, as they send them.
const CLIENTS_SCRIPTS: &[&str] = include!("support/clients.in");

#[test]
#[ignore = "needs redis-server"]
fn scripts_of_lock_clients_reply_the_same() {
    let mut both = Both::open();
    let mut differences = Vec::new();
    let words = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    };
    for script in CLIENTS_SCRIPTS {
        for state in ["PING", "SET k mine PX 100000", "SET k other", "HSET k f v", "SET k mine"] {
            for arguments in ["k mine 50000 0", "k mine 50000 1", "k mine", "k mine x", "k mine -1"]
            {
                both.begin(Protocol::Resp2);
                let mut request = words("EVAL");
                request.extend([script.as_bytes().to_vec(), b"1".to_vec()]);
                request.extend(words(arguments));
                let asked = [words(state), request, words("GET k"), words("TTL k")];
                let all = asked.iter().filter_map(|request| both.difference(request));
                differences.extend(all);
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
