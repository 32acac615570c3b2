//! Locks in PostgreSQL: `postgres://[user[:password]@]host[:port][,...]/database`.
//!
//! | option | |
//! | --- | --- |
//! | `recipe=lease` | the default: a row per lock in a table (`lease/`) |
//! | `recipe=advisory` | `pg_advisory_lock`, one connection per lock (`advisory/`) |
//! | `table=[schema.]name` | the lease recipe's table; default `holdfast_locks` |
//! | `sslmode=...` | `disable`, `prefer` (the default), `require` or `verify-full` |
//! | `sslrootcert=FILE` | the certificate authority for `verify-full`; default: the system's |
//!
//! Both recipes need their own sessions: connect to the server itself, not to a pooler.

pub(super) mod advisory;
mod errors;
pub(super) mod lease;
mod server;
mod session;
mod tls;

use crate::driver::Driver;
use crate::error::Error;
use crate::url::EngineUrl;
use server::Server;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    url.check_options(&["recipe", "table", "sslmode", "sslrootcert"])?;
    let server = Server::from_url(url, timeout)?;
    let table = url.option("table");
    match url.option("recipe").unwrap_or("lease") {
        "lease" => lease::connect(server, table.unwrap_or(lease::TABLE)).await,
        "advisory" if table.is_some() => Err(Error::BadUrl(
            "`table` goes with `recipe=lease`: advisory locks have no table".to_owned(),
        )),
        "advisory" => advisory::connect(server).await,
        other => Err(Error::BadUrl(format!(
            "unknown recipe `{other}` for postgres:// (known: lease, advisory)"
        ))),
    }
}
