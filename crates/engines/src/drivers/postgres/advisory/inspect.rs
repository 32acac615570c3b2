//! Who holds an advisory lock and who is waiting, from `pg_locks`. Labels are PostgreSQL's
//! `application_name`: at most 63 bytes, in ASCII.

use super::Sessions;
use crate::drivers::failure::Failure;
use crate::error::Error;
use crate::locks::Inspection;

/// Versions before 14 have no `waitstart`; there the order of the line is unknown.
const LOCKS: &str = "
    SELECT granted, coalesce(application_name, '')
    FROM pg_locks AS locks LEFT JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND objsubid = 1
        AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((classid::int8 << 32) | objid::int8) = hashtextextended($1::text, 0)
    ORDER BY granted DESC, (to_jsonb(locks) ->> 'waitstart')::timestamptz NULLS LAST";

pub(super) async fn inspect(sessions: &Sessions, name: &str) -> Result<Option<Inspection>, Error> {
    let control = sessions.control().await?;
    let rows = match control.query(LOCKS, &[&name]).await {
        Ok(rows) => rows,
        Err(failure) => {
            if let Failure::Ambiguous(_) = failure {
                control.abort();
            }
            return Err(failure.into_error());
        }
    };
    if rows.is_empty() {
        return Ok(None);
    }
    let mut lock = Inspection { line: Some(Vec::new()), ..Inspection::default() };
    for row in rows {
        match (row.get::<_, bool>(0), lock.line.as_mut()) {
            (true, _) => lock.holder = Some(row.get(1)),
            (false, Some(line)) => line.push(row.get(1)),
            (false, None) => {}
        }
    }
    Ok(Some(lock))
}
