//! The box office: reserves and books. It brings the ticket's row, its lock and the payment together.
//!
//! Reserve: read the row, take the lock, write the row behind the fence. Book: see that the lock lives,
//! authorise the payment, write the row behind the fence, capture the payment, release the lock.
//!
//! The lock decides who may try, and the fence decides who is written: an instance that was stopped
//! between the two finds that the row's number, or the highest token, is no longer its own.

use crate::domain::{Refusal, Reservation, State, Ticket, TicketId};
use crate::payment::PaymentService;
use crate::seat_locks::{LockError, SeatLocks};
use crate::settings::LockType;
use crate::store::{NewReservation, Store, StoreError, Written};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// How often an instance that keeps a lock itself looks whether another one has booked the seat.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// More would only make each other time out at a lock service that is busy.
pub(crate) const TURNS: usize = 32;

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
    /// What this instance calls itself.
    pub(crate) instance: String,
}

impl BoxOffice {
    async fn ticket(&self, id: TicketId) -> Result<Ticket, NotServed> {
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
            && !reservation.is_over(now_ms)
        {
            // A lease outlives every instance, so its row is enough to refuse: a crowd that wants the
            // same seat does not reach the lock service.
            let by = Some(reservation.client.clone());
            return Err(Refusal::Reserved { ticket: id, by }.into());
        }
        match (&self.seats, self.lock_type) {
            (Some(seats), _) => self.reserve_with_lock(seats, &ticket, client).await,
            (None, LockType::RowLock) => self.reserve_with_mark(&ticket, client).await,
            // Without a lock there is nothing to take.
            (None, _) => Ok(Reserved { token: None, until_ms: None }),
        }
    }

    async fn reserve_with_lock(
        &self,
        seats: &Arc<SeatLocks>,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Reserved, NotServed> {
        let id = ticket.id;
        // A request that is repeated, because its answer was lost, has one effect.
        if let Some(reserved) = self.reserved_already(seats, ticket, client).await? {
            return Ok(reserved);
        }
        let taken = {
            let _turn = self.turns.acquire().await;
            seats.take(id, client).await?
        };
        let Some(seat) = taken else {
            let now = self.ticket(id).await?;
            now.may_be_reserved(client)?;
            if let Some(reserved) = self.reserved_already(seats, &now, client).await? {
                return Ok(reserved);
            }
            let by = match now.state {
                State::Reserved(reservation) if reservation.client != client => {
                    Some(reservation.client)
                }
                _ => None,
            };
            return Err(Refusal::Reserved { ticket: id, by }.into());
        };
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
            seconds: Some(self.reserve_seconds),
            instance: &self.instance,
            last_ending: ending.as_deref(),
        };
        let written = self.store.reserve(id, ticket.number, &new).await;
        if !matches!(written, Ok(Written::Done)) {
            seats.give_back(seat).await;
        } else {
            let (token, number) = (seat.token, ticket.number + 1);
            if let Some(kept) = seat.keep() {
                self.keep_here(id, number, kept);
            }
            let until_ms = match self.ticket(id).await?.state {
                State::Reserved(reservation) if reservation.number == number => {
                    reservation.until_ms
                }
                _ => None,
            };
            return Ok(Reserved { token, until_ms });
        }
        match written? {
            // Another client was in between; or has it all, by now.
            Written::Unmatched | Written::Done => {
                self.ticket(id).await?.may_be_reserved(client)?;
                Err(Refusal::Reserved { ticket: id, by: None }.into())
            }
            Written::Fenced(why) => Err(Refusal::Fenced { ticket: id, why }.into()),
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
                let lives = seats.lives(ticket.id, reservation).await?;
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
            seconds: None,
            instance: &self.instance,
            last_ending: None,
        };
        match self.store.reserve(id, ticket.number, &new).await? {
            Written::Done => Ok(done),
            Written::Unmatched | Written::Fenced(_) => {
                Err(Refusal::Reserved { ticket: id, by: None }.into())
            }
        }
    }

    pub(crate) async fn book(&self, id: TicketId, client: &str) -> Result<Booked, NotServed> {
        let ticket = self.ticket(id).await?;
        if self.lock_type == LockType::None {
            return self.book_without_lock(&ticket, client).await;
        }
        let reservation = ticket.reserved_by(client)?;
        self.must_live(id, reservation).await?;
        let payment = self.payments.authorise(id, client, reservation.number).await?;
        let payment = payment.ok_or(Refusal::PaymentDeclined(id))?;
        // Paying may have taken longer than the reservation lasted: from here on the fence decides.
        let written = self.store.book(id, reservation, &payment.key, &self.instance).await;
        match written {
            Ok(Written::Done) => {
                self.payments.capture(&payment).await;
                self.release_later(reservation);
                Ok(Booked { token: reservation.token })
            }
            Ok(Written::Unmatched) => {
                self.payments.void(&payment).await;
                // Sold to the same client by another request, or taken over.
                self.ticket(id).await?.may_be_reserved(client)?;
                let why = "a later reservation has raised the ticket's number".to_owned();
                Err(Refusal::Fenced { ticket: id, why }.into())
            }
            Ok(Written::Fenced(why)) => {
                self.payments.void(&payment).await;
                Err(Refusal::Fenced { ticket: id, why }.into())
            }
            Err(error @ StoreError::Unavailable(_)) => {
                self.payments.void(&payment).await;
                Err(error.into())
            }
            // The sale may be there: `settle_payments` sees.
            Err(error @ StoreError::Unknown(_)) => Err(error.into()),
        }
    }

    /// The control: what it read may be out of date when it writes.
    async fn book_without_lock(&self, ticket: &Ticket, client: &str) -> Result<Booked, NotServed> {
        ticket.may_be_reserved(client)?;
        let payment = self.payments.authorise(ticket.id, client, ticket.number).await?;
        let payment = payment.ok_or(Refusal::PaymentDeclined(ticket.id))?;
        self.store.book_unchecked(ticket.id, client, &payment.key, &self.instance).await?;
        self.payments.capture(&payment).await;
        Ok(Booked { token: None })
    }

    async fn must_live(&self, id: TicketId, reservation: &Reservation) -> Result<(), NotServed> {
        let Some(seats) = &self.seats else { return Ok(()) };
        if seats.lives(id, reservation).await? { Ok(()) } else { Err(Refusal::Expired(id).into()) }
    }

    /// The client does not wait for the release: the seat is sold.
    fn release_later(&self, reservation: &Reservation) {
        if let (Some(seats), Some(lease)) = (self.seats.clone(), reservation.lease.clone()) {
            tokio::spawn(async move { seats.release(&lease).await });
        }
    }
}
