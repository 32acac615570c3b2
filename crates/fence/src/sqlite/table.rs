//! The fence's table, and what a connection must guarantee before a token is shown to it.

use super::{failed, store};
use crate::{Error, sql};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// `PRAGMA synchronous`, as a number.
const FULL: i64 = 2;
const EXTRA: i64 = 3;

/// Creates the fence's table if it is missing, upgrades one made by an earlier version, and makes
/// the connection durable: `PRAGMA synchronous = EXTRA`.
///
/// An upgrade keeps all rows. It fails with [`Error::Damaged`] if one of them contains anything but
/// tokens. Inside a transaction, neither an upgrade nor a change of `synchronous` is possible.
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    let failed = |error| failed(store(connection), error);
    if connection.is_autocommit() {
        make_durable(connection)?;
    }
    // Only a table that is missing or old needs the database's write lock.
    match is_strict(connection)? {
        Some(true) => return Ok(()),
        Some(false) if !connection.is_autocommit() => {
            return Err(Error::Unsupported {
                store: store(connection),
                reason: "an earlier version has made its table holdfast_fences, which accepts NULL \
                         and text as tokens: call create_table outside of a transaction to upgrade it"
                    .into(),
            });
        }
        None if !connection.is_autocommit() => {
            return connection.execute_batch(sql::SQLITE_TABLE).map_err(failed);
        }
        _ => {}
    }
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have been faster.
    match is_strict(&transaction)? {
        Some(true) => return Ok(()),
        Some(false) => upgrade(&transaction)?,
        None => transaction.execute_batch(sql::SQLITE_TABLE).map_err(failed)?,
    }
    transaction.commit().map_err(failed)
}

/// Makes every commit of this connection survive a power failure.
///
/// In the default journal mode, a commit is the removal of the journal. At `FULL` the removal
/// itself is not synced: after a power failure the journal can be there again, and then the next
/// process to open the database rolls the commit back.
pub(super) fn make_durable(connection: &Connection) -> Result<(), Error> {
    let failed = |error| failed(store(connection), error);
    connection.pragma_update(None, "synchronous", "EXTRA").map_err(failed)?;
    // On macOS, a plain fsync leaves the data in the drive's cache. Elsewhere it has no effect.
    connection.pragma_update(None, "fullfsync", true).map_err(failed)
}

/// Refuses a connection whose commits a power failure can undo.
pub(super) fn check_durable(connection: &Connection) -> Result<(), Error> {
    if connection.path().is_none_or(str::is_empty) {
        // In memory, for instance in an application's tests: nothing there outlives the process.
        return Ok(());
    }
    let failed = |error| failed(store(connection), error);
    let synchronous: i64 =
        connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(failed)?;
    if synchronous >= EXTRA {
        return Ok(());
    }
    let journal: String =
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
    if synchronous == FULL && journal == "wal" {
        return Ok(());
    }
    Err(Error::Unsupported {
        store: store(connection),
        reason: format!(
            "with synchronous = {} in journal mode {journal:?}, a power failure can undo a commit: \
             run PRAGMA synchronous = EXTRA on this connection, before the transaction",
            ["OFF", "NORMAL", "FULL"]
                .get(usize::try_from(synchronous).unwrap_or(0))
                .unwrap_or(&"OFF")
        ),
    })
}

/// Whether the table accepts only valid tokens; `None` if there is no table.
fn is_strict(connection: &Connection) -> Result<Option<bool>, Error> {
    let sql = "SELECT strict FROM pragma_table_list
        WHERE schema = 'main' AND name = 'holdfast_fences'";
    let found = connection.query_row(sql, [], |row| row.get(0)).optional();
    found.map_err(|error| failed(store(connection), error))
}

/// Copies the rows to a table that accepts only valid tokens.
fn upgrade(transaction: &Transaction<'_>) -> Result<(), Error> {
    let failed = |error| failed(store(transaction), error);
    let bad =
        "SELECT quote(resource), quote(highest_exclusive), quote(highest) FROM holdfast_fences
        WHERE typeof(resource) <> 'text'
            OR typeof(highest_exclusive) <> 'integer' OR typeof(highest) <> 'integer'
            OR highest_exclusive < 0 OR highest < highest_exclusive
            OR typeof(value) NOT IN ('blob', 'text', 'null')
        LIMIT 1";
    let bad = transaction
        .query_row(bad, [], |row| {
            let text = |index| row.get::<_, String>(index);
            Ok(format!(
                "a row has resource = {}, highest_exclusive = {}, highest = {}, which no fence has \
                 written",
                text(0)?,
                text(1)?,
                text(2)?
            ))
        })
        .optional()
        .map_err(failed)?;
    if let Some(reason) = bad {
        return Err(Error::Damaged { resource: "holdfast_fences".into(), reason });
    }
    let created = sql::SQLITE_TABLE.replace("holdfast_fences", "holdfast_fences_strict");
    let upgrade = format!(
        "{created};
        INSERT INTO holdfast_fences_strict
            SELECT resource, highest_exclusive, highest, CAST(value AS BLOB) FROM holdfast_fences;
        DROP TABLE holdfast_fences;
        ALTER TABLE holdfast_fences_strict RENAME TO holdfast_fences"
    );
    transaction.execute_batch(&upgrade).map_err(failed)
}
