//! The table, its statements, and the session they run in.

use crate::drivers::failure::Failure;
use crate::drivers::postgres::server::Server;
use crate::drivers::postgres::session::Session;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

const LABEL: &str = "holdfast-locks";

pub(super) struct Table {
    server: Server,
    names: Names,
    /// Shared by all calls, which PostgreSQL answers in the order in which they were sent.
    current: Mutex<Option<Arc<Connected>>>,
}

/// The table's name as resolved by the server, and what is derived from it.
struct Names {
    /// Quoted and with its schema.
    table: String,
    /// The channel on which releases are notified.
    channel: String,
}

/// A session and its prepared statements.
struct Connected {
    session: Session,
    statements: Vec<Statement>,
}

/// The statements, in the order of [`Connected::statements`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Sql {
    /// name, owner, note, TTL in ms -> token, previous (token, owner, note, died), holder, ms left.
    Take,
    /// name, owner, TTL in ms, channel -> a row if it was held.
    Extend,
    /// name, owner, channel -> a row if it was held.
    Release,
    /// name, owner -> ms left, token, previous (token, owner, note, died); a row if it is held.
    Check,
    /// name -> owner, token; a row if it is held.
    Inspect,
}

const ALL: [Sql; 5] = [Sql::Take, Sql::Extend, Sql::Release, Sql::Check, Sql::Inspect];

impl Sql {
    fn types(self) -> &'static [Type] {
        match self {
            Self::Take => &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            Self::Extend => &[Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT],
            Self::Release => &[Type::TEXT, Type::TEXT, Type::TEXT],
            Self::Check => &[Type::TEXT, Type::TEXT],
            Self::Inspect => &[Type::TEXT],
        }
    }

    fn text(self, table: &str) -> String {
        const LEFT_MS: &str =
            "ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::int8";
        const LIVE: &str = "NOT released AND expires_at > clock_timestamp()";
        match self {
            // A lock that is visibly busy is only read: many waiters must not lock its row.
            Self::Take => format!(
                "WITH busy AS (
                    SELECT owner, {LEFT_MS} AS left_ms FROM {table} WHERE name = $1 AND {LIVE}
                ), taken AS (
                    INSERT INTO {table} AS held (name, token, owner, note, expires_at, released)
                    SELECT $1, 1, $2, $3, clock_timestamp() + $4 * interval '1 millisecond', false
                    WHERE NOT EXISTS (SELECT FROM busy)
                    ON CONFLICT (name) DO UPDATE SET
                        token = held.token + 1, owner = excluded.owner, note = excluded.note,
                        expires_at = clock_timestamp() + $4 * interval '1 millisecond',
                        released = false, previous_token = held.token,
                        previous_owner = held.owner, previous_note = held.note,
                        previous_died = NOT held.released
                    WHERE held.released OR held.expires_at <= clock_timestamp()
                    RETURNING token, previous_token, previous_owner, previous_note, previous_died
                )
                SELECT taken.*, NULL::text, NULL::int8 FROM taken
                UNION ALL
                SELECT NULL, NULL, NULL, NULL, NULL, owner, left_ms FROM busy"
            ),
            // Waiters sleep until the deadline they know of, so they must be notified of an earlier
            // one.
            Self::Extend => format!(
                "WITH old AS (
                    SELECT expires_at FROM {table}
                    WHERE name = $1 AND owner = $2 AND {LIVE} FOR UPDATE
                ), extended AS (
                    UPDATE {table} AS held
                    SET expires_at = clock_timestamp() + $3 * interval '1 millisecond'
                    FROM old WHERE held.name = $1
                    RETURNING held.expires_at < old.expires_at AS shorter
                )
                SELECT CASE WHEN shorter THEN pg_notify($4, $1) END FROM extended"
            ),
            Self::Release => format!(
                "WITH freed AS (
                    UPDATE {table} SET released = true
                    WHERE name = $1 AND owner = $2 AND {LIVE} RETURNING name
                )
                SELECT pg_notify($3, name) FROM freed"
            ),
            Self::Check => format!(
                "SELECT {LEFT_MS}, token, previous_token, previous_owner, previous_note, previous_died
                FROM {table} WHERE name = $1 AND owner = $2 AND {LIVE}"
            ),
            Self::Inspect => {
                format!("SELECT owner, token FROM {table} WHERE name = $1 AND {LIVE}")
            }
        }
    }
}

impl Table {
    /// Connects, and creates the table if it is missing.
    pub(super) async fn open(server: Server, table: &str) -> Result<Self, Error> {
        let quoted = quote(table)?;
        let session = Session::open(&server, LABEL, Some(server.timeout)).await?;
        let names = match find(&session, &quoted).await? {
            Some(names) => names,
            None => {
                create(&session, &quoted).await?;
                find(&session, &quoted).await?.ok_or_else(|| {
                    Error::Refused(format!("{}: table {quoted} can't be found", server.name))
                })?
            }
        };
        let connected = prepare(session, &names).await?;
        Ok(Self { server, names, current: Mutex::new(Some(Arc::new(connected))) })
    }

    pub(super) fn channel(&self) -> &str {
        &self.names.channel
    }

    pub(super) fn timeout(&self) -> Duration {
        self.server.timeout
    }

    /// The session, or a new one. Before a new one is used, the old one is over on the server too:
    /// none of its statements takes effect later.
    async fn connected(&self) -> Result<Arc<Connected>, Error> {
        let mut current = self.current.lock().await;
        if let Some(connected) = current.as_ref().filter(|connected| !connected.session.is_over()) {
            return Ok(connected.clone());
        }
        let session = Session::open(&self.server, LABEL, Some(self.server.timeout)).await?;
        if let Some(before) = current.as_ref() {
            session.end(before.session.backend).await?;
        }
        let connected = Arc::new(prepare(session, &self.names).await?);
        *current = Some(connected.clone());
        Ok(connected)
    }

    /// Runs a statement. If the outcome is ambiguous, its connection is given up, and the statement
    /// takes effect before the next one runs or not at all.
    pub(super) async fn run(
        &self,
        sql: Sql,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let connected = self.connected().await.map_err(Failure::Definite)?;
        let ran = connected.session.query(&connected.statements[sql as usize], values).await;
        if let Err(Failure::Ambiguous(_)) = &ran {
            connected.session.abort();
        }
        ran
    }
}

async fn find(session: &Session, quoted: &str) -> Result<Option<Names>, Error> {
    const FIND: &str = "
        SELECT format('%I.%I', nspname, relname),
            'holdfast_' || hashtextextended(format('%I.%I', nspname, relname), 0)
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE pg_class.oid = to_regclass($1::text)";
    let rows = session.query(FIND, &[&quoted]).await.map_err(Failure::into_error)?;
    Ok(rows.first().map(|row| Names { table: row.get(0), channel: row.get(1) }))
}

async fn create(session: &Session, quoted: &str) -> Result<(), Error> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {quoted} (
            name text COLLATE \"C\" PRIMARY KEY, token bigint NOT NULL, owner text NOT NULL,
            note text, expires_at timestamptz NOT NULL, released boolean NOT NULL,
            previous_token bigint, previous_owner text, previous_note text, previous_died boolean)"
    );
    match session.execute(&sql).await.map_err(Failure::into_error) {
        Ok(()) => Ok(()),
        // Someone else may have created it at the same moment.
        Err(_) if find(session, quoted).await?.is_some() => Ok(()),
        Err(Error::Refused(why)) => {
            let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
            Err(Error::Refused(format!(
                "{why}. To create the table yourself: {sql}; then GRANT SELECT, INSERT, UPDATE on it"
            )))
        }
        Err(error) => Err(error),
    }
}

async fn prepare(session: Session, names: &Names) -> Result<Connected, Error> {
    let mut statements = Vec::new();
    for sql in ALL {
        let prepared = session.prepare(&sql.text(&names.table), sql.types()).await;
        statements.push(prepared.map_err(Failure::into_error)?);
    }
    Ok(Connected { session, statements })
}

/// `schema.table` or `table`, quoted.
fn quote(table: &str) -> Result<String, Error> {
    let parts: Vec<_> = table.split('.').collect();
    let plain = |part: &&str| {
        !part.is_empty() && part.len() <= 63 && !part.contains(['"', '\0']) && part.trim() == *part
    };
    if parts.len() > 2 || !parts.iter().all(plain) {
        return Err(Error::BadUrl(format!(
            "`table={table}` is not a table: write `table=name` or `table=schema.name`"
        )));
    }
    let quoted: Vec<_> = parts.iter().map(|part| format!("\"{part}\"")).collect();
    Ok(quoted.join("."))
}

/// A TTL as a statement parameter.
pub(super) fn ttl_ms(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

/// The time left of a lease, from a row.
pub(super) fn left(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
