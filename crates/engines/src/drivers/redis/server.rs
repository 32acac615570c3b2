//! One Redis server: its connection, and what a lock asks of it.

use super::reply::{self, Fault};
use super::wakeup::Wakeups;
use super::{CA_OPTION, PORT};
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

/// Gives the key another time to live if it still has the owner's value.
const EXTEND: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("pexpire",KEYS[1],ARGV[2])
else
    return 0
end"#;

/// The key's time to live if it still has the owner's value, otherwise -2.
const CHECK: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("pttl",KEYS[1])
else
    return -2
end"#;

/// How to introduce oneself to every server of the list.
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
}

/// The current connection, and how many there were before it.
#[derive(Default)]
struct Slot {
    generation: u64,
    connection: Option<MultiplexedConnection>,
}

/// What came of an attempt to set the key.
pub(super) enum Taken {
    Yes,
    No(Busy),
}

/// Who is in the way.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy {
    /// The value of the key; `None` if it is gone again, or no string.
    pub(super) owner: Option<String>,
    /// How long the key lives if nobody extends it; `None` if it has no end.
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
                // A process has one provider; one that was chosen before is as good.
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
        Ok(Self { address, client, connection, connecting })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether a Redis server is there that takes the login.
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

    /// Sets the key if nobody has it.
    pub(super) async fn take(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Taken, Fault> {
        let mut attempt = pipe();
        attempt.cmd("SET").arg(name).arg(owner).arg("NX").arg("PX").arg(millis(ttl));
        attempt.cmd("GET").arg(name);
        attempt.cmd("PTTL").arg(name);
        let [set, value, left] = self.ask(limit, &attempt).await?;
        match set {
            Value::Okay => return Ok(Taken::Yes),
            Value::Nil => {}
            Value::ServerError(error) => return Err(reply::refused(&self.address, &error)),
            _ => return Err(self.strange()),
        }
        let holder = reply::text(value);
        // An earlier attempt of this acquisition took effect, and its answer was lost.
        if holder.as_deref() == Some(owner) {
            let extended = self.extend(name, owner, ttl, limit).await?;
            return Ok(if extended { Taken::Yes } else { Taken::No(Busy::default()) });
        }
        let ttl = match left {
            Value::Int(-1) => None,
            Value::Int(left) => Some(Duration::from_millis(u64::try_from(left).unwrap_or(0))),
            _ => None,
        };
        Ok(Taken::No(Busy { owner: holder, ttl }))
    }

    /// Whether the key was the owner's, and has another time to live now.
    pub(super) async fn extend(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        limit: Duration,
    ) -> Result<bool, Fault> {
        let mut call = pipe();
        call.cmd("EVAL").arg(EXTEND).arg(1).arg(name).arg(owner).arg(millis(ttl));
        Ok(self.number(limit, &call).await?.is_some_and(|extended| extended > 0))
    }

    /// Whether the key was the owner's, and was deleted.
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

    /// The same for a lock that was held: waiters that listen are told.
    pub(super) async fn release(
        &self,
        name: &str,
        owner: &str,
        limit: Duration,
    ) -> Result<bool, Fault> {
        let mut call = pipe();
        call.cmd("EVAL").arg(RELEASE).arg(1).arg(name).arg(owner);
        // If this user may not publish, waiters find out by themselves.
        call.cmd("PUBLISH").arg(Wakeups::channel(name)).arg("");
        let [deleted, _] = self.ask(limit, &call).await?;
        Ok(self.as_number(deleted)?.is_some_and(|deleted| deleted > 0))
    }

    /// How long the key lives if it is the owner's.
    pub(super) async fn check(
        &self,
        name: &str,
        owner: &str,
        limit: Duration,
    ) -> Result<Option<Duration>, Fault> {
        /// A key without end: somebody has persisted it.
        const ENDLESS: Duration = Duration::from_secs(366 * 24 * 60 * 60);
        let mut call = pipe();
        call.cmd("EVAL").arg(CHECK).arg(1).arg(name).arg(owner);
        Ok(match self.number(limit, &call).await? {
            Some(-1) => Some(ENDLESS),
            Some(left) => u64::try_from(left).ok().map(Duration::from_millis),
            None => None,
        })
    }

    /// The value of the key; `None` if there is no key.
    pub(super) async fn look(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Option<Option<String>>, Fault> {
        match self.one(limit, pipe().cmd("GET").arg(name)).await? {
            Value::Nil => Ok(None),
            // There is a key, but a lock of another kind.
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(Some(None)),
            Value::ServerError(error) => Err(reply::refused(&self.address, &error)),
            value => Ok(Some(reply::text(value))),
        }
    }

    async fn number(&self, limit: Duration, call: &Pipeline) -> Result<Option<i64>, Fault> {
        let number = self.one(limit, call).await?;
        self.as_number(number)
    }

    /// `None` if the key has become something else than a string: then it is nobody's lock of ours.
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

    /// Sends commands and takes as many replies, each of which may be an error. A connection that
    /// fails or is silent is replaced for the next call.
    async fn ask<const N: usize>(
        &self,
        limit: Duration,
        call: &Pipeline,
    ) -> Result<[Value; N], Fault> {
        let mut used = None;
        let asking = async {
            let (generation, mut connection) = self.connect().await?;
            used = Some(generation);
            let replies: Result<Vec<Value>, _> =
                call.clone().ignore_errors().query_async(&mut connection).await;
            let replies = replies.map_err(|error| reply::failed(&self.address, &error, true))?;
            replies.try_into().map_err(|_| self.strange())
        };
        let answer = timeout(limit, asking).await.unwrap_or_else(|_| {
            let why = format!("{}: no answer within {}", self.address, seconds(limit));
            Err(Fault { may_have_happened: used.is_some(), error: Error::Unreachable(why) })
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
        // Every call has a time limit of its own.
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
