//! The database: tickets, sales, payments and instances, in SQLite or PostgreSQL.
//!
//! What is read and written is said here, once (`sql.rs` has the statements). The two drivers only run
//! statements: `query` reads, and `transact` runs one transaction, behind the fence if a token is given.

mod postgres;
mod sql;
mod sqlite;
#[cfg(test)]
mod tests;
mod types;

use crate::domain::{Reservation, State, Ticket, TicketId};
use std::path::Path;
use types::{Row, Statement, Transaction, Value};
pub(crate) use types::{StoreError, Written};

/// An instance that was silent for so long is dead. Shorter than its witness lives.
const DEAD_AFTER_MS: i64 = 10_000;

enum Driver {
    Sqlite(sqlite::Sqlite),
    Postgres(Box<postgres::Postgres>),
}

/// The database.
pub(crate) struct Store {
    driver: Driver,
    /// Tells this database's locks from those of others.
    id: String,
}

/// What a new reservation writes into its row.
pub(crate) struct NewReservation<'a> {
    pub(crate) client: &'a str,
    pub(crate) token: Option<u64>,
    pub(crate) lease: Option<&'a str>,
    pub(crate) hold: Option<&'a str>,
    /// `None` if it never ends.
    pub(crate) seconds: Option<u64>,
    pub(crate) instance: &'a str,
    pub(crate) last_ending: Option<&'a str>,
}

/// A sale.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Sale {
    pub(crate) ticket_id: String,
    pub(crate) client_id: String,
    pub(crate) token: Option<i64>,
    pub(crate) instance: String,
    pub(crate) sold_at_ms: i64,
}

/// How much money is where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Payments {
    pub(crate) authorised: i64,
    pub(crate) captured: i64,
    pub(crate) voided: i64,
}

/// Another instance that was seen a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherInstance {
    pub(crate) id: String,
    pub(crate) lock_type: String,
    /// The line that it has seen in its lock service.
    pub(crate) line: String,
    /// What a further instance needs to share its locks.
    pub(crate) lock_url: String,
    pub(crate) seen_at_ms: i64,
}

/// All tickets at one moment.
pub(crate) struct Tickets {
    pub(crate) now_ms: i64,
    pub(crate) tickets: Vec<Ticket>,
}

impl Store {
    /// Refuses a DATABASE_URL that no database can have.
    pub(crate) fn check_url(url: &str) -> Result<(), String> {
        if is_postgres(url) {
            return postgres::check_url(url);
        }
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            return Err("a DATABASE_URL of PostgreSQL has two slashes: \
                 postgres://user:password@host/database"
                .to_owned());
        }
        match url.split_once("://") {
            Some((scheme, _)) => Err(format!(
                "DATABASE_URL can't start with {scheme}://; write sqlite:FILE or \
                 postgres://user:password@host/database"
            )),
            None => Ok(()),
        }
    }

    async fn connect(url: &str) -> Result<Self, StoreError> {
        let driver = if is_postgres(url) {
            Driver::Postgres(Box::new(postgres::Postgres::connect(url).await?))
        } else {
            Driver::Sqlite(sqlite::Sqlite::open(Path::new(sqlite_path(url))).await?)
        };
        Ok(Self { driver, id: crate::random_hex() })
    }

    /// How many tickets and sales there are, without making anything; `None` if it is no shop yet.
    pub(crate) async fn contents(url: &str) -> Result<Option<(i64, i64)>, StoreError> {
        if !is_postgres(url) && !Path::new(sqlite_path(url)).exists() {
            return Ok(None);
        }
        let store = Self::connect(url).await?;
        let exists = match &store.driver {
            Driver::Sqlite(_) => "SELECT name FROM sqlite_master WHERE name = 'tickets'",
            Driver::Postgres(_) => "SELECT CAST(to_regclass('tickets') AS TEXT)",
        };
        let found = store.query(exists, vec![]).await?;
        if found.first().and_then(|row| text(row, 0)).is_none() {
            return Ok(None);
        }
        Ok(Some((store.count("tickets").await?, store.count("sales").await?)))
    }

    /// Opens the database, and brings its tables up to date. An empty one gets its tickets.
    pub(crate) async fn open(url: &str, tickets: u32) -> Result<Self, StoreError> {
        let mut store = Self::connect(url).await?;
        store.migrate().await?;
        let id = store.id.clone();
        store.transact(sql::setting_if_missing("database", &id)).await?;
        store.id = store.setting("database").await?.unwrap_or(id);
        if store.count("tickets").await? == 0 {
            // Another instance may do the same at this moment: each ticket is made once.
            store.transact(sql::add_tickets(tickets, 0, 0)).await?;
        }
        Ok(store)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.migrate(sql::MIGRATIONS).await,
            Driver::Postgres(postgres) => postgres.migrate(sql::MIGRATIONS).await,
        }
    }

    /// Deletes every ticket, sale and payment, and makes new tickets.
    pub(crate) async fn recreate(&self, tickets: u32) -> Result<(), StoreError> {
        // Numbers go on, so that no reservation of an old ticket fits a new one.
        let rows = self.query(sql::HIGHEST_NUMBER, vec![]).await?;
        let next = |column| rows.first().map_or(0, |row| int(row, column)) + 1;
        let (number, generation) = (next(0), next(1));
        let marker = sql::set_setting("recreated", &crate::random_hex());
        let then = sql::WIPE.iter().map(|wipe| Statement::new(*wipe, []));
        let then = then.chain([sql::add_tickets(tickets, number, generation)]).collect();
        self.transact(Transaction::of([marker]).then(then)).await.map(drop)
    }

    /// The number of rows of one of the service's own tables.
    pub(crate) async fn count(&self, table: &'static str) -> Result<i64, StoreError> {
        let rows = self.query(&format!("SELECT COUNT(*) FROM {table}"), vec![]).await?;
        Ok(rows.first().map_or(0, |row| int(row, 0)))
    }

    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.setting("database").await.map(drop)
    }

    pub(crate) async fn tickets(&self) -> Result<Tickets, StoreError> {
        let rows = self.query(sql::TICKETS, vec![]).await?;
        let now_ms = rows.first().map_or(0, |row| int(row, 0));
        Ok(Tickets { now_ms, tickets: rows.iter().map(ticket).collect() })
    }

    pub(crate) async fn ticket(&self, id: TicketId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.ticket_now(id).await?.map(|(ticket, _)| ticket))
    }

    /// A ticket, and the database's time.
    pub(crate) async fn ticket_now(
        &self,
        id: TicketId,
    ) -> Result<Option<(Ticket, i64)>, StoreError> {
        let rows = self.query(sql::TICKET, vec![id.0.into()]).await?;
        Ok(rows.first().map(|row| (ticket(row), int(row, 0))))
    }

    /// Reserves a ticket whose row still has this number. The new number is the next one.
    pub(crate) async fn reserve(
        &self,
        line: &str,
        id: TicketId,
        number: i64,
        new: &NewReservation<'_>,
    ) -> Result<Written, StoreError> {
        let fence = new.token.map(|token| (resource(line, id), token));
        let line = Some(line.to_owned());
        self.transact(Transaction { line, fence, ..sql::reserve(id, number, new).into() }).await
    }

    /// Starts the booking of a reservation; unmatched if it is over, or another booking of it is under
    /// way. One that has not been renewed for 1.5 seconds is replaced: it can't sell any more.
    pub(crate) async fn start_booking(
        &self,
        line: &str,
        id: TicketId,
        number: i64,
        booking: &str,
    ) -> Result<Written, StoreError> {
        let line = Some(line.to_owned());
        let start = sql::start_booking(id, number, booking).into();
        self.transact(Transaction { line, ..start }).await
    }

    pub(crate) async fn renew_booking(
        &self,
        id: TicketId,
        booking: &str,
    ) -> Result<Written, StoreError> {
        self.transact(sql::renew_booking(id, booking)).await
    }

    /// Gives up a booking; unmatched if it was replaced, or its reservation is over.
    pub(crate) async fn leave_booking(
        &self,
        id: TicketId,
        booking: &str,
    ) -> Result<Written, StoreError> {
        self.transact(sql::leave_booking(id, booking)).await
    }

    /// Ends the reservation of a booking; unmatched if the booking was replaced, or the reservation is
    /// over already.
    pub(crate) async fn end_reservation(
        &self,
        line: &str,
        id: TicketId,
        booking: &str,
    ) -> Result<Written, StoreError> {
        let line = Some(line.to_owned());
        self.transact(Transaction { line, ..sql::end_reservation(id, booking).into() }).await
    }

    /// Sells a ticket, behind the fence and only while its row has the reservation's number and the
    /// booking was not replaced by another one.
    pub(crate) async fn book(
        &self,
        line: &str,
        id: TicketId,
        reservation: &Reservation,
        booking: &str,
        payment: &str,
        instance: &str,
    ) -> Result<Written, StoreError> {
        let Reservation { client, number, token, .. } = reservation;
        let fence = token.map(|token| (resource(line, id), token));
        let line = Some(line.to_owned());
        let sale = sql::sale(id, client, *number, *token, payment, instance);
        let guarded = vec![sql::claim_payment(payment), sql::book(id, *number, client, booking)];
        self.transact(Transaction { line, fence, guarded, then: vec![sale] }).await
    }

    /// Sells a ticket without asking anybody, as the control without locks does.
    pub(crate) async fn book_unchecked(
        &self,
        id: TicketId,
        client: &str,
        payment: &str,
        instance: &str,
    ) -> Result<Written, StoreError> {
        let sale = sql::sale(id, client, 0, None, payment, instance);
        let guarded = [sql::claim_payment(payment), sql::book_unchecked(id, client)];
        self.transact(Transaction::of(guarded).then(vec![sale])).await
    }

    /// The last sales, newest first.
    pub(crate) async fn sales(&self, most: i64) -> Result<Vec<Sale>, StoreError> {
        let rows = self.query(sql::SALES, vec![most.into()]).await?;
        let sale = |row: &Row| Sale {
            ticket_id: int(row, 0).to_string(),
            client_id: text(row, 1).unwrap_or_default(),
            token: optional_int(row, 2),
            instance: text(row, 3).unwrap_or_default(),
            sold_at_ms: int(row, 4),
        };
        Ok(rows.iter().map(sale).collect())
    }

    pub(crate) async fn payments(&self) -> Result<Payments, StoreError> {
        let mut payments = Payments::default();
        for row in self.query(sql::PAYMENTS, vec![]).await? {
            let count = int(&row, 1);
            match text(&row, 0).as_deref() {
                Some("captured") => payments.captured = count,
                Some("voided") => payments.voided = count,
                _ => payments.authorised = count,
            }
        }
        Ok(payments)
    }

    pub(crate) async fn add_payment(
        &self,
        key: &str,
        id: TicketId,
        client: &str,
        number: i64,
    ) -> Result<(), StoreError> {
        self.transact(sql::add_payment(key, id, client, number)).await.map(drop)
    }

    /// Takes the money of a payment that has a sale.
    pub(crate) async fn capture_payment(&self, key: &str) -> Result<(), StoreError> {
        self.transact(sql::capture_payment(key)).await.map(drop)
    }

    /// Gives back the money of a payment that has no sale. From then on it can't get one.
    pub(crate) async fn void_payment(&self, key: &str) -> Result<(), StoreError> {
        self.transact(sql::void_payment(key)).await.map(drop)
    }

    /// Finishes payments whose instance died: captures those with a sale, voids those that can't get
    /// one any more.
    pub(crate) async fn settle_payments(&self) -> Result<(), StoreError> {
        for statement in sql::SETTLE {
            self.transact(Statement::new(*statement, [])).await?;
        }
        Ok(())
    }

    pub(crate) async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        let rows = self.query(sql::SETTING, vec![key.into()]).await?;
        Ok(rows.first().and_then(|row| text(row, 0)))
    }

    /// Whether this line protects the tickets. One that has none gets it, and another one is changed
    /// if no live instance sees another line than this; then no reservation and no token of the old
    /// one counts any more. Call [`Store::note_instance`] first.
    pub(crate) async fn agree_on(&self, line: &str) -> Result<bool, StoreError> {
        if self.setting("line").await?.is_none() {
            self.transact(sql::setting_if_missing("line", line)).await?;
        }
        if self.setting("line").await?.as_deref() == Some(line) {
            return Ok(true);
        }
        let then = sql::FORGET_LINE.iter().map(|sql| Statement::new(*sql, [])).collect();
        let changed = Transaction::of([sql::change_line(line, DEAD_AFTER_MS)]).then(then);
        Ok(self.transact(changed).await? == Written::Done)
    }

    /// The leases of all reservations.
    pub(crate) async fn leases(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.query(sql::LEASES, vec![]).await?;
        Ok(rows.iter().filter_map(|row| text(row, 0)).collect())
    }

    /// Says that an instance lives.
    pub(crate) async fn note_instance(
        &self,
        id: &str,
        lock_type: &str,
        line: &str,
        lock_url: &str,
    ) -> Result<(), StoreError> {
        let noted = sql::note_instance(id, lock_type, line, lock_url);
        self.transact(noted).await.map(drop)
    }

    pub(crate) async fn forget_instance(&self, id: &str) -> Result<(), StoreError> {
        self.transact(sql::forget_instance(id)).await.map(drop)
    }

    /// Other instances that live, as far as anybody knows.
    pub(crate) async fn other_instances(&self, id: &str) -> Result<Vec<OtherInstance>, StoreError> {
        let alive = vec![id.into(), DEAD_AFTER_MS.into()];
        let rows = self.query(sql::OTHER_INSTANCES, alive).await?;
        let field = |row: &Row, column| text(row, column).unwrap_or_default();
        let other = |row: &Row| OtherInstance {
            id: field(row, 0),
            lock_type: field(row, 1),
            line: field(row, 2),
            lock_url: field(row, 3),
            seen_at_ms: int(row, 4),
        };
        Ok(rows.iter().map(other).collect())
    }

    async fn query(&self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        let statement = Statement::new(sql, values);
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.query(statement).await,
            Driver::Postgres(postgres) => postgres.query(&statement).await,
        }
    }

    async fn transact(&self, work: impl Into<Transaction>) -> Result<Written, StoreError> {
        let transaction = work.into();
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.transact(transaction).await,
            Driver::Postgres(postgres) => postgres.transact(&transaction).await,
        }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

fn sqlite_path(url: &str) -> &str {
    url.strip_prefix("sqlite:").unwrap_or(url)
}

/// What the fence calls a ticket. Tokens of different lines are not compared.
fn resource(line: &str, id: TicketId) -> String {
    format!("tickets/{line}/{id}")
}

/// A row of [`sql::TICKETS`].
fn ticket(row: &Row) -> Ticket {
    let (id, number) = (TicketId(int(row, 1)), int(row, 4));
    let client = text(row, 3).unwrap_or_default();
    let state = match text(row, 2).as_deref() {
        Some("booked") => State::Booked { client },
        Some("reserved") => State::Reserved(Reservation {
            client,
            number,
            token: optional_int(row, 5).and_then(|token| u64::try_from(token).ok()),
            lease: text(row, 6),
            until_ms: optional_int(row, 7),
            instance: text(row, 8).unwrap_or_default(),
            abandoned: int(row, 10) != 0,
            hold: text(row, 11),
            is_being_booked: int(row, 13) != 0,
        }),
        _ => State::Available,
    };
    Ticket { id, state, number, last_ending: text(row, 9), generation: int(row, 12) }
}

fn int(row: &Row, column: usize) -> i64 {
    optional_int(row, column).unwrap_or_default()
}

fn optional_int(row: &Row, column: usize) -> Option<i64> {
    match row.get(column) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    }
}

fn text(row: &Row, column: usize) -> Option<String> {
    match row.get(column) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// What the refusal of the fence tells the client.
fn superseded(refused: &holdfast_fence::Refused) -> String {
    let (shown, later) = (refused.shown.number(), refused.later());
    format!("its token {shown} is lower than token {later}, which a later reservation has shown")
}
