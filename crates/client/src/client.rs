//! A client: one session with the cluster.

use crate::calls::Calls;
use crate::election::Election;
use crate::error::Error;
use crate::link::{self, Answer, Ask, Order, Setup};
use crate::lock::Lock;
use crate::register::Register;
use crate::watch::Watch;
use bytes::Bytes;
use holdfast_proto::v1::{request, watch_request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Endpoint;

/// How long a session may be silent before the server ends it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// How a client is set up.
#[derive(Debug, Clone)]
pub struct Builder {
    ttl: Duration,
    label: Option<String>,
    password: Option<String>,
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

    /// A client of these servers; one of them is enough to begin with.
    pub async fn connect<S: AsRef<str>>(
        self,
        servers: impl IntoIterator<Item = S>,
    ) -> Result<Client, Error> {
        let endpoint = |server: S| {
            let server = server.as_ref();
            let endpoint = Endpoint::from_shared(server.to_owned());
            let endpoint =
                endpoint.map_err(|error| Error::BadAddress(format!("{server}: {error}")))?;
            Ok(endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(2)))
        };
        let servers: Vec<Endpoint> =
            servers.into_iter().map(endpoint).collect::<Result<_, Error>>()?;
        if servers.is_empty() {
            return Err(Error::BadAddress("no server was named".to_owned()));
        }
        let password = self.password.map(|password| format!("Bearer {password}").parse());
        let password = password.transpose();
        let setup = Setup {
            servers,
            ttl: self.ttl,
            label: self.label.map(Bytes::from),
            password: password
                .map_err(|_| Error::BadAddress("the password can't be sent".to_owned()))?,
        };
        let calls = Calls::new(&setup.servers, setup.password.clone());
        let (orders, taken) = mpsc::unbounded_channel();
        tokio::spawn(link::run(setup, taken));
        Ok(Client { orders: Arc::new(orders), calls: Arc::new(calls) })
    }
}

/// A session with a Holdfast cluster. A clone is another handle of the same session.
#[derive(Debug, Clone)]
pub struct Client {
    orders: Arc<mpsc::UnboundedSender<Order>>,
    calls: Arc<Calls>,
}

impl Client {
    /// How it is to be set up.
    pub fn builder() -> Builder {
        Builder { ttl: SESSION_TTL, label: None, password: None }
    }

    /// A client of these servers, as in `http://127.0.0.1:7400`.
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

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Ends the session, and with it everything that lives by it.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel();
        if self.orders.send(Order::Close(closed)).is_ok() {
            let _ = wait.await;
        }
    }

    pub(crate) fn order(&self, order: Order) {
        // Its task ends only with the last handle, or after a close.
        let _ = self.orders.send(order);
    }

    pub(crate) async fn ask(
        &self,
        what: request::What,
        until_served: bool,
    ) -> Result<Answer, Error> {
        let (answer, wait) = oneshot::channel();
        self.order(Order::Ask(Ask { what, answer: Some(answer), until_served }));
        wait.await.unwrap_or(Err(Error::SessionLost))
    }

    /// Sends something whose answer nobody waits for.
    pub(crate) fn tell(&self, what: request::What) {
        self.order(Order::Ask(Ask { what, answer: None, until_served: false }));
    }
}
