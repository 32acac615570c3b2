//! Locks in Cassandra: `cassandra://[user:password@]host[:port][,...]/keyspace`.
//!
//! | option | |
//! | --- | --- |
//! | `recipe=lwt` | the default: conditional writes (`lwt/`) |
//! | `plain=1` | with `recipe=lwt`: the bare lock table, without tokens and endings |
//! | `recipe=bakery` | plain quorum reads and writes (`bakery/`) |
//! | `replication_factor=N` | creates the keyspace if it does not exist |
//! | `ssl=true` | TLS, with the names that cqlsh has for it: `certfile` is the file of authorities (default: the system's), `usercert` and `userkey` are the client's own |

pub(super) mod bakery;
mod cluster;
mod errors;
pub(super) mod lwt;

use crate::clock::{Moment, safe_part};
use crate::driver::{Driver, Validity};
use crate::error::Error;
use crate::url::EngineUrl;
use cluster::Cluster;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    url.check_options(&[
        "recipe",
        "plain",
        "replication_factor",
        "ssl",
        "certfile",
        "usercert",
        "userkey",
    ])?;
    let bad = |key: &str, value: &str, use_this: &str| {
        Error::BadUrl(format!("`{key}={value}` is not supported: write {use_this}"))
    };
    let plain = match url.option("plain") {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(bad("plain", other, "`plain=1` or leave it out")),
    };
    let cluster = Cluster::connect(url, timeout);
    match url.option("recipe").unwrap_or("lwt") {
        "lwt" => lwt::connect(cluster.await?, plain).await,
        "bakery" if plain => Err(Error::BadUrl("`plain` goes with `recipe=lwt`".to_owned())),
        "bakery" => bakery::connect(cluster.await?).await,
        other => Err(bad("recipe", other, "`lwt` or `bakery`")),
    }
}

/// The fewest whole seconds for which Cassandra keeps a cell for at least `ttl`: it may expire a
/// cell up to a second early.
fn whole_seconds(ttl: Duration) -> i32 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0) + 1;
    i32::try_from(whole).unwrap_or(i32::MAX)
}

/// For a row written by a statement that was sent at `sent` and acknowledged just now.
fn validity(sent: Moment, ttl: Duration) -> Validity {
    Validity { valid_until: sent.plus(safe_part(ttl)), over_by: over_by(ttl) }
}

/// When a row written just now is certainly gone.
fn over_by(ttl: Duration) -> Moment {
    let whole = ttl + Duration::from_secs(2);
    Moment::now().plus(whole + whole / 10)
}

/// A pause between half and one and a half times as long, so that processes don't poll in step.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0; 1];
    // Without random numbers this is the shortest pause.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 255
}
