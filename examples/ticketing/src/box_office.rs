//! The box office: reserves and books. It brings the ticket's row, its lock and the payment together.
//!
//! Reserve: read the row, take the lock, see that the lock service is still the one of this shop, write the
//! row behind the fence. `booking.rs` books.
//!
//! The lock decides who may try, and the fence decides who is written: an instance that was stopped
//! between the two finds that the row's number, or the highest token, is no longer its own. Every write
//! also requires that the locks are still those of the shop (`line.rs`).

use crate::domain::{Refusal, Reservation, State, Ticket, TicketId};
use crate::line::Line;
use crate::payment::PaymentService;
use crate::seat_locks::{LockError, SeatLocks, TakenSeat};
use crate::settings::LockType;
use crate::store::{NewReservation, Store, StoreError, Written};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// How often an instance that keeps a lock itself looks whether another one has booked the seat.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// More would only make each other time out at a lock service that is busy.
pub(crate) const TURNS: usize = 32;

/// How long a request waits for its turn: if the lock service hangs, everybody is told soon.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to try for a seat that nobody has, and how long to wait in between, at least.
const TAKES_MAX: u32 = 3;
const TAKE_AGAIN: Duration = Duration::from_millis(30);

/// Why a request was not served.
#[derive(Debug, Clone)]
pub(crate) enum NotServed {
    /// The client is told why.
    Refused(Refusal),
    /// The database or the lock service is down.
    Unavailable(String),
}

impl fmt::Display for NotServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unavailable(why) => f.write_str(why),
        }
    }
}

impl From<Refusal> for NotServed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for NotServed {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<LockError> for NotServed {
    fn from(error: LockError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// A reservation that the client now has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) token: Option<u64>,
    /// By the database's clock; `None` if it never ends.
    pub(crate) until_ms: Option<i64>,
}

/// A sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) token: Option<u64>,
}

pub(crate) struct BoxOffice {
    pub(crate) store: Arc<Store>,
    pub(crate) lock_type: LockType,
    /// `None` for the controls.
    pub(crate) seats: Option<Arc<SeatLocks>>,
    pub(crate) payments: PaymentService,
    pub(crate) reserve_seconds: u64,
    /// Requests that may ask for a lock at the same time; the others wait for their turn.
    pub(crate) turns: Semaphore,
    /// Which locks the database must have for a write of this instance.
    pub(crate) line: Arc<Line>,
    /// What this instance calls itself.
    pub(crate) instance: String,
}

impl BoxOffice {
    /// Why nothing can be reserved or booked here at the moment; `None` if it can.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.line.trouble()
    }

    pub(crate) fn line(&self) -> Result<String, NotServed> {
        self.line.id().map_err(|why| {
            self.line.doubt();
            NotServed::Unavailable(why)
        })
    }

    /// Another line is in the database than this instance wrote for.
    pub(crate) fn other_line(&self) -> NotServed {
        self.line.doubt();
        let why = "the locks of this shop have changed, and this instance is checking its own";
        NotServed::Unavailable(why.to_owned())
    }

    /// The lock service may have lost its data since the last look.
    fn in_doubt(&self) -> NotServed {
        self.line.doubt();
        let why = "this instance is checking whether its lock service has lost its data";
        NotServed::Unavailable(why.to_owned())
    }

    pub(crate) async fn ticket(&self, id: TicketId) -> Result<Ticket, NotServed> {
        let ticket = self.store.ticket(id).await?;
        ticket.ok_or_else(|| Refusal::UnknownTicket(id.to_string()).into())
    }

    pub(crate) async fn reserve(&self, id: TicketId, client: &str) -> Result<Reserved, NotServed> {
        let found = self.store.ticket_now(id).await?;
        let (ticket, now_ms) = found.ok_or_else(|| Refusal::UnknownTicket(id.to_string()))?;
        ticket.may_be_reserved(client)?;
        if let State::Reserved(reservation) = &ticket.state
            && reservation.client != client
            && reservation.lease.is_some()
            && reservation.is_certain(now_ms, self.reserve_seconds)
        {
            // A lease outlives every instance, so its row is enough to refuse: a crowd that wants the
            // same seat does not reach the lock service.
            let by = Some(reservation.client.clone());
            return Err(Refusal::Reserved { ticket: id, by }.into());
        }
        let line = self.line()?;
        match (&self.seats, self.lock_type) {
            (Some(seats), _) => self.reserve_with_lock(&line, seats, &ticket, client).await,
            (None, LockType::RowLock) => self.reserve_with_mark(&line, &ticket, client).await,
            // Without a lock there is nothing to take.
            (None, _) => Ok(Reserved { token: None, until_ms: None }),
        }
    }

    async fn reserve_with_lock(
        &self,
        line: &str,
        seats: &Arc<SeatLocks>,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Reserved, NotServed> {
        let id = ticket.id;
        // A request that is repeated, because its answer was lost, has one effect.
        if let Some(reserved) = self.reserved_already(seats, ticket, client).await? {
            return Ok(reserved);
        }
        let seat = match self.take(seats, ticket, client).await? {
            Ok(seat) => seat,
            Err(now) => {
                if let Some(reserved) = self.reserved_already(seats, &now, client).await? {
                    return Ok(reserved);
                }
                return Err(Refusal::Reserved { ticket: id, by: now.other_client(client) }.into());
            }
        };
        // A service that has lost its data gives everybody the lock, and the reservation would be ended as
        // soon as that is noticed.
        let certain = seats.is_certain(line).await;
        if !matches!(certain, Ok(true)) {
            seats.give_back(seat).await;
            certain?;
            return Err(self.in_doubt());
        }
        let before = match &ticket.state {
            State::Reserved(reservation) => {
                Some(format!("ended without a sale, {}", reservation.client))
            }
            State::Available | State::Booked { .. } => ticket.last_ending.clone(),
        };
        let ending = seat.ending.clone().or(before);
        let new = NewReservation {
            client,
            token: seat.token,
            lease: seat.lease.as_deref(),
            hold: Some(&seat.hold),
            seconds: Some(self.reserve_seconds),
            instance: &self.instance,
            last_ending: ending.as_deref(),
        };
        let written = self.store.reserve(line, id, ticket.number, &new).await;
        if !matches!(written, Ok(Written::Done)) {
            seats.give_back(seat).await;
            return Err(self.not_reserved(written?, ticket, client).await);
        }
        let (token, number) = (seat.token, ticket.number + 1);
        if let Some(kept) = seat.keep() {
            self.keep_here(id, number, kept);
        }
        let until_ms = match self.ticket(id).await?.state {
            State::Reserved(reservation) if reservation.number == number => reservation.until_ms,
            _ => None,
        };
        Ok(Reserved { token, until_ms })
    }

    /// Takes the lock of a seat, or says what has become of the ticket. Two that try at the same moment may
    /// both be refused, by an engine that can't tell who was first: as long as nobody has the seat, both
    /// try again.
    async fn take(
        &self,
        seats: &SeatLocks,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Result<TakenSeat, Ticket>, NotServed> {
        for tries_left in (0..TAKES_MAX).rev() {
            let taken = {
                let turn = timeout(TURN_TIMEOUT, self.turns.acquire()).await;
                let _turn = turn.map_err(|_| {
                    NotServed::Unavailable("too many requests wait for the lock service".to_owned())
                })?;
                seats.take(ticket, client).await?
            };
            if let Some(seat) = taken {
                return Ok(Ok(seat));
            }
            let found = self.store.ticket_now(ticket.id).await?;
            let (now, now_ms) =
                found.ok_or_else(|| Refusal::UnknownTicket(ticket.id.to_string()))?;
            now.may_be_reserved(client)?;
            if tries_left == 0 || now.number != ticket.number || !now.is_available(now_ms) {
                return Ok(Err(now));
            }
            sleep(TAKE_AGAIN.mul_f64(1.0 + crate::random_share())).await;
        }
        Ok(Err(ticket.clone()))
    }

    /// Why the reservation of a client that had the lock was not written.
    async fn not_reserved(&self, written: Written, before: &Ticket, client: &str) -> NotServed {
        let now = match self.ticket(before.id).await {
            Ok(now) => now,
            Err(error) => return error,
        };
        if let Err(refusal) = now.may_be_reserved(client) {
            return refusal.into();
        }
        match written {
            Written::OtherLine => self.other_line(),
            // Nobody has reserved it in between, and still its number is lower than an earlier one's.
            Written::Fenced(why) if now.number == before.number => {
                self.line.doubt();
                NotServed::Unavailable(format!(
                    "the lock service counts from the beginning again ({why}): it has lost its data, or is \
                     another one. The shop adapts within half a minute; if this goes on, restart all instances \
                     with the same LOCK_URL"
                ))
            }
            Written::Fenced(_) | Written::Unmatched | Written::Done => {
                Refusal::Reserved { ticket: now.id, by: now.other_client(client) }.into()
            }
        }
    }

    /// The reservation that the client has, if its lock lives.
    async fn reserved_already(
        &self,
        seats: &SeatLocks,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Option<Reserved>, NotServed> {
        match &ticket.state {
            State::Reserved(reservation) if reservation.client == client => {
                let Reservation { token, until_ms, .. } = *reservation;
                let lives = seats.lives(ticket, reservation).await?;
                Ok(lives.then_some(Reserved { token, until_ms }))
            }
            _ => Ok(None),
        }
    }

    /// Keeps a lock that can't be detached until its time is over or its seat is sold.
    fn keep_here(&self, id: TicketId, number: i64, kept: crate::seat_locks::KeptSeat) {
        let store = self.store.clone();
        let over = Instant::now() + Duration::from_secs(self.reserve_seconds);
        tokio::spawn(async move {
            while Instant::now() < over {
                sleep(LOOK_EVERY).await;
                let ticket = store.ticket(id).await;
                let is_mine = |ticket: &Ticket| matches!(&ticket.state, State::Reserved(reservation) if reservation.number == number);
                if ticket.is_ok_and(|ticket| !ticket.is_some_and(|ticket| is_mine(&ticket))) {
                    break;
                }
            }
            kept.release().await;
        });
    }

    /// The control: a mark that only a sale removes.
    async fn reserve_with_mark(
        &self,
        line: &str,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Reserved, NotServed> {
        let id = ticket.id;
        let done = Reserved { token: None, until_ms: None };
        if let State::Reserved(reservation) = &ticket.state {
            let by = reservation.client.clone();
            return if by == client {
                Ok(done)
            } else {
                Err(Refusal::Reserved { ticket: id, by: Some(by) }.into())
            };
        }
        let new = NewReservation {
            client,
            token: None,
            lease: None,
            hold: None,
            seconds: None,
            instance: &self.instance,
            last_ending: None,
        };
        match self.store.reserve(line, id, ticket.number, &new).await? {
            Written::Done => Ok(done),
            Written::OtherLine => Err(self.other_line()),
            Written::Unmatched | Written::Fenced(_) => {
                Err(Refusal::Reserved { ticket: id, by: None }.into())
            }
        }
    }
}
