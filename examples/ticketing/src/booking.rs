//! Books a reserved ticket: sees that its lock lives, has the payment authorised, writes the sale behind
//! the fence, captures the payment, releases the lock.
//!
//! Clients ask twice: after a lost answer, or with a double click. So **one booking of a reservation is
//! under way at a time**, on all instances together. It has a random key in the ticket's row, renews it
//! while it pays, and its sale requires it. A second booking waits for the first one. A booking whose
//! instance has died or was stopped is replaced after a moment, and can't sell any more if it goes on.
//!
//! **A refusal says that nothing was charged, and that stays true.** Before it is told, the reservation is
//! ended in the database, or the booking given up, on the condition that the row still has the key: from
//! then on nothing that is under way anywhere can make the refusal untrue. If the row is no longer as it
//! was, the answer is what the row says; and if that is still open, it is a 503.

use crate::box_office::{Booked, BoxOffice, NotServed};
use crate::domain::{Refusal, Reservation, State, Ticket, TicketId};
use crate::settings::LockType;
use crate::store::{StoreError, Written};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// How long a booking waits for another one of the same client.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it looks whether that one has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often a booking shows that it is under way: it is replaced after 1.5s of silence.
const RENEW_EVERY: Duration = Duration::from_millis(400);

/// A booking that no other one can overtake, as long as its key is in the ticket's row.
struct Booking {
    line: String,
    ticket: Ticket,
    reservation: Reservation,
    key: String,
    /// Ends the renewal when it is dropped.
    _renewal: oneshot::Sender<()>,
}

impl BoxOffice {
    pub(crate) async fn book(&self, id: TicketId, client: &str) -> Result<Booked, NotServed> {
        if self.lock_type == LockType::None {
            return self.book_without_lock(&self.ticket(id).await?, client).await;
        }
        let booking = self.start(id, client).await?;
        match self.pay_and_sell(&booking).await {
            Ok(booked) => Ok(booked),
            Err(NotServed::Refused(why)) => Err(self.refuse(&booking, why).await),
            Err(unavailable) => {
                // The client does not wait for a database that is down.
                let (store, key) = (self.store.clone(), booking.key);
                tokio::spawn(async move { store.leave_booking(id, &key).await });
                Err(unavailable)
            }
        }
    }

    /// Waits for an earlier booking of the same client to end, and starts this one.
    async fn start(&self, id: TicketId, client: &str) -> Result<Booking, NotServed> {
        let (line, key) = (self.line()?, crate::random_hex());
        let give_up = Instant::now() + WAIT_TIMEOUT;
        loop {
            let ticket = self.ticket(id).await?;
            let reservation = ticket.reserved_by(client)?;
            if !reservation.is_being_booked {
                match self.store.start_booking(&line, id, reservation.number, &key).await? {
                    Written::Done => {
                        let reservation = reservation.clone();
                        let _renewal = self.keep_renewing(id, key.clone());
                        return Ok(Booking { line, ticket, reservation, key, _renewal });
                    }
                    Written::OtherLine => return Err(self.other_line()),
                    // Somebody was faster.
                    Written::Unmatched | Written::Fenced(_) => {}
                }
            }
            if Instant::now() >= give_up {
                return Err(unsure(id));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn keep_renewing(&self, id: TicketId, key: String) -> oneshot::Sender<()> {
        let (renewal, mut ended) = oneshot::channel();
        let store = self.store.clone();
        tokio::spawn(async move {
            while timeout(RENEW_EVERY, &mut ended).await.is_err() {
                if matches!(store.renew_booking(id, &key).await, Ok(Written::Unmatched)) {
                    break;
                }
            }
        });
        renewal
    }

    async fn pay_and_sell(&self, booking: &Booking) -> Result<Booked, NotServed> {
        let Booking { line, ticket, reservation, key, .. } = booking;
        let id = ticket.id;
        self.must_live(ticket, reservation).await?;
        let payment = self.payments.authorise(id, &reservation.client, reservation.number).await?;
        let payment = payment.ok_or(Refusal::PaymentDeclined(id))?;
        // Paying may have taken longer than the reservation lasted.
        if let Err(over) = self.must_live(ticket, reservation).await {
            self.payments.void(&payment).await;
            return Err(over);
        }
        // And the instance may have been stopped since: from here on the fence decides.
        let written = self.store.book(line, id, reservation, key, &payment.key, &self.instance);
        let refused = match written.await {
            Ok(Written::Done) => {
                self.payments.capture(&payment).await;
                self.release_later(reservation);
                return Ok(Booked { token: reservation.token });
            }
            // The sale may be there: `settle_payments` sees.
            Err(error @ StoreError::Unknown(_)) => return Err(error.into()),
            Err(error @ StoreError::Unavailable(_)) => error.into(),
            Ok(Written::OtherLine) => self.other_line(),
            Ok(Written::Fenced(why)) => Refusal::Fenced { ticket: id, why }.into(),
            Ok(Written::Unmatched) => Refusal::Expired(id).into(),
        };
        self.payments.void(&payment).await;
        Err(refused)
    }

    /// Gives the booking up for this reason, or says what has become of the ticket in the meantime.
    async fn refuse(&self, booking: &Booking, why: Refusal) -> NotServed {
        let Booking { line, ticket, reservation, key, .. } = booking;
        let lives_on = matches!(why, Refusal::PaymentDeclined(_));
        let given_up = if lives_on {
            self.store.leave_booking(ticket.id, key).await
        } else {
            self.store.end_reservation(line, ticket.id, key).await
        };
        match given_up {
            Ok(Written::Done) => {
                if !lives_on {
                    self.release_later(reservation);
                }
                why.into()
            }
            Ok(Written::OtherLine) => self.other_line(),
            Ok(Written::Unmatched | Written::Fenced(_)) => self.replaced(booking).await,
            Err(error) => error.into(),
        }
    }

    /// What has become of a ticket whose row no longer has the key of the booking. If it is another booking
    /// of the same client that goes on, waits for it.
    async fn replaced(&self, booking: &Booking) -> NotServed {
        let Booking { ticket: Ticket { id, .. }, reservation, .. } = booking;
        let give_up = Instant::now() + WAIT_TIMEOUT;
        loop {
            let now = match self.ticket(*id).await {
                Ok(now) => now,
                Err(error) => return error,
            };
            match &now.state {
                State::Reserved(own) if own.client == reservation.client => {
                    if !own.is_being_booked || Instant::now() >= give_up {
                        return unsure(*id);
                    }
                }
                _ => return now.not_sold(reservation).into(),
            }
            sleep(LOOK_EVERY).await;
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

    async fn must_live(&self, ticket: &Ticket, reservation: &Reservation) -> Result<(), NotServed> {
        let Some(seats) = &self.seats else { return Ok(()) };
        if seats.lives(ticket, reservation).await? {
            return Ok(());
        }
        Err(Refusal::Expired(ticket.id).into())
    }

    /// The client does not wait for the release: the seat is sold, or its reservation over.
    fn release_later(&self, reservation: &Reservation) {
        if let (Some(seats), Some(lease)) = (self.seats.clone(), reservation.lease.clone()) {
            tokio::spawn(async move { seats.release(&lease).await });
        }
    }
}

/// Another booking of the same client may still sell the ticket.
fn unsure(id: TicketId) -> NotServed {
    NotServed::Unavailable(format!(
        "another booking of ticket {id} by the same client is under way or was interrupted, and may have \
         been charged: ask again to learn how it ended"
    ))
}
