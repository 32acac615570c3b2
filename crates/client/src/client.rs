//! A client: one session with the cluster.

use crate::calls::Calls;
use crate::election::Election;
use crate::error::Error;
use crate::link::{self, Answer, Ask, Order, Permit, Setup};
use crate::lock::Lock;
use crate::reentry::Reentries;
use crate::register::Register;
use crate::watch::Watch;
use bytes::Bytes;
use holdfast_proto::v1::{request, watch_request};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

/// How long a session may be silent before the server ends it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// How long what has no other bound may take: several elections.
const PATIENCE: Duration = Duration::from_secs(10);

/// Locks that one client may hold or wait for. A client that comes back tells the server all of
/// them in one message, which must not be longer than the server takes.
const TICKETS_MAX: usize = 10_000;

/// Other questions that one client may have open.
const QUESTIONS_MAX: usize = 10_000;

/// A connection that says nothing for so long is asked whether it lives, and has as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How a client is set up.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// let client = Client::builder()
///     .session_ttl(Duration::from_secs(5))
///     .label("till 3")
///     .patience(Duration::from_secs(20))
///     .connect(&servers)
///     .await?;
/// # client.close().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Builder {
    ttl: Duration,
    label: Option<String>,
    password: Option<String>,
    patience: Duration,
    tickets_max: usize,
}

impl Builder {
    /// How long the session may be silent before the server ends it, and serves the next holder
    /// of what lived by it. 10 seconds unless said otherwise.
    #[must_use]
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// What its tickets are called, for people who look at the locks.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The password of the cluster.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// How long to go on asking when no server answers, for what has no other bound; then it is
    /// [`Error::Unreachable`]. 10 seconds unless said otherwise. An acquire that stands in line
    /// goes on as long as its session lives.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How many locks it may hold or wait for at once; beyond that it is [`Error::TooMany`].
    /// 10,000 at most, and unless said otherwise.
    #[must_use]
    pub fn tickets_max(mut self, tickets: usize) -> Self {
        self.tickets_max = tickets.min(TICKETS_MAX);
        self
    }

    /// A client of these servers, once one of them has opened a session.
    pub async fn connect<S: AsRef<str>>(
        self,
        servers: impl IntoIterator<Item = S>,
    ) -> Result<Client, Error> {
        let servers = servers.into_iter().map(|server| endpoint(server.as_ref()));
        let servers: Vec<Endpoint> = servers.collect::<Result<_, Error>>()?;
        if servers.is_empty() {
            let why = "no server was named: give at least one, as in http://127.0.0.1:7400";
            return Err(Error::BadAddress(why.to_owned()));
        }
        let setup = Setup {
            servers,
            ttl: self.ttl,
            label: self.label.map(Bytes::from),
            password: self.password.as_deref().map(bearer).transpose()?,
            patience: self.patience,
        };
        let calls = Arc::new(Calls::new(&setup));
        let (orders, taken) = mpsc::unbounded_channel();
        tokio::spawn(link::run(setup, orders.downgrade(), taken));
        let client = Client {
            orders,
            calls,
            tickets: Arc::new(Semaphore::new(self.tickets_max)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            reentries: Arc::default(),
        };
        client.opened().await?;
        Ok(client)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        f.debug_struct("Builder")
            .field("ttl", &self.ttl)
            .field("label", &self.label)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// `http://host:port`, or without the scheme.
fn endpoint(server: &str) -> Result<Endpoint, Error> {
    let bad = |why: &str| Error::BadAddress(format!("{server}: {why}"));
    let url = match server.split_once("://") {
        None => format!("http://{server}"),
        Some(("http", _)) => server.to_owned(),
        Some(_) => return Err(bad("only http:// is spoken, as in http://127.0.0.1:7400")),
    };
    let endpoint = Endpoint::from_shared(url).map_err(|error| bad(&error.to_string()))?;
    if endpoint.uri().port_u16().is_none() {
        return Err(bad("the port is missing, as in http://127.0.0.1:7400"));
    }
    Ok(endpoint
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(2))
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true))
}

fn bearer(password: &str) -> Result<MetadataValue<Ascii>, Error> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {password}").parse().map_err(|_| {
        let message = "the password has characters that can't be sent";
        Error::local("bad_request", message, "use letters, digits and signs of ASCII")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A session with a Holdfast cluster. A clone is another handle of the same session.
///
/// When the last handle and the last guard go, the session is closed.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// // For instance ["http://10.0.0.1:7400", "http://10.0.0.2:7400"].
/// let client = Client::connect(&servers).await?;
/// let both = client.locks(["account/7", "account/9"]).acquire().await?;
/// assert_eq!(both.names().len(), 2);
/// both.release().await?;
///
/// let one_of_three = client.semaphore("printers", 3).acquire().await?;
/// one_of_three.release().await?;
/// client.close().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Client {
    orders: mpsc::UnboundedSender<Order>,
    calls: Arc<Calls>,
    tickets: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    reentries: Arc<Reentries>,
}

impl Client {
    /// How it is to be set up.
    pub fn builder() -> Builder {
        Builder {
            ttl: SESSION_TTL,
            label: None,
            password: None,
            patience: PATIENCE,
            tickets_max: TICKETS_MAX,
        }
    }

    /// A client of these servers, as in `http://127.0.0.1:7400`, once one of them has opened a
    /// session. The others are there for when that one goes.
    pub async fn connect<S: AsRef<str>>(
        servers: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        Self::builder().connect(servers).await
    }

    /// A lock, to be taken.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), vec![Bytes::copy_from_slice(name.as_ref())])
    }

    /// Several locks, to be taken in one step: so they cannot deadlock among themselves.
    pub fn locks<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Lock {
        let copy = |name: N| Bytes::copy_from_slice(name.as_ref());
        Lock::new(self.clone(), names.into_iter().map(copy).collect())
    }

    /// One of so many permits of a semaphore, to be taken: [`Lock::permit_of`] in short. All who
    /// use it must say the same number.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Lock {
        self.lock(name).permit_of(permits)
    }

    /// An election: who holds the lock of that name leads.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.clone(), Bytes::copy_from_slice(name.as_ref()))
    }

    /// A key of the fenced register.
    pub fn register(&self, key: impl AsRef<[u8]>) -> Register {
        Register::new(self.clone(), Bytes::copy_from_slice(key.as_ref()))
    }

    /// What happens to one lock, from now on.
    pub async fn watch(&self, name: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let name = Bytes::copy_from_slice(name.as_ref());
        Watch::begin(self, watch_request::Scope::Name(name)).await
    }

    /// What happens to all locks whose names begin so, from now on.
    pub async fn watch_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let prefix = Bytes::copy_from_slice(prefix.as_ref());
        Watch::begin(self, watch_request::Scope::Prefix(prefix)).await
    }

    /// Ends the session, and with it everything that lives by it. What was let go before is let go
    /// first.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel();
        if self.orders.send(Order::Close(closed)).is_ok() {
            let _ = wait.await;
        }
    }

    /// Waits until there is a session.
    async fn opened(&self) -> Result<(), Error> {
        let (opened, wait) = oneshot::channel();
        let _ = self.orders.send(Order::Open(opened));
        wait.await.unwrap_or(Err(Error::Closed))
    }

    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    pub(crate) fn reentries(&self) -> &Reentries {
        &self.reentries
    }

    pub(crate) fn room_for_ticket(&self) -> Result<Permit, Error> {
        let permit = self.tickets.clone().try_acquire_owned();
        permit.map_err(|_| Error::TooMany("locks held or waited for".to_owned()))
    }

    pub(crate) fn room_for_question(&self) -> Result<Permit, Error> {
        let permit = self.questions.clone().try_acquire_owned();
        permit.map_err(|_| Error::TooMany("questions without an answer".to_owned()))
    }

    pub(crate) async fn ask(&self, what: request::What, permit: Permit) -> Result<Answer, Error> {
        let (reply, wait) = oneshot::channel();
        let mut waits = Waits { wait, orders: &self.orders, over: false };
        if self.orders.send(Order::Ask(Ask { what, reply, permit })).is_err() {
            waits.over = true;
            return Err(Error::Closed);
        }
        let answer = (&mut waits.wait).await.unwrap_or(Err(Error::Closed));
        waits.over = true;
        answer
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Somebody who waits for an answer, and may stop to.
struct Waits<'a> {
    wait: oneshot::Receiver<Result<Answer, Error>>,
    orders: &'a mpsc::UnboundedSender<Order>,
    over: bool,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wait.close();
            let _ = self.orders.send(Order::Abandoned);
        }
    }
}
