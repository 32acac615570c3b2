//! A client: one session with the cluster.

use crate::builder::Builder;
use crate::calls::Calls;
use crate::driver::{self, Answer, Order, Setup};
use crate::election::Election;
use crate::error::{self, Error};
use crate::gate::Changing;
use crate::held_ticket::Handles;
use crate::lock::Lock;
use crate::reentry::Reentries;
use crate::register::Register;
use crate::runtime::{self, HomeRuntime};
use crate::servers::IntoServers;
use crate::session::{Call, CallId, ModeChange, Room, RoomLimit, TicketRef};
use crate::watch::Watch;
use bytes::Bytes;
use holdfast_proto::v1::{request, watch_request};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as sync_mpsc};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The most requests, other than acquires, that one client may have open.
const REQUESTS_MAX: usize = 10_000;

/// A session with a Holdfast cluster. A clone is another handle to the same session.
///
/// The session is closed when the last handle and the last guard are dropped. It runs on threads of
/// the client's own, so it does not depend on the runtime that the client is used in.
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
    shared: Arc<Shared>,
}

/// What all handles of a session share.
struct Shared {
    calls: Arc<Calls>,
    tickets: Arc<RoomLimit>,
    requests: Arc<RoomLimit>,
    reentries: Reentries,
    home: Arc<HomeRuntime>,
    timeout: Duration,
    /// The number of the last call.
    last_call: AtomicU64,
}

impl Client {
    /// The settings of a new client.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Connects to one or more servers, such as `http://127.0.0.1:7400`, and returns once one of
    /// them has opened a session. The others are used when that one fails. [`IntoServers`] lists
    /// the accepted forms.
    pub async fn connect(servers: impl IntoServers) -> Result<Self, Error> {
        Self::builder().connect(servers).await
    }

    /// A lock to acquire.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), vec![Bytes::copy_from_slice(name.as_ref())])
    }

    /// Several locks to acquire in one step, so that they can't deadlock among themselves.
    pub fn locks<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Lock {
        let copy = |name: N| Bytes::copy_from_slice(name.as_ref());
        Lock::new(self.clone(), names.into_iter().map(copy).collect())
    }

    /// One of this many permits of a semaphore, to acquire: short for [`Lock::permit_of`]. All
    /// users must give the same number.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Lock {
        self.lock(name).permit_of(permits)
    }

    /// An election: the holder of the lock with this name is the leader.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.clone(), Bytes::copy_from_slice(name.as_ref()))
    }

    /// A key of the fenced register.
    pub fn register(&self, key: impl AsRef<[u8]>) -> Register {
        Register::new(self.clone(), Bytes::copy_from_slice(key.as_ref()))
    }

    /// Watches one lock, from now on.
    pub async fn watch(&self, name: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let name = Bytes::copy_from_slice(name.as_ref());
        Watch::begin(self.shared.calls.clone(), watch_request::Scope::Name(name)).await
    }

    /// Watches all locks whose names start with this prefix, from now on.
    pub async fn watch_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let prefix = Bytes::copy_from_slice(prefix.as_ref());
        Watch::begin(self.shared.calls.clone(), watch_request::Scope::Prefix(prefix)).await
    }

    /// Closes the session and ends everything that depends on it. When it returns, guards that were
    /// dropped before are released, and acquires that were dropped before have left their lines.
    /// Acquires that are still waiting fail with [`Error::Closed`].
    ///
    /// If no server answers, it returns after the client's timeout, and the session ends by its
    /// TTL. A guard with a lease of its own is lost with the close, and its lock stays held until
    /// that lease runs out: release it first. If the future is dropped, the session is closed in
    /// the background.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel::<()>();
        if self.orders.send(Order::Close(Box::new(closed))).is_ok() {
            let _ = wait.await;
        }
    }

    /// Like [`Client::close`], but blocking and without a runtime, so that any destructor can call
    /// it.
    pub(crate) fn close_blocking(self, at_most: Duration) {
        let (closed, wait) = sync_mpsc::channel::<()>();
        if self.orders.send(Order::Close(Box::new(closed))).is_ok() {
            let _ = wait.recv_timeout(at_most);
        }
    }

    /// Starts the session's driver, and waits until a server has opened the session. Boxed, so that
    /// the session's code is compiled here and not again in every program that connects.
    pub(crate) fn open(
        setup: Setup,
        tickets_max: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Self, Error>> + Send>> {
        Box::pin(Self::start(setup, tickets_max))
    }

    async fn start(setup: Setup, tickets_max: usize) -> Result<Self, Error> {
        let runtime = runtime::runtime()?;
        let (orders, taken) = mpsc::unbounded_channel();
        let (home, running) = runtime::anchor(orders.downgrade());
        let calls = {
            let _entered = runtime.enter();
            Arc::new(Calls::new(&setup))
        };
        let timeout = setup.timeout;
        let handles = Handles { orders: orders.downgrade(), home: home.clone() };
        runtime.spawn(driver::run(setup, handles, calls.clone(), taken, running));
        let shared = Arc::new(Shared {
            calls,
            tickets: RoomLimit::new(tickets_max),
            requests: RoomLimit::new(REQUESTS_MAX),
            reentries: Reentries::default(),
            home,
            timeout,
            last_call: AtomicU64::new(0),
        });
        let client = Self { orders, shared };
        let (opened, wait) = oneshot::channel();
        // The driver is running, and answers.
        let _ = client.orders.send(Order::Open(client.next_call(), opened));
        wait.await.unwrap_or(Err(Error::Closed))?;
        Ok(client)
    }

    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.shared.calls
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    pub(crate) fn reentries(&self) -> &Reentries {
        &self.shared.reentries
    }

    fn next_call(&self) -> CallId {
        CallId(self.shared.last_call.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn room_for_ticket(&self) -> Result<Room, Error> {
        let too_many = || Error::TooMany("locks held or waited for".to_owned());
        self.shared.tickets.take().ok_or_else(too_many)
    }

    pub(crate) fn room_for_request(&self) -> Result<Room, Error> {
        let too_many = || Error::TooMany("unanswered requests".to_owned());
        self.shared.requests.take().ok_or_else(too_many)
    }

    /// Stops renewing a ticket with a lease of its own.
    pub(crate) fn detach(&self, guard: CallId, ticket: TicketRef) {
        // If the driver has ended, nothing is renewed.
        let _ = self.orders.send(Order::Detach { guard, ticket });
    }

    pub(crate) async fn ask(&self, what: request::What, room: Room) -> Result<Answer, Error> {
        self.order(what, room, None, None).await
    }

    pub(crate) async fn ask_for_change(
        &self,
        what: request::What,
        room: Room,
        change: ModeChange,
        changing: Changing,
    ) -> Result<Answer, Error> {
        self.order(what, room, Some((change, changing)), None).await
    }

    /// Releases the ticket of a guard.
    pub(crate) async fn release(
        &self,
        guard: CallId,
        ticket: TicketRef,
        room: Room,
    ) -> Result<Answer, Error> {
        self.order(request::What::Release(ticket), room, None, Some(guard)).await
    }

    async fn order(
        &self,
        what: request::What,
        room: Room,
        change: Option<(ModeChange, Changing)>,
        releases: Option<CallId>,
    ) -> Result<Answer, Error> {
        error::check_size(what.encoded_len())?;
        let call = self.next_call();
        let (reply, wait) = oneshot::channel();
        let mut waits = PendingCall { call, wait, client: self, over: false };
        let (change, changing) = change.unzip();
        let call = Call { call, what, room, change };
        if self.orders.send(Order::Call { call, reply, changing, releases }).is_err() {
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

/// A caller that waits for an answer; dropping it abandons the call.
struct PendingCall<'a> {
    call: CallId,
    wait: oneshot::Receiver<Result<Answer, Error>>,
    client: &'a Client,
    over: bool,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wait.close();
            let _ = self.client.orders.send(Order::Abandon(self.call));
            self.client.shared.home.flush(&self.client.orders);
        }
    }
}
