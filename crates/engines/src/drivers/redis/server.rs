//! One Redis server: its connection, and the calls that locks are made of.

use super::reply::{self, Fault};
use super::wakeup::Wakeups;
use super::{CA_OPTION, PORT};
use crate::clock::Moment;
use crate::driver::seconds;
use crate::error::Error;
use crate::url::{EngineUrl, Host};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, TlsCertificates, Value, pipe,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Deletes the key if it still has the owner's value. The text is the one in Redis's own
/// documentation, which servers may recognise.
const RELEASE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end"#;

/// The start of every script that takes or extends a lock: a request that arrives after its
/// deadline, the last argument, is refused. Otherwise a delayed packet could take a lock for an
/// acquire that was given up, or undo a later extension.
macro_rules! by_deadline {
    ($then:literal) => {
        concat!(
            "local time = redis.call('time')\n",
            "local now = time[1] * 1000 + math.floor(time[2] / 1000)\n",
            "if now > tonumber(ARGV[3]) then return {-1, now} end\n",
            $then
        )
    };
}

/// Sets the key if it does not exist.
const TAKE: &str = by_deadline!(
    "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {1, now} end
return {0, now}"
);

/// Sets the key's TTL if it still has the owner's value.
const EXTEND: &str = by_deadline!(
    "if redis.call('get', KEYS[1]) == ARGV[1] then
    return {redis.call('pexpire', KEYS[1], ARGV[2]), now}
end
return {0, now}"
);

/// The key's TTL if it still has the owner's value, otherwise -2.
const CHECK: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("pttl",KEYS[1])
else
    return -2
end"#;

/// Credentials and TLS settings, the same for every server in the URL.
pub(super) struct Login {
    info: RedisConnectionInfo,
    tls: Tls,
}

enum Tls {
    Off,
    SystemAuthorities,
    /// In PEM.
    Authorities(Vec<u8>),
}

impl Login {
    pub(super) fn of_url(url: &EngineUrl) -> Result<Self, Error> {
        let mut info = RedisConnectionInfo::default();
        if let (Some(_), None) = (&url.user, &url.password) {
            return Err(Error::BadUrl(
                "the URL has a user without a password: write `redis://user:password@host`, or \
                 `redis://:password@host` for the default user"
                    .to_owned(),
            ));
        }
        if let Some(user) = &url.user {
            info = info.set_username(user);
        }
        if let Some(password) = &url.password {
            info = info.set_password(password);
        }
        if !url.path.is_empty() {
            let number = url.path.parse::<u32>().map_err(|_| {
                Error::BadUrl(format!(
                    "`/{}` is not a database number, as in `redis://127.0.0.1:{PORT}/2`",
                    url.path
                ))
            })?;
            info = info.set_db(i64::from(number));
        }
        let tls = match (url.scheme.as_str(), url.option(CA_OPTION)) {
            ("rediss", Some(file)) => Tls::Authorities(read_authorities(file)?),
            ("rediss", None) => Tls::SystemAuthorities,
            _ => Tls::Off,
        };
        Ok(Self { info, tls })
    }
}

fn read_authorities(file: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::BadUrl(format!("{CA_OPTION}={file}: {error}")))
}

pub(super) struct Server {
    /// `host:port`.
    address: String,
    client: Client,
    connection: Mutex<Slot>,
    /// Held while connecting, so that there is one attempt at a time.
    connecting: tokio::sync::Mutex<()>,
    /// The last known time on the server's clock.
    clock: Mutex<Option<Clock>>,
}

/// The time on a server's clock, as replied to a request sent at `sent`.
#[derive(Debug, Clone, Copy)]
struct Clock {
    unix_ms: i64,
    sent: Moment,
}

/// Allows for clocks that run at different rates, and for fractions of milliseconds.
const SLACK: Duration = Duration::from_millis(50);

impl Clock {
    /// By the server's clock, until when it accepts a request that is sent now: for at least
    /// `limit`.
    fn deadline_ms(self, limit: Duration) -> i64 {
        let ahead = limit + Moment::now().since(self.sent) + SLACK;
        let ahead = i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX);
        self.unix_ms.saturating_add(ahead)
    }
}

/// Older readings of the clock are refreshed, before different clock rates add up to too much.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(60);

/// From when on a request that was sent at `sent` with this limit is certainly refused, should it
/// arrive that late. The server's clock is known up to the time that a reply took, which is at most
/// `longest`.
pub(super) fn late_until(sent: Moment, limit: Duration, longest: Duration) -> Moment {
    sent.plus(limit + limit / 10 + longest + SLACK * 2)
}

/// The current connection, and how many there were before it.
#[derive(Default)]
struct Slot {
    generation: u64,
    connection: Option<MultiplexedConnection>,
}

/// The result of an attempt to set the key.
pub(super) enum SetResult {
    Yes,
    No(Busy),
}

/// The key that is in the way.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy {
    /// Its value; `None` if the key is gone by now, or not a string.
    pub(super) owner: Option<String>,
    /// Its remaining TTL; `None` if it does not expire.
    pub(super) ttl: Option<Duration>,
}

impl Server {
    pub(super) fn new(host: &Host, login: &Login) -> Result<Self, Error> {
        let (name, port) = (host.name.clone(), host.port.unwrap_or(PORT));
        let address = host.authority(PORT);
        let bad = |error: redis::RedisError| Error::BadUrl(format!("{address}: {error}"));
        let server = match &login.tls {
            Tls::Off => ConnectionAddr::Tcp(name, port),
            Tls::SystemAuthorities | Tls::Authorities(_) => {
                // A process has one provider; one that was installed earlier will do.
                let _ = rustls::crypto::ring::default_provider().install_default();
                ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
            }
        };
        let info = server.into_connection_info().map_err(bad)?;
        let info = info.set_redis_settings(login.info.clone());
        let client = match &login.tls {
            Tls::Off | Tls::SystemAuthorities => Client::open(info),
            Tls::Authorities(pem) => {
                let root_cert = Some(pem.clone());
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
        };
        let client = client.map_err(bad)?;
        let (connection, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { address, client, connection, connecting, clock: Mutex::default() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Checks that this is a Redis server, and that it accepts the credentials.
    pub(super) async fn ping(&self, limit: Duration) -> Result<(), Fault> {
        let hint = match self.client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => {
                "is a Redis server with TLS running on this port, with a certificate for this host?"
            }
            _ => "is a Redis server running on this port?",
        };
        match self.one(limit, pipe().cmd("PING")).await.map_err(|fault| fault.with_hint(hint))? {
            Value::SimpleString(pong) if pong == "PONG" => Ok(()),
            Value::ServerError(error) => Err(reply::refused(&self.address, &error)),
            _ => Err(self.strange().with_hint(hint)),
        }
    }

    /// Sets the key if it does not exist. If the reply is lost, that may still happen until
    /// [`late_until`].
    pub(super) async fn take(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        limit: Duration,
    ) -> Result<SetResult, Fault> {
        let mut attempt = pipe();
        attempt.cmd("EVAL").arg(TAKE).arg(1).arg(name).arg(owner).arg(millis(ttl));
        let looks: fn(&mut Pipeline, &str) = |attempt, name| {
            attempt.cmd("GET").arg(name);
            attempt.cmd("PTTL").arg(name);
        };
        let (set, [value, left]) = self.by_deadline(limit, attempt, name, looks).await?;
        if set > 0 {
            return Ok(SetResult::Yes);
        }
        let ttl = match left {
            Value::Int(-1) => None,
            Value::Int(left) => Some(Duration::from_millis(u64::try_from(left).unwrap_or(0))),
            _ => None,
        };
        Ok(SetResult::No(Busy { owner: reply::text(value), ttl }))
    }

    /// Sets the key's TTL; returns false if the key is not the owner's. If the reply is lost, that
    /// may still happen until [`late_until`].
    pub(super) async fn extend(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        limit: Duration,
    ) -> Result<bool, Fault> {
        let mut call = pipe();
        call.cmd("EVAL").arg(EXTEND).arg(1).arg(name).arg(owner).arg(millis(ttl));
        let (extended, []) = self.by_deadline(limit, call, name, |_, _| {}).await?;
        Ok(extended > 0)
    }

    /// Runs a script whose last argument is its deadline, and the commands that `more` adds.
    /// Returns the script's number and the other replies.
    async fn by_deadline<const N: usize>(
        &self,
        limit: Duration,
        mut call: Pipeline,
        name: &str,
        more: fn(&mut Pipeline, &str),
    ) -> Result<(i64, [Value; N]), Fault> {
        let began = Moment::now();
        let known = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = match known.filter(|clock| began.since(clock.sent) < CLOCK_AGE_MAX) {
            Some(clock) => clock,
            None => self.time(limit).await?,
        };
        let limit = limit.saturating_sub(Moment::now().since(began));
        call.arg(clock.deadline_ms(limit));
        more(&mut call, name);
        let sent = Moment::now();
        let replies = self.ask_all(limit, &call).await?;
        let mut replies = replies.into_iter();
        let (first, rest) = (replies.next(), replies.collect::<Vec<_>>());
        let rest = <[Value; N]>::try_from(rest).map_err(|_| self.strange())?;
        let (number, unix_ms) = match first {
            Some(Value::Array(numbers)) => match numbers.as_slice() {
                [Value::Int(number), Value::Int(unix_ms)] => (*number, *unix_ms),
                _ => return Err(self.strange()),
            },
            // The key is no longer a string, so it is not one of our locks.
            Some(Value::ServerError(error)) if error.code() == "WRONGTYPE" => return Ok((0, rest)),
            Some(Value::ServerError(error)) => return Err(reply::refused(&self.address, &error)),
            _ => return Err(self.strange()),
        };
        let clock = Clock { unix_ms, sent };
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
        if number < 0 {
            let why = format!("{}: its clock was set, so a request was late", self.address);
            return Err(Fault { error: Error::Unreachable(why), may_have_happened: false });
        }
        Ok((number, rest))
    }

    async fn time(&self, limit: Duration) -> Result<Clock, Fault> {
        let sent = Moment::now();
        let parts = match self.one(limit, pipe().cmd("TIME")).await? {
            Value::Array(parts) => parts.into_iter().filter_map(reply::text).collect::<Vec<_>>(),
            Value::ServerError(error) => return Err(reply::refused(&self.address, &error)),
            _ => return Err(self.strange()),
        };
        let numbers: Vec<i64> = parts.iter().filter_map(|part| part.parse().ok()).collect();
        let [seconds, micros] = numbers.as_slice() else { return Err(self.strange()) };
        let unix_ms = seconds.saturating_mul(1000).saturating_add(micros / 1000);
        Ok(Clock { unix_ms, sent })
    }

    /// Deletes the key; returns false if it is not the owner's.
    pub(super) async fn remove(
        &self,
        name: &str,
        owner: &str,
        limit: Duration,
    ) -> Result<bool, Fault> {
        let mut call = pipe();
        call.cmd("EVAL").arg(RELEASE).arg(1).arg(name).arg(owner);
        Ok(self.number(limit, &call).await?.is_some_and(|deleted| deleted > 0))
    }

    /// The same for a lock that was held: also notifies waiters that listen.
    pub(super) async fn release(
        &self,
        name: &str,
        owner: &str,
        limit: Duration,
    ) -> Result<bool, Fault> {
        let mut call = pipe();
        call.cmd("EVAL").arg(RELEASE).arg(1).arg(name).arg(owner);
        // If this user may not publish, waiters find out by polling.
        call.cmd("PUBLISH").arg(Wakeups::channel(name)).arg("");
        let [deleted, _] = self.ask(limit, &call).await?;
        Ok(self.as_number(deleted)?.is_some_and(|deleted| deleted > 0))
    }

    /// The key's remaining TTL; `None` if it is not the owner's.
    pub(super) async fn check(
        &self,
        name: &str,
        owner: &str,
        limit: Duration,
    ) -> Result<Option<Duration>, Fault> {
        /// Reported for a key that does not expire: someone has persisted it.
        const ENDLESS: Duration = Duration::from_secs(366 * 24 * 60 * 60);
        let mut call = pipe();
        call.cmd("EVAL").arg(CHECK).arg(1).arg(name).arg(owner);
        Ok(match self.number(limit, &call).await? {
            Some(-1) => Some(ENDLESS),
            Some(left) => u64::try_from(left).ok().map(Duration::from_millis),
            None => None,
        })
    }

    /// The value of the key; `None` if there is no key, `Some(None)` if it is not a string.
    pub(super) async fn look(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Option<Option<String>>, Fault> {
        match self.one(limit, pipe().cmd("GET").arg(name)).await? {
            Value::Nil => Ok(None),
            // The key exists, but is not one of our locks.
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(Some(None)),
            Value::ServerError(error) => Err(reply::refused(&self.address, &error)),
            value => Ok(Some(reply::text(value))),
        }
    }

    async fn number(&self, limit: Duration, call: &Pipeline) -> Result<Option<i64>, Fault> {
        let number = self.one(limit, call).await?;
        self.as_number(number)
    }

    /// `None` if the key is no longer a string: then it is not one of our locks.
    fn as_number(&self, value: Value) -> Result<Option<i64>, Fault> {
        match value {
            Value::Int(number) => Ok(Some(number)),
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(None),
            Value::ServerError(error) => Err(reply::refused(&self.address, &error)),
            _ => Err(self.strange()),
        }
    }

    fn strange(&self) -> Fault {
        reply::strange(&self.address)
    }

    async fn one(&self, limit: Duration, call: &Pipeline) -> Result<Value, Fault> {
        let [value] = self.ask(limit, call).await?;
        Ok(value)
    }

    /// Sends commands and expects this many replies.
    async fn ask<const N: usize>(
        &self,
        limit: Duration,
        call: &Pipeline,
    ) -> Result<[Value; N], Fault> {
        let replies = self.ask_all(limit, call).await?;
        replies.try_into().map_err(|_| self.strange())
    }

    /// Sends commands and returns their replies, each of which may be an error. A connection that
    /// fails or times out is replaced for the next call.
    async fn ask_all(&self, limit: Duration, call: &Pipeline) -> Result<Vec<Value>, Fault> {
        let mut used = None;
        let asking = async {
            let (generation, mut connection) = self.connect().await?;
            used = Some(generation);
            let replies: Result<Vec<Value>, _> =
                call.clone().ignore_errors().query_async(&mut connection).await;
            replies.map_err(|error| reply::failed(&self.address, &error, true))
        };
        let answer = timeout(limit, asking).await.unwrap_or_else(|_| {
            let why = format!("{}: no answer within {}", self.address, seconds(limit));
            let (may_have_happened, error) = (used.is_some(), Error::Unreachable(why));
            Err(Fault { error, may_have_happened })
        });
        if let (Err(Fault { error: Error::Unreachable(_), .. }), Some(used)) = (&answer, used) {
            let mut slot = self.slot();
            if slot.generation == used {
                slot.connection = None;
            }
        }
        answer
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        let slot = self.slot();
        Some((slot.generation, slot.connection.clone()?))
    }

    async fn connect(&self) -> Result<(u64, MultiplexedConnection), Fault> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _only = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        // Every call has its own time limit.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connected.map_err(|error| reply::failed(&self.address, &error, false))?;
        let mut slot = self.slot();
        slot.generation += 1;
        slot.connection = Some(connection.clone());
        Ok((slot.generation, connection))
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
