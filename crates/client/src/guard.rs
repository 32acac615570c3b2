//! A held lock.

use crate::client::Client;
use crate::code::ErrorCode;
use crate::detached::Detached;
use crate::driver::Answer;
use crate::error::{EndReason, Error};
use crate::events::Events;
use crate::gate::Changing;
use crate::guard_state::{GuardState, Health, Revocation};
use crate::held_ticket::{Ending, HeldTicket};
use crate::lock::{FOREVER, millis};
use crate::session::TicketRef;
use crate::timer::timeout;
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A held lock, kept alive until it is released or dropped.
///
/// Dropping it releases the lock in the background, without waiting for an answer. Only if the
/// runtime that the client was connected from is gone does it block, for at most 1s.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// # async fn write_to_the_ledger(_token: holdfast_client::Token) {}
/// let guard = client.lock("ledger").acquire().await?;
/// if guard.needs_recovery() {
///     // A holder died. What was it doing? See guard.ending() and what it noted.
///     guard.recovered().await?;
/// }
/// guard.note(Some(b"writing")).await?;
/// tokio::select! {
///     () = write_to_the_ledger(guard.token()) => guard.release().await?,
///     how = guard.lost() => panic!("stop: somebody else may hold the lock now ({how})"),
/// }
/// # Ok(()) }) }
/// ```
pub struct Guard {
    // Dropped first: releasing needs the client.
    held: Arc<HeldTicket>,
    client: Client,
}

impl Guard {
    pub(crate) fn new(client: Client, held: Arc<HeldTicket>) -> Self {
        Self { held, client }
    }

    pub(crate) fn downgrade_ticket(&self) -> Weak<HeldTicket> {
        Arc::downgrade(&self.held)
    }

    /// The ticket that is currently held.
    fn held(&self) -> &HeldTicket {
        self.held.current()
    }

    pub(crate) fn state(&self) -> &Arc<GuardState> {
        &self.held.state
    }

    /// The fencing token: show it to whatever the lock protects.
    pub fn token(&self) -> Token {
        Token::new(self.held().ticket.token)
    }

    pub(crate) fn mode(&self) -> proto::Mode {
        self.held().mode()
    }

    /// Whether it is shared with other readers.
    pub fn is_shared(&self) -> bool {
        self.mode() == proto::Mode::Shared
    }

    /// Whether it is one of several permits. Permits can't be fenced, because several are held at
    /// once.
    pub fn is_permit(&self) -> bool {
        self.mode() == proto::Mode::Permit
    }

    /// The name; for a lock with several names, the first in byte order.
    pub fn name(&self) -> &[u8] {
        &self.held().ticket.name
    }

    /// All names, in byte order.
    pub fn names(&self) -> &[Bytes] {
        &self.held().names
    }

    /// Proves that a request comes from this holder, when using another protocol.
    pub fn secret(&self) -> &[u8] {
        &self.held().ticket.secret
    }

    /// How the previous holder ended; `None` if nothing is remembered.
    pub fn ending(&self) -> Option<&Ending> {
        self.held().endings.first()
    }

    /// How the previous holders ended, for each name of a lock with several.
    pub fn endings(&self) -> &[Ending] {
        &self.held().endings
    }

    /// Whether a holder died and no later one has recovered its work: see [`Guard::recovered`].
    pub fn needs_recovery(&self) -> bool {
        !self.held().needs_recovery.is_empty()
    }

    /// The deaths that nobody has recovered from, at most one per name: the first of each.
    pub fn deaths(&self) -> &[Ending] {
        &self.held().needs_recovery
    }

    /// The current health of the lease, by a clock that also runs while the machine sleeps: a
    /// process that was stopped learns here that its lock is lost, before it has received anything.
    pub fn health(&self) -> Health {
        self.state().health()
    }

    /// How long the lease is certain to last if no server answers from now on.
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Resolves when the lease is over or may be: stop the work that it protects. This happens
    /// before the server may serve the next holder.
    pub async fn lost(&self) -> EndReason {
        self.state().lost().await
    }

    /// Resolves when the holder is asked to release: finish, and release.
    ///
    /// A lock that has outlived its session is notified of requests from then on, but not of
    /// earlier ones.
    pub async fn asked_to_let_go(&self) -> Revocation {
        self.state().asked_to_let_go().await
    }

    /// The events of the lease.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
    /// # fn main() { with_server(async |servers| {
    /// # let client = Client::connect(&servers).await?;
    /// # let guard = client.lock("seat-12A").acquire().await?;
    /// # client.clone().close().await;
    /// use holdfast_client::GuardEvent;
    ///
    /// let mut events = guard.events();
    /// while let Some(news) = events.next().await {
    ///     match news {
    ///         GuardEvent::Jeopardy => println!("no server answers: begin nothing new"),
    ///         GuardEvent::Good => println!("all is well again"),
    ///         GuardEvent::Revocation(asked) => println!("asked to let go: {:?}", asked.reason),
    ///         GuardEvent::Lost(how) => println!("over, {how}: stop"),
    ///     }
    /// }
    /// # Ok(()) }) }
    /// ```
    pub fn events(&self) -> Events<'_> {
        Events::of(self.state())
    }

    /// Replaces the note on the lock; `None` removes it.
    pub async fn note(&self, note: Option<&[u8]>) -> Result<(), Error> {
        let note = note.map(Bytes::copy_from_slice);
        self.settled().await?;
        let own = Some(self.held().ticket.clone());
        self.ask(request::What::Note(proto::NoteRequest { own, note })).await.map(drop)
    }

    /// Reports that the work of dead holders has been recovered, on all names.
    pub async fn recovered(&self) -> Result<(), Error> {
        self.settled().await?;
        for name in &self.held().names {
            let own = TicketRef { name: name.clone(), ..self.held().ticket.clone() };
            self.ask(request::What::Recovered(own)).await?;
        }
        Ok(())
    }

    /// Turns a reader into the writer, with a new token: waits until the other readers are gone.
    ///
    /// It is refused if there are waiters ([`ErrorCode::UpgradeBlocked`]), and the guard stays a
    /// reader.
    ///
    /// If the future is dropped, the upgrade is withdrawn. If it was served before the server
    /// received that, the guard is a writer from then on: check [`Guard::is_shared`] and
    /// [`Guard::token`]. Until that is settled, the guard reports that it is shared, which is safe
    /// either way, and its other requests wait.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
    /// # fn main() { with_server(async |servers| {
    /// # let client = Client::connect(&servers).await?;
    /// let mut guard = client.lock("page").shared().acquire().await?;
    /// let read_with = guard.token();
    /// guard.upgrade(Some(Duration::from_secs(5))).await?;
    /// assert!(guard.token() > read_with);
    /// guard.downgrade().await?;
    /// assert!(guard.is_shared());
    /// # Ok(()) }) }
    /// ```
    pub async fn upgrade(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        let changing = self.begin_change().await?;
        let wait_ms = Some(wait.map_or(FOREVER, millis));
        let own = Some(self.held.ticket.clone());
        let upgrade = proto::Upgrade { own, wait_ms, claims: Vec::new() };
        // Its ticket replaces the reader's, which already has room.
        let room = self.client.room_for_request()?;
        let (upgrade, change) = (request::What::Upgrade(upgrade), self.held.mode_change());
        let asked = self.client.ask_for_change(upgrade, room, change, changing).await;
        match asked.map_err(Error::of_holder)? {
            Answer::Upgraded => {
                self.follow();
                Ok(())
            }
            Answer::Held(_) | Answer::Reply(_) => Err(Error::SessionLost),
        }
    }

    /// Turns a writer into a reader, with the same token: readers in line are served alongside it.
    ///
    /// The guard reports that it is shared as soon as this is called, because others may be served
    /// at any moment. If the future is dropped, the lock is downgraded nevertheless.
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        let changing = self.begin_change().await?;
        let room = self.client.room_for_request()?;
        let change = self.held.mode_change();
        if change.before == proto::Mode::Exclusive {
            self.held.set_mode(proto::Mode::Shared);
        }
        let downgrade = request::What::Downgrade(self.held.ticket.clone());
        let asked = self.client.ask_for_change(downgrade, room, change, changing).await;
        asked.map(drop).map_err(Error::of_holder)
    }

    /// Waits until no earlier mode change is in flight: only then is it certain which ticket is
    /// held. The future of such an upgrade or downgrade may have been dropped.
    async fn settled(&self) -> Result<(), Error> {
        timeout(self.client.timeout(), self.state().gate.settled()).await.map_err(|_| {
            let why = "an earlier upgrade or downgrade of this lock is not settled yet";
            Error::Unreachable(why.to_owned())
        })
    }

    /// Replaces the ticket with its successor, if an upgrade was served.
    fn follow(&mut self) {
        if let Some(successor) = self.held.successor() {
            self.held = successor;
        }
    }

    async fn begin_change(&mut self) -> Result<Changing, Error> {
        loop {
            self.settled().await?;
            self.follow();
            if self.state().gate.begin(|| self.check_sole())? {
                return Ok(Changing(self.state().clone()));
            }
        }
    }

    fn check_sole(&self) -> Result<(), Error> {
        if Arc::strong_count(&self.held) == 1 {
            return Ok(());
        }
        Err(reentered("release the inner guards first"))
    }

    async fn ask(&self, what: request::What) -> Result<Answer, Error> {
        let room = self.client.room_for_request()?;
        self.client.ask(what, room).await.map_err(Error::of_holder)
    }

    /// Releases the lock, with a definite answer: it was released, or it was over before and how
    /// ([`Error::Over`]). If a re-entrant lock has several guards, the last one releases it.
    pub async fn release(mut self) -> Result<(), Error> {
        self.settled().await?;
        self.follow();
        let Self { held, client } = self;
        // A re-entrant acquire that only inspects the ticket does not count as a guard.
        let state = held.state.clone();
        let last = state.gate.look_alone(|| Arc::into_inner(held));
        let Some(held) = last else { return Ok(()) };
        let (guard, ticket, over_as_writer) =
            (held.guard, held.ticket.clone(), held.over_as_writer());
        let Some(room) = held.take_over() else { return Ok(()) };
        let released = client.release(guard, ticket, room).await;
        match (released, over_as_writer) {
            // The server ended the reader's ticket in favour of the writer's.
            (Ok(_), Some(how)) => Err(Error::Over(how)),
            (released, _) => released.map(drop).map_err(Error::of_holder),
        }
    }

    /// Gives up the guard of a lock with a lease of its own ([`Lock::ttl`](crate::Lock::ttl))
    /// without releasing the lock, and returns what is needed to use it elsewhere, for example in
    /// another process. The lock is no longer renewed, and ends with its lease unless it is renewed
    /// or released there.
    ///
    /// Like other requests, it waits until an earlier upgrade or downgrade is settled: only then is
    /// it known which ticket is held. On an error the guard is returned: if that takes too long, if
    /// the lock is lost ([`Error::Over`]), if it depends on the session ([`ErrorCode::BadRequest`])
    /// or if it has other guards ([`ErrorCode::Reentered`]). If the future is dropped, so is the
    /// guard, and the lock is released.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
    /// # fn main() { with_server(async |servers| {
    /// # let client = Client::connect(&servers).await?;
    /// let guard = client.lock("seat-12A").ttl(Duration::from_secs(60)).acquire().await?;
    /// let detached = guard.detach().await.map_err(|(_guard, error)| error)?;
    /// let again = client.lock("seat-12A").try_acquire().await?;
    /// assert!(again.is_none(), "still held, by token {}", detached.token);
    /// # Ok(()) }) }
    /// ```
    pub async fn detach(mut self) -> Result<Detached, (Self, Error)> {
        if let Err(error) = self.settled().await {
            return Err((self, error));
        }
        self.follow();
        if !self.held.has_own_lease {
            let message = "this lock is kept alive by its session, and would end with it";
            let error = Error::local(ErrorCode::BadRequest, message, "acquire it with a `ttl`");
            return Err((self, error));
        }
        if let Some(how) = self.held.over_as_writer() {
            return Err((self, Error::Over(how)));
        }
        if let Health::Lost(how) = self.health() {
            return Err((self, Error::Over(how)));
        }
        let Self { held, client } = self;
        let state = held.state.clone();
        match state.gate.look_alone(|| Arc::try_unwrap(held)) {
            Ok(held) => {
                let ticket = held.ticket.clone();
                client.detach(held.guard, ticket.clone());
                drop(held.take_over());
                let TicketRef { name, token, secret } = ticket;
                Ok(Detached { name, token: Token::new(token), secret })
            }
            Err(held) => Err((Self { held, client }, reentered("release the other guards first"))),
        }
    }
}

fn reentered(hint: &str) -> Error {
    let message = "this lock was taken again by this client, and other guards depend on it";
    Error::local(ErrorCode::Reentered, message, hint)
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held().fmt(f)
    }
}
