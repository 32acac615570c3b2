//! The statements, the same for SQLite and PostgreSQL. `{now}` stands for the database's clock in
//! milliseconds, `{serial}` for the type of a key that counts by itself.
//!
//! In SQLite, `$1` is a name, and gets its place from where it first appears: `$1` comes before `$2`.

use super::{NewReservation, Statement, Value};
use crate::domain::TicketId;

/// One step for each version of the tables; a step never changes once it was released.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE tickets (
        id                BIGINT PRIMARY KEY,
        state             TEXT NOT NULL DEFAULT 'available'
                          CHECK (state IN ('available', 'reserved', 'booked')),
        client            TEXT,
        number            BIGINT NOT NULL DEFAULT 0,
        token             BIGINT,
        lease             TEXT,
        reserved_until_ms BIGINT,
        instance          TEXT,
        last_ending       TEXT
    );
    CREATE TABLE sales (
        id         {serial},
        ticket_id  BIGINT NOT NULL,
        client     TEXT NOT NULL,
        number     BIGINT NOT NULL,
        token      BIGINT,
        payment    TEXT NOT NULL UNIQUE,
        instance   TEXT NOT NULL,
        sold_at_ms BIGINT NOT NULL
    );
    CREATE TABLE payments (
        payment   TEXT PRIMARY KEY,
        ticket_id BIGINT NOT NULL,
        client    TEXT NOT NULL,
        number    BIGINT NOT NULL,
        state     TEXT NOT NULL CHECK (state IN ('authorised', 'captured', 'voided')),
        at_ms     BIGINT NOT NULL
    );
    CREATE TABLE instances (
        id         TEXT PRIMARY KEY,
        lock_type  TEXT NOT NULL,
        witness    TEXT NOT NULL,
        lock_url   TEXT NOT NULL,
        seen_at_ms BIGINT NOT NULL
    );
",
    "
    ALTER TABLE payments ADD COLUMN claimed BIGINT NOT NULL DEFAULT 0;
    UPDATE payments SET claimed = 1
        WHERE EXISTS (SELECT 1 FROM sales WHERE sales.payment = payments.payment);
    ALTER TABLE tickets ADD COLUMN hold TEXT;
    ALTER TABLE tickets ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE instances ADD COLUMN line TEXT NOT NULL DEFAULT '';
",
    "
    ALTER TABLE tickets ADD COLUMN booking TEXT;
    ALTER TABLE tickets ADD COLUMN booking_ms BIGINT;
",
];

/// Whether a booking of the ticket is under way: it has shown so in the last 1.5 seconds.
macro_rules! is_being_booked {
    () => {
        "(booking IS NOT NULL AND booking_ms > {now} - 1500 AND booking_ms < {now} + 1500)"
    };
}

/// The columns of a ticket, the database's time first. The eleventh says whether the lock lived in an
/// instance that is gone: it was not seen for as long as its session lasts. The last one says whether a
/// booking is under way.
macro_rules! tickets {
    ($which:literal) => {
        concat!(
            "SELECT {now}, id, state, client, number, token, lease, reserved_until_ms, instance,
            last_ending, CAST(CASE WHEN state = 'reserved' AND lease IS NULL
                AND reserved_until_ms IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM instances WHERE instances.id = tickets.instance
                        AND instances.seen_at_ms >= {now} - 10000)
                THEN 1 ELSE 0 END AS BIGINT), hold, generation,
            CAST(CASE WHEN ",
            is_being_booked!(),
            " THEN 1 ELSE 0 END AS BIGINT)
            FROM tickets ",
            $which
        )
    };
}

pub(super) const TICKETS: &str = tickets!("ORDER BY id");

pub(super) const TICKET: &str = tickets!("WHERE id = $1");

pub(super) const LEASES: &str =
    "SELECT lease FROM tickets WHERE state = 'reserved' AND lease IS NOT NULL";

pub(super) const HIGHEST_NUMBER: &str =
    "SELECT COALESCE(MAX(number), 0), COALESCE(MAX(generation), 0) FROM tickets";

pub(super) const SALES: &str = "SELECT ticket_id, client, token, instance, sold_at_ms FROM sales
    ORDER BY id DESC LIMIT $1";

pub(super) const PAYMENTS: &str = "SELECT state, COUNT(*) FROM payments GROUP BY state";

pub(super) const SETTING: &str = "SELECT value FROM settings WHERE name = $1";

/// A transaction that requires the line keeps it until its end.
pub(super) const LINE_IS: &str =
    "SELECT value FROM settings WHERE name = 'line' AND value = $1 {for_share}";

pub(super) const OTHER_INSTANCES: &str = "SELECT id, lock_type, line, lock_url, seen_at_ms
    FROM instances WHERE id <> $1 AND seen_at_ms >= {now} - $2";

/// Deletes what belongs to the old tickets. The new ones have locks of their own, and so new fences.
pub(super) const WIPE: &[&str] = &[
    "DELETE FROM sales",
    "DELETE FROM payments",
    "DELETE FROM tickets",
    "DELETE FROM holdfast_fences WHERE resource LIKE 'tickets/%'",
];

/// The locks are others now: their tokens are lower or higher for no reason, and the old reservations
/// are over.
pub(super) const FORGET_LINE: &[&str] = &[
    "DELETE FROM holdfast_fences WHERE resource LIKE 'tickets/%'",
    "UPDATE tickets SET state = 'available', number = number + 1, client = NULL, token = NULL,
        lease = NULL, hold = NULL, reserved_until_ms = NULL, booking = NULL,
        last_ending = 'ended: the lock service was changed, or has lost its data'
    WHERE state = 'reserved'",
];

/// In this order. A payment with a sale is captured, even if an earlier version has voided it. A
/// reservation with a payment that nobody finishes is ended a while after its time: from then on it
/// can't be sold, and the payment can be voided.
pub(super) const SETTLE: &[&str] = &[
    "UPDATE payments SET state = 'captured', claimed = 1 WHERE state <> 'captured'
        AND EXISTS (SELECT 1 FROM sales WHERE sales.payment = payments.payment)",
    "UPDATE tickets SET state = 'available', number = number + 1, client = NULL, token = NULL,
        lease = NULL, hold = NULL, reserved_until_ms = NULL, booking = NULL,
        last_ending = 'expired while it was paid for'
    WHERE state = 'reserved' AND reserved_until_ms < {now} - 5000 AND EXISTS (
        SELECT 1 FROM payments WHERE payments.ticket_id = tickets.id
            AND payments.number = tickets.number AND payments.state = 'authorised')",
    "UPDATE payments SET state = 'voided' WHERE state = 'authorised' AND claimed = 0
        AND NOT EXISTS (SELECT 1 FROM tickets WHERE tickets.id = payments.ticket_id
            AND tickets.number = payments.number AND tickets.state = 'reserved')",
];

/// Tickets 1 to `tickets`; those that exist stay as they are.
pub(super) fn add_tickets(tickets: u32, number: i64, generation: i64) -> Statement {
    // With casts, because PostgreSQL would take a bare 1 and $2 for int4.
    let sql = "WITH RECURSIVE ids (id) AS (
            SELECT CAST(1 AS BIGINT) UNION ALL SELECT id + 1 FROM ids WHERE id < $1
        )
        INSERT INTO tickets (id, number, generation)
            SELECT id, CAST($2 AS BIGINT), CAST($3 AS BIGINT) FROM ids WHERE true
        ON CONFLICT (id) DO NOTHING";
    Statement::new(sql, [i64::from(tickets).into(), number.into(), generation.into()])
}

pub(super) fn reserve(id: TicketId, number: i64, new: &NewReservation<'_>) -> Statement {
    let NewReservation { client, token, lease, hold, seconds, instance, last_ending } = new;
    let ms = seconds.and_then(|seconds| i64::try_from(seconds.saturating_mul(1_000)).ok());
    let sql = "UPDATE tickets SET state = 'reserved', number = number + 1, client = $1, token = $2,
            lease = $3, reserved_until_ms = {now} + $4, instance = $5, last_ending = $6, hold = $7,
            booking = NULL
        WHERE id = $8 AND number = $9 AND state <> 'booked'";
    let values = [
        (*client).into(),
        bigint(*token),
        (*lease).into(),
        ms.into(),
        (*instance).into(),
        (*last_ending).into(),
        (*hold).into(),
        id.0.into(),
        number.into(),
    ];
    Statement::new(sql, values)
}

/// Makes a booking the only one that can sell this reservation, unless another one is under way.
pub(super) fn start_booking(id: TicketId, number: i64, booking: &str) -> Statement {
    let sql = concat!(
        "UPDATE tickets SET booking = $1, booking_ms = {now}
        WHERE id = $2 AND number = $3 AND state = 'reserved' AND NOT ",
        is_being_booked!()
    );
    Statement::new(sql, [booking.into(), id.0.into(), number.into()])
}

/// Shows that a booking is still under way.
pub(super) fn renew_booking(id: TicketId, booking: &str) -> Statement {
    let sql = "UPDATE tickets SET booking_ms = {now}
        WHERE booking = $1 AND id = $2 AND state = 'reserved'";
    Statement::new(sql, [booking.into(), id.0.into()])
}

/// Gives up a booking; the reservation stays.
pub(super) fn leave_booking(id: TicketId, booking: &str) -> Statement {
    let sql = "UPDATE tickets SET booking = NULL
        WHERE booking = $1 AND id = $2 AND state = 'reserved'";
    Statement::new(sql, [booking.into(), id.0.into()])
}

/// Gives up a booking whose reservation is over: from now on nobody can sell it.
pub(super) fn end_reservation(id: TicketId, booking: &str) -> Statement {
    let sql = "UPDATE tickets SET booking = NULL, reserved_until_ms =
            CASE WHEN reserved_until_ms < {now} THEN reserved_until_ms ELSE {now} END
        WHERE booking = $1 AND id = $2 AND state = 'reserved'";
    Statement::new(sql, [booking.into(), id.0.into()])
}

/// A reservation is over at its end, whatever its lock says: the list shows the ticket again.
pub(super) fn book(id: TicketId, number: i64, client: &str, booking: &str) -> Statement {
    let sql = "UPDATE tickets SET state = 'booked', lease = NULL, hold = NULL, booking = NULL,
            reserved_until_ms = NULL, last_ending = 'released after the sale'
        WHERE id = $1 AND number = $2 AND client = $3 AND booking = $4 AND state = 'reserved'
            AND (reserved_until_ms IS NULL OR reserved_until_ms > {now})";
    Statement::new(sql, [id.0.into(), number.into(), client.into(), booking.into()])
}

pub(super) fn book_unchecked(id: TicketId, client: &str) -> Statement {
    let sql = "UPDATE tickets SET state = 'booked', client = $1 WHERE id = $2";
    Statement::new(sql, [client.into(), id.0.into()])
}

pub(super) fn sale(
    id: TicketId,
    client: &str,
    number: i64,
    token: Option<u64>,
    payment: &str,
    instance: &str,
) -> Statement {
    let sql = "INSERT INTO sales (ticket_id, client, number, token, payment, instance, sold_at_ms)
        VALUES ($1, $2, $3, $4, $5, $6, {now})";
    let values =
        [id.0.into(), client.into(), number.into(), bigint(token), payment.into(), instance.into()];
    Statement::new(sql, values)
}

pub(super) fn add_payment(key: &str, id: TicketId, client: &str, number: i64) -> Statement {
    let sql = "INSERT INTO payments (payment, ticket_id, client, number, state, at_ms)
        VALUES ($1, $2, $3, $4, 'authorised', {now})";
    Statement::new(sql, [key.into(), id.0.into(), client.into(), number.into()])
}

/// Binds a payment to the sale of the same transaction. A void changes the same row, so that of a sale
/// and a void that meet, only the first takes effect.
pub(super) fn claim_payment(key: &str) -> Statement {
    let sql = "UPDATE payments SET claimed = 1
        WHERE payment = $1 AND state = 'authorised' AND claimed = 0";
    Statement::new(sql, [key.into()])
}

pub(super) fn capture_payment(key: &str) -> Statement {
    let sql = "UPDATE payments SET state = 'captured'
        WHERE payment = $1 AND state = 'authorised' AND claimed = 1";
    Statement::new(sql, [key.into()])
}

/// Without effect if the payment has a sale.
pub(super) fn void_payment(key: &str) -> Statement {
    let sql = "UPDATE payments SET state = 'voided'
        WHERE payment = $1 AND state = 'authorised' AND claimed = 0";
    Statement::new(sql, [key.into()])
}

pub(super) fn set_setting(name: &str, value: &str) -> Statement {
    let sql = "INSERT INTO settings (name, value) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    Statement::new(sql, [name.into(), value.into()])
}

pub(super) fn setting_if_missing(name: &str, value: &str) -> Statement {
    let sql = "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    Statement::new(sql, [name.into(), value.into()])
}

/// Changes the line, if no live instance sees another one than the new.
pub(super) fn change_line(line: &str, alive_ms: i64) -> Statement {
    let sql = "UPDATE settings SET value = $1 WHERE name = 'line' AND value <> $1
        AND NOT EXISTS (SELECT 1 FROM instances
            WHERE line <> $1 AND seen_at_ms >= {now} - CAST($2 AS BIGINT))";
    Statement::new(sql, [line.into(), alive_ms.into()])
}

pub(super) fn note_instance(id: &str, lock_type: &str, line: &str, lock_url: &str) -> Statement {
    let sql = "INSERT INTO instances (id, lock_type, witness, line, lock_url, seen_at_ms)
            VALUES ($1, $2, '', $3, $4, {now})
        ON CONFLICT (id) DO UPDATE SET line = excluded.line, seen_at_ms = excluded.seen_at_ms";
    Statement::new(sql, [id.into(), lock_type.into(), line.into(), lock_url.into()])
}

pub(super) fn forget_instance(id: &str) -> Statement {
    Statement::new("DELETE FROM instances WHERE id = $1", [id.into()])
}

fn bigint(token: Option<u64>) -> Value {
    token.and_then(|token| i64::try_from(token).ok()).into()
}
