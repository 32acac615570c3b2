//! One visit to the bakery: choose a number, then wait to be served or leave.

use super::hold::BakeryHold;
use super::tables::{CHOOSING_TTL, Customer, Tables, time_after};
use super::ticket::{Ticket, must_wait, next_number};
use crate::clock::{Moment, safe_part};
use crate::driver::{Acquired, Held, Request, label_of};
use crate::drivers::cassandra::{jittered, over_by};
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The average pause between two reads: Cassandra can't send notifications.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// The pause before a write that got no reply is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A number is renewed this many times per TTL while its owner waits.
const HEARTBEATS_PER_TTL: u32 = 3;

/// A write to one of our rows.
#[derive(Debug, Clone, Copy)]
enum Write {
    Flag(bool),
    Number(Ticket),
}

/// Why a visit ended before it was served.
enum LeaveReason {
    /// The wait was over; the holder's client id, if there is one.
    GivenUp(Option<String>),
    /// One of our rows may have expired: others may have overtaken us.
    TooSlow,
    Failed(Error),
}

impl From<Failure> for LeaveReason {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.into_error())
    }
}

pub(super) async fn acquire(tables: &Arc<Tables>, request: &Request) -> Result<Acquired, Error> {
    let mut unreachable_since = None;
    loop {
        let mut visit = Visit::begin(tables, request)?;
        let left = match visit.served().await {
            Ok(held) => return Ok(Acquired::Held(held)),
            Err(left) => left,
        };
        let gone = visit.leave().await;
        match left {
            LeaveReason::GivenUp(holder) => {
                gone?;
                return Ok(Acquired::Busy { holder: holder.as_deref().map(label_of) });
            }
            LeaveReason::TooSlow if request.is_given_up() => {
                gone?;
                return Ok(Acquired::Busy { holder: None });
            }
            LeaveReason::TooSlow => {}
            LeaveReason::Failed(Error::Unreachable(why)) => {
                let since = *unreachable_since.get_or_insert_with(Moment::now);
                if request.is_given_up() || since.plus(tables.timeout()).has_passed() {
                    gone?;
                    return Err(Error::Unreachable(why));
                }
            }
            LeaveReason::Failed(error) => {
                gone?;
                return Err(error);
            }
        }
        request.pause(jittered(POLL_EVERY), pending()).await;
    }
}

/// One attempt, with its own id.
struct Visit<'a> {
    tables: &'a Arc<Tables>,
    request: &'a Request,
    id: i64,
    client_id: String,
    /// The timestamp of the last write; 0 if nothing was written.
    last_us: i64,
}

impl<'a> Visit<'a> {
    fn begin(tables: &'a Arc<Tables>, request: &'a Request) -> Result<Self, Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Unreachable(format!("no random numbers: {error}")))?;
        let id = i64::from_le_bytes(bytes) & i64::MAX;
        Ok(Self { tables, request, id, client_id: request.owner(), last_us: 0 })
    }

    async fn served(&mut self) -> Result<Held, LeaveReason> {
        self.wait_for_choosers().await?;
        let ticket = self.choose().await?;
        let choosers = self.choosers().await?;
        self.wait_for_lower(ticket, choosers).await
    }

    /// Waits while anyone is choosing. A try does not even begin if there is a number already.
    async fn wait_for_choosers(&self) -> Result<(), LeaveReason> {
        let first = self.customers().await?;
        if self.request.is_given_up() && !first.is_empty() {
            return Err(LeaveReason::GivenUp(holder(&first)));
        }
        while !self.choosers().await?.is_empty() {
            self.pause(&[]).await?;
        }
        Ok(())
    }

    /// Draws a number while our flag is set for the others to see.
    async fn choose(&mut self) -> Result<(Ticket, Moment), LeaveReason> {
        let (tables, name, id) = (self.tables, self.request.name.as_str(), self.id);
        let flag_sent = Moment::now();
        self.write(Write::Flag(true)).await?;
        if !tables.choosers(name).await?.contains(&id) {
            return Err(LeaveReason::TooSlow);
        }
        let numbers = self.customers().await?;
        let number = next_number(numbers.iter().map(|customer| customer.ticket.number));
        let ticket = Ticket { number, id };
        let number_sent = self.set_number(ticket).await?;
        // The flag must not have expired before the number was visible to everyone.
        if self.own(&self.customers().await?).is_none_or(|own| own.ticket != ticket)
            || flag_sent.plus(safe_part(CHOOSING_TTL)).has_passed()
        {
            return Err(LeaveReason::TooSlow);
        }
        self.write(Write::Flag(false)).await?;
        if tables.choosers(name).await?.contains(&id) {
            return Err(LeaveReason::TooSlow);
        }
        Ok((ticket, number_sent))
    }

    /// Waits for each of these choosers, then for each lower number, renewing our own number.
    async fn wait_for_lower(
        &mut self,
        (ticket, mut sent): (Ticket, Moment),
        mut choosers: Vec<i64>,
    ) -> Result<Held, LeaveReason> {
        let ttl = self.request.ttl;
        loop {
            if !choosers.is_empty() {
                let still = self.choosers().await?;
                choosers.retain(|chooser| still.contains(chooser));
            }
            let customers = self.customers().await?;
            if self.own(&customers).is_none() || sent.plus(safe_part(ttl)).has_passed() {
                return Err(LeaveReason::TooSlow);
            }
            let served = !customers.iter().any(|other| must_wait(ticket, other.ticket));
            if choosers.is_empty() && served {
                return Ok(self.held(sent));
            }
            self.pause(&customers).await?;
            if sent.plus(ttl / HEARTBEATS_PER_TTL).has_passed() {
                let valid_until = sent.plus(safe_part(ttl));
                sent = self.set_number(ticket).await?;
                // The number had expired, others have passed us, and this write has brought it
                // back.
                if valid_until.has_passed() {
                    return Err(LeaveReason::TooSlow);
                }
            }
        }
    }

    fn held(&self, sent: Moment) -> Held {
        let (name, ttl) = (self.request.name.clone(), self.request.ttl);
        let hold = Arc::new(BakeryHold::new(self.tables.clone(), name, self.id));
        let validity = crate::drivers::cassandra::validity(sent, ttl);
        Held { hold, token: None, ending: None, validity }
    }

    /// Writes the number and returns when the write was sent.
    async fn set_number(&mut self, ticket: Ticket) -> Result<Moment, LeaveReason> {
        let sent = Moment::now();
        self.write(Write::Number(ticket)).await?;
        Ok(sent)
    }

    /// Retries a write, each time with a later timestamp, until it is acknowledged.
    async fn write(&mut self, write: Write) -> Result<(), LeaveReason> {
        let (tables, name, ttl) = (self.tables, self.request.name.as_str(), self.request.ttl);
        let give_up = Moment::now().plus(tables.timeout());
        loop {
            self.last_us = time_after(self.last_us);
            let written = match write {
                Write::Flag(choosing) => {
                    tables.set_flag(name, self.id, choosing, self.last_us).await
                }
                Write::Number(ticket) => {
                    tables.set_number(name, ticket, &self.client_id, ttl, self.last_us).await
                }
            };
            match written.map_err(Failure::into_error) {
                Ok(()) => return Ok(()),
                Err(Error::Unreachable(_))
                    if !give_up.has_passed() && !self.request.is_given_up() =>
                {
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(LeaveReason::Failed(error)),
            }
        }
    }

    async fn customers(&self) -> Result<Vec<Customer>, LeaveReason> {
        Ok(self.tables.customers(&self.request.name).await?)
    }

    /// Everyone else who is choosing.
    async fn choosers(&self) -> Result<Vec<i64>, LeaveReason> {
        let mut choosers = self.tables.choosers(&self.request.name).await?;
        choosers.retain(|id| *id != self.id);
        Ok(choosers)
    }

    fn own<'c>(&self, customers: &'c [Customer]) -> Option<&'c Customer> {
        let own = customers.iter().find(|customer| customer.ticket.id == self.id);
        own.filter(|own| own.client_id == self.client_id)
    }

    async fn pause(&self, customers: &[Customer]) -> Result<(), LeaveReason> {
        if self.request.is_given_up() || !self.request.pause(jittered(POLL_EVERY), pending()).await
        {
            return Err(LeaveReason::GivenUp(holder(customers)));
        }
        Ok(())
    }

    /// Removes what this attempt wrote. The timestamp is higher than that of every write, including
    /// those that got no reply. Continues in the background if the removal is not acknowledged in
    /// time.
    async fn leave(self) -> Result<(), Error> {
        if self.last_us == 0 {
            return Ok(());
        }
        let (tables, name, id) = (self.tables.clone(), self.request.name.clone(), self.id);
        let (mut last_us, over_by) = (self.last_us, over_by(self.request.ttl.max(CHOOSING_TTL)));
        let leaving = self.request.finish_later(async move {
            while !over_by.has_passed() {
                last_us = time_after(last_us);
                if tables.remove(&name, id, last_us).await.is_ok() {
                    return;
                }
                sleep(RETRY_PAUSE).await;
            }
        });
        timeout(self.tables.timeout(), leaving).await.map(drop).map_err(|_| Error::Unsure {
            until: over_by.wall_clock(),
            cause: "Cassandra does not answer".to_owned(),
        })
    }
}

fn holder(customers: &[Customer]) -> Option<String> {
    customers.first().map(|customer| customer.client_id.clone())
}
