//! Who holds a lock. Only the waiters' own processes know who is waiting.

use super::acquire::number;
use super::table::{Sql, Table};
use crate::driver::label_of;
use crate::drivers::failure::Failure;
use crate::error::Error;
use crate::locks::Inspection;

pub(super) async fn inspect(table: &Table, name: &str) -> Result<Option<Inspection>, Error> {
    let rows = table.run(Sql::Inspect, &[&name]).await;
    let rows = rows.map_err(Failure::into_error)?;
    Ok(rows.first().map(|row| Inspection {
        holder: Some(label_of(row.get(0))),
        token: Some(number(row.get(1))),
        line: None,
    }))
}
