//! A client: one session with the cluster.

use crate::builder::Builder;
use crate::calls::Calls;
use crate::driver::{self, Home};
use crate::election::Election;
use crate::error::{self, Error};
use crate::hold::Handles;
use crate::link::{self, Answer, Ask, Change, Order, Permit, Setup};
use crate::lock::Lock;
use crate::reentry::Reentries;
use crate::register::Register;
use crate::servers::IntoServers;
use crate::watch::Watch;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, watch_request};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, mpsc as sync_mpsc};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Other questions that one client may have open.
const QUESTIONS_MAX: usize = 10_000;

/// A session with a Holdfast cluster. A clone is another handle of the same session.
///
/// When the last handle and the last guard go, the session is closed. The session runs on
/// threads of the client's own, whatever becomes of the runtime that the client is used in.
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
    home: Arc<Home>,
    patience: Duration,
}

impl Client {
    /// How it is to be set up.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A client of this server or these, as in `http://127.0.0.1:7400`, once one of them has opened a
    /// session. The others are there for when that one goes. See [`IntoServers`] for how to write
    /// them.
    pub async fn connect(servers: impl IntoServers) -> Result<Self, Error> {
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
        Watch::begin(self.calls.clone(), watch_request::Scope::Name(name)).await
    }

    /// What happens to all locks whose names begin so, from now on.
    pub async fn watch_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let prefix = Bytes::copy_from_slice(prefix.as_ref());
        Watch::begin(self.calls.clone(), watch_request::Scope::Prefix(prefix)).await
    }

    /// Ends the session, and with it everything that lives by it, and returns when that is done:
    /// guards that were dropped before are released, acquires that were dropped before have left
    /// their lines. Acquires that still wait fail with [`Error::Closed`].
    ///
    /// If no server answers, it returns after the client's patience; the session then ends by
    /// its TTL. A guard with a lease of its own is lost with the close, and its lock is held until
    /// that lease runs out: release it before. If the future is dropped, the session is closed in
    /// the background.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel::<()>();
        if self.orders.send(Order::Close(Box::new(closed))).is_ok() {
            let _ = wait.await;
        }
    }

    /// The same, without any help of a runtime: it may be called wherever a destructor runs.
    pub(crate) fn close_blocking(self, at_most: Duration) {
        let (closed, wait) = sync_mpsc::channel::<()>();
        if self.orders.send(Order::Close(Box::new(closed))).is_ok() {
            let _ = wait.recv_timeout(at_most);
        }
    }

    /// Starts the task of the session, and waits until a server has opened it. Boxed, so that the
    /// session's code is compiled here, and not again in every program that connects.
    pub(crate) fn open(
        setup: Setup,
        tickets_max: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Self, Error>> + Send>> {
        Box::pin(Self::start(setup, tickets_max))
    }

    async fn start(setup: Setup, tickets_max: usize) -> Result<Self, Error> {
        let runtime = driver::runtime()?;
        let (orders, taken) = mpsc::unbounded_channel();
        let (home, running) = driver::anchor(orders.downgrade());
        let calls = {
            let _entered = runtime.enter();
            Arc::new(Calls::new(&setup))
        };
        let patience = setup.patience;
        let handles = Handles { orders: orders.downgrade(), home: home.clone() };
        runtime.spawn(link::run(setup, handles, calls.clone(), taken, running));
        let client = Self {
            orders,
            calls,
            tickets: Arc::new(Semaphore::new(tickets_max)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            reentries: Arc::default(),
            home,
            patience,
        };
        let (opened, wait) = oneshot::channel();
        // The task is there, and answers.
        let _ = client.orders.send(Order::Open(opened));
        wait.await.unwrap_or(Err(Error::Closed))?;
        Ok(client)
    }

    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
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

    /// No longer renews a ticket with a lease of its own.
    pub(crate) fn detach(&self, own: proto::Own) {
        // If the task has ended, nothing is renewed.
        let _ = self.orders.send(Order::Detach(own));
    }

    pub(crate) async fn ask(&self, what: request::What, permit: Permit) -> Result<Answer, Error> {
        self.order(what, permit, None).await
    }

    pub(crate) async fn ask_for_change(
        &self,
        what: request::What,
        permit: Permit,
        change: Change,
    ) -> Result<Answer, Error> {
        self.order(what, permit, Some(change)).await
    }

    async fn order(
        &self,
        what: request::What,
        permit: Permit,
        change: Option<Change>,
    ) -> Result<Answer, Error> {
        error::check_size(what.encoded_len())?;
        let (reply, wait) = oneshot::channel();
        let mut waits = Waits { wait, client: self, over: false };
        if self.orders.send(Order::Ask(Ask { what, reply, permit, change })).is_err() {
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
    client: &'a Client,
    over: bool,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wait.close();
            let _ = self.client.orders.send(Order::Abandoned);
            self.client.home.flush(&self.client.orders);
        }
    }
}
