//! The statements of the SQL fences, the same for PostgreSQL and SQLite.
//!
//! Each decides and writes in one statement. It returns a row if the token has passed, and no row
//! if a later holder has shown its token. `$1` is the resource, `$2` the token, `$3` the value.

/// PostgreSQL's table.
#[cfg(feature = "postgres")]
pub const POSTGRES_TABLE: &str = "CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource          TEXT PRIMARY KEY,
    highest_exclusive BIGINT NOT NULL CHECK (highest_exclusive >= 0),
    highest           BIGINT NOT NULL CHECK (highest >= highest_exclusive),
    value             BYTEA
)";

/// SQLite's table. Without `STRICT`, a column accepts values of any type, and text compares higher
/// than every number; without `NOT NULL`, SQLite accepts any number of rows whose primary key is
/// NULL.
#[cfg(feature = "sqlite")]
pub const SQLITE_TABLE: &str = "CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource          TEXT NOT NULL PRIMARY KEY,
    highest_exclusive INTEGER NOT NULL CHECK (highest_exclusive >= 0),
    highest           INTEGER NOT NULL CHECK (highest >= highest_exclusive),
    value             BLOB
) STRICT";

/// Shows an exclusive token.
pub const RAISE_EXCLUSIVE: &str = "INSERT INTO holdfast_fences AS fence
    (resource, highest_exclusive, highest) VALUES ($1, $2, $2)
ON CONFLICT (resource) DO UPDATE
    SET highest_exclusive = excluded.highest_exclusive, highest = excluded.highest
    WHERE fence.highest_exclusive <= excluded.highest AND fence.highest <= excluded.highest
RETURNING highest_exclusive, highest, value";

/// Shows a shared token.
pub const RAISE_SHARED: &str = "INSERT INTO holdfast_fences AS fence
    (resource, highest_exclusive, highest) VALUES ($1, 0, $2)
ON CONFLICT (resource) DO UPDATE
    SET highest = CASE WHEN fence.highest < excluded.highest
        THEN excluded.highest ELSE fence.highest END
    WHERE fence.highest_exclusive <= excluded.highest
RETURNING highest_exclusive, highest, value";

/// Writes with an exclusive token.
pub const WRITE_EXCLUSIVE: &str = "INSERT INTO holdfast_fences AS fence
    (resource, highest_exclusive, highest, value) VALUES ($1, $2, $2, $3)
ON CONFLICT (resource) DO UPDATE
    SET highest_exclusive = excluded.highest_exclusive, highest = excluded.highest,
        value = excluded.value
    WHERE fence.highest_exclusive <= excluded.highest AND fence.highest <= excluded.highest
RETURNING highest_exclusive, highest";

/// Writes with a shared token.
pub const WRITE_SHARED: &str = "INSERT INTO holdfast_fences AS fence
    (resource, highest_exclusive, highest, value) VALUES ($1, 0, $2, $3)
ON CONFLICT (resource) DO UPDATE
    SET highest = CASE WHEN fence.highest < excluded.highest
        THEN excluded.highest ELSE fence.highest END,
        value = excluded.value
    WHERE fence.highest_exclusive <= excluded.highest
RETURNING highest_exclusive, highest";

/// Reads without a token.
pub const READ: &str =
    "SELECT highest_exclusive, highest, value FROM holdfast_fences WHERE resource = $1";

pub(crate) fn raise(mode: crate::Mode) -> &'static str {
    match mode {
        crate::Mode::Exclusive => RAISE_EXCLUSIVE,
        crate::Mode::Shared => RAISE_SHARED,
    }
}

pub(crate) fn write(mode: crate::Mode) -> &'static str {
    match mode {
        crate::Mode::Exclusive => WRITE_EXCLUSIVE,
        crate::Mode::Shared => WRITE_SHARED,
    }
}

/// The numbers of a row, or an error if no fence can have written it.
pub(crate) fn highest(
    resource: &str,
    exclusive: i64,
    any: i64,
) -> Result<crate::Highest, crate::Error> {
    match (exclusive.try_into(), any.try_into()) {
        (Ok(exclusive), Ok(any)) => Ok(crate::Highest { exclusive, any }),
        _ => Err(crate::Error::Damaged {
            resource: resource.into(),
            reason: format!("its row holds the tokens {exclusive} and {any}"),
        }),
    }
}
