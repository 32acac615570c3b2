//! ZooKeeper sessions. A lock lasts as long as the session that created its node, so its TTL is the
//! session's timeout: there is one session per TTL in use, shared by all locks with that TTL.

use crate::clock::Moment;
use crate::driver::{Validity, seconds, within};
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, Error as ZkError, TlsOptions};

/// The timeout of the first session, which is also used for inspecting locks. It equals the default
/// TTL of a lock.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A shorter session would expire at an ordinary hiccup; servers don't grant less than two ticks
/// (4s by default) anyway.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Longer ones don't fit into the protocol's 32 bits of milliseconds; servers don't grant more than
/// twenty ticks (40s by default) anyway.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How many sessions without locks are kept open for reuse.
const IDLE_MAX: usize = 16;

/// The pause between attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Sessions {
    hosts: Vec<String>,
    /// `user:password`.
    digest: Option<String>,
    tls: Option<TlsOptions>,
    timeout: Duration,
    open: Mutex<BTreeMap<Duration, Slot>>,
}

/// Locked while a session is being opened.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempts {
    One,
    UntilTimeout,
}

impl Sessions {
    pub(super) fn new(
        hosts: Vec<String>,
        digest: Option<String>,
        tls: Option<TlsOptions>,
        timeout: Duration,
    ) -> Self {
        Self { hosts, digest, tls, timeout, open: Mutex::new(BTreeMap::new()) }
    }

    /// Opens the first session.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.open(TIMEOUT, Attempts::One).await.map(drop)
    }

    /// A session for inspecting locks.
    pub(super) async fn any(&self) -> Result<Arc<Session>, Error> {
        self.open(TIMEOUT, Attempts::UntilTimeout).await
    }

    /// A session for locks with this TTL.
    pub(super) async fn for_ttl(&self, ttl: Duration) -> Result<Arc<Session>, Error> {
        self.open(ttl.clamp(TIMEOUT_MIN, TIMEOUT_MAX), Attempts::UntilTimeout).await
    }

    async fn open(
        &self,
        session_timeout: Duration,
        attempts: Attempts,
    ) -> Result<Arc<Session>, Error> {
        let slot = self.slot(session_timeout);
        let opening = async {
            let mut slot = slot.lock().await;
            if let Some(session) = slot.as_ref().filter(|session| !session.is_over()) {
                return Ok(session.clone());
            }
            *slot = None;
            loop {
                match self.start(session_timeout).await {
                    Ok(client) => {
                        let session = Arc::new(Session {
                            client,
                            acls: self.acls(),
                            hosts: self.hosts.join(","),
                            limit: self.timeout,
                        });
                        return Ok(slot.insert(session).clone());
                    }
                    Err(ZkError::AuthFailed) => return Err(refused(&ZkError::AuthFailed)),
                    Err(error) if attempts == Attempts::One => return Err(self.why(&error).await),
                    Err(_) => sleep(CONNECT_PAUSE).await,
                }
            }
        };
        match timeout(self.timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(self.why(&ZkError::Timeout).await),
        }
    }

    fn slot(&self, session_timeout: Duration) -> Slot {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= IDLE_MAX && !open.contains_key(&session_timeout) {
            let is_used = |slot: &Slot| {
                Arc::strong_count(slot) > 1
                    || slot.try_lock().is_ok_and(|session| {
                        session.as_ref().is_some_and(|session| Arc::strong_count(session) > 1)
                    })
            };
            open.retain(|_, slot| is_used(slot));
        }
        open.entry(session_timeout).or_default().clone()
    }

    async fn start(&self, session_timeout: Duration) -> Result<Client, ZkError> {
        let connector = Client::connector()
            .with_session_timeout(session_timeout)
            .with_connection_timeout(self.timeout)
            .with_fail_eagerly();
        let connector = match &self.digest {
            Some(digest) => connector.with_auth("digest", digest.as_bytes()),
            None => connector,
        };
        let hosts = self.hosts.join(",");
        match &self.tls {
            Some(tls) => connector.with_tls(tls.clone()).secure_connect(&hosts).await,
            None => connector.connect(&hosts).await,
        }
    }

    /// With credentials, only the same user may use the nodes; without, everyone may, as in
    /// Curator.
    fn acls(&self) -> Acls<'static> {
        if self.digest.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// Why no session could be opened: the client's error does not say.
    async fn why(&self, error: &ZkError) -> Error {
        const TIMEOUT: Duration = Duration::from_secs(1);
        let probe = |host: &String| {
            let host = host.clone();
            tokio::spawn(async move { timeout(TIMEOUT, TcpStream::connect(host)).await })
        };
        let probes: Vec<_> = self.hosts.iter().map(probe).collect();
        let mut causes = Vec::new();
        for (host, probe) in self.hosts.iter().zip(probes) {
            let cause = match probe.await {
                Ok(Ok(Ok(_))) => format!(
                    "it accepts connections, but gives no ZooKeeper session ({error}); {}",
                    if self.tls.is_some() {
                        "is this ZooKeeper's secure client port, and is its certificate for this host \
                         and signed by an authority in `ca`?"
                    } else {
                        "is this ZooKeeper's client port, and does the ensemble have a quorum?"
                    }
                ),
                Ok(Ok(Err(error))) => format!("{error}; is ZooKeeper running there?"),
                _ => "no connection; is the address right?".to_owned(),
            };
            causes.push(format!("ZooKeeper at {host}: {cause}"));
        }
        Error::Unreachable(causes.join("; "))
    }
}

/// An open session. It ends when the last lock that uses it is gone and the pool has dropped it.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) acls: Acls<'static>,
    hosts: String,
    /// The time limit of a call.
    pub(super) limit: Duration,
}

impl Session {
    /// Limits how long a request may take.
    pub(super) async fn limited<T>(
        &self,
        request: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<Result<T, ZkError>, Error> {
        let what = format!("ZooKeeper at {}", self.hosts);
        within(self.limit, &what, async { Ok(request.await) }).await
    }

    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// Resolves when the session, and with it every lock that it holds, is lost.
    pub(super) async fn over(&self) {
        let mut states = self.client.state_watcher();
        let mut state = states.peek_state();
        while !state.is_terminated() {
            state = states.changed().await;
        }
    }

    /// How long a lease of `ttl` lasts: the server may have granted the session less time than
    /// that, or more.
    pub(super) fn lease(&self, ttl: Duration) -> Duration {
        ttl.min(self.client.session_timeout())
    }

    /// Refuses a lease that is longer than the session certainly lasts without a renewal.
    pub(super) fn check_unrenewed(&self, ttl: Duration) -> Result<(), Error> {
        let session = self.client.session_timeout();
        if ttl <= session {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "a lease of {} that nobody renews: this ZooKeeper session has a timeout of {}; ask for \
             less, or let the lock be renewed",
            seconds(ttl),
            seconds(session)
        )))
    }

    /// For a lease of `ttl` that was confirmed by a request sent at `sent`.
    ///
    /// The holder counts on two thirds of the session timeout, as the Java client does. The server
    /// that receives the request counts the whole timeout, from a later moment on. But it is the
    /// leader that expires sessions, and a follower reports the sessions it has heard from only in
    /// its reply to the leader's next ping, half a tick later: if it dies in between, the leader
    /// counts from the previous round. A timeout is at least two ticks, so that costs at most a
    /// quarter of it. The rest of the third covers clocks that run at different rates.
    pub(super) fn validity(&self, sent: Moment, ttl: Duration) -> Validity {
        Validity { valid_until: sent.plus(self.lease(ttl) * 2 / 3), over_by: self.over_by(ttl) }
    }

    /// When a lock that was confirmed just now is certainly over if nobody renews it. The server
    /// rounds up to whole ticks, and a tick is at most half the timeout.
    pub(super) fn over_by(&self, ttl: Duration) -> Moment {
        Validity::unsure(ttl.max(self.client.session_timeout() * 3 / 2))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The server refused: the request had no effect.
    Definite,
    /// The session is over, and all its nodes are gone or soon will be.
    SessionOver,
    /// The connection broke: the request may or may not have had an effect.
    Unknown,
}

pub(super) fn meaning(error: &ZkError) -> ErrorClass {
    match error {
        ZkError::SessionExpired
        | ZkError::SessionMoved
        | ZkError::AuthFailed
        | ZkError::ClientClosed => ErrorClass::SessionOver,
        ZkError::NoNode
        | ZkError::NoAuth
        | ZkError::BadVersion
        | ZkError::BadArguments(_)
        | ZkError::NoChildrenForEphemerals
        | ZkError::NodeExists
        | ZkError::NotEmpty
        | ZkError::InvalidAcl
        | ZkError::NotReadOnly
        | ZkError::QuotaExceeded
        | ZkError::MarshallingError
        | ZkError::Unimplemented => ErrorClass::Definite,
        _ => ErrorClass::Unknown,
    }
}

/// Converts a definite error.
pub(super) fn refused(error: &ZkError) -> Error {
    let hint = match error {
        ZkError::NoAuth => {
            "; the nodes of this lock belong to somebody else: check the user and password in the URL"
        }
        ZkError::AuthFailed => "; check the user and password in the URL",
        _ => "",
    };
    Error::Refused(format!("ZooKeeper: {error}{hint}"))
}

/// Retries an idempotent request until its reply arrives or the session is over.
pub(super) async fn retry<T, Fut>(request: impl Fn() -> Fut) -> Result<T, ZkError>
where
    Fut: Future<Output = Result<T, ZkError>>,
{
    /// Requests wait for the connection by themselves; this only avoids a tight loop while the
    /// connection is flapping.
    const PAUSE: Duration = Duration::from_millis(50);
    loop {
        match request().await {
            Err(error) if meaning(&error) == ErrorClass::Unknown => sleep(PAUSE).await,
            result => return result,
        }
    }
}
