//! Redis: one key per lock, with an owner value and a TTL, like every Redis lock client. Several
//! independent servers in the URL make it Redlock; one server is Redlock with a majority of one.
//!
//! The key is the lock's name and the value is unique to the acquisition, so these locks and those
//! of other clients with the same recipe (redis-py's `Lock`, redsync, node-redlock) exclude each
//! other.
//!
//! Scripts that take or extend a lock have a deadline by the server's clock, so one that arrives
//! late is refused. What an attempt that got no reply may have set is removed until its deadline
//! has passed, and the next attempt uses a new value.

mod acquire;
mod hold;
mod inspect;
mod quorum;
mod reply;
mod server;
mod wakeup;

use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use crate::url::EngineUrl;
use hold::RedisHold;
use quorum::Quorum;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PORT: u16 = 6379;

/// The option that names a file of certificate authorities, as redis-py spells it.
const CA_OPTION: &str = "ssl_ca_certs";

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "redis",
    recipe: "single server",
    fair: Promise::no("the first to ask after a release gets it"),
    token: Promise::no(
        "Redis counts nothing that failover could not set back, so no number is sure to rise",
    ),
    survives_failover: Promise::no(
        "replication is asynchronous: a promoted replica may not have the lock; a restarted server \
         has it only with `appendfsync always`",
    ),
    reports_death: Promise::no("an expired key leaves no trace"),
    detachable: Promise::yes("the value of the key is the proof"),
    lost_in_time: Promise::yes(
        "counted from before the request was sent, unless the server's wall clock is set forward",
    ),
    clock: "the Redis server's wall clock",
    after_crash: "the key, until its TTL is over",
    after_disconnect: "the key, until its TTL is over; the holder reconnects and renews",
    late_request: "nothing: after its time limit the server refuses it, unless its wall clock is set back",
};

pub(in crate::drivers) static PROMISES_REDLOCK: Promises = Promises {
    recipe: "Redlock",
    survives_failover: Promise::no(
        "only if each server that fails comes back with its keys (`appendfsync always`) or not \
         before the TTL is over; without that, a second holder can find a majority",
    ),
    lost_in_time: Promise::yes(
        "counted from before the first request was sent, unless the wall clocks of a majority are \
         set forward",
    ),
    clock: "the wall clocks of a majority of the servers",
    after_crash: "a key on each server, until its TTL is over",
    after_disconnect: "a key on each server, until its TTL is over; a majority is enough to renew",
    ..PROMISES
};

pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    let tls = url.scheme == "rediss";
    url.check_options(if tls { &[CA_OPTION] } else { &[] })?;
    if url.hosts.is_empty() {
        let scheme = &url.scheme;
        return Err(Error::BadUrl(format!(
            "the host is missing: write `{scheme}://127.0.0.1:{PORT}`"
        )));
    }
    let mut known = BTreeSet::new();
    for host in &url.hosts {
        let address = host.authority(PORT);
        if !known.insert(address.clone()) {
            return Err(Error::BadUrl(format!(
                "{address} is listed twice: Redlock needs independent servers"
            )));
        }
    }
    let login = server::Login::of_url(url)?;
    let servers = url.hosts.iter().map(|host| server::Server::new(host, &login));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    let quorum = Quorum::new(servers, timeout);
    quorum.ping().await?;
    Ok(Arc::new(Redis { quorum: Arc::new(quorum) }))
}

struct Redis {
    quorum: Arc<Quorum>,
}

impl Driver for Redis {
    fn promises(&self) -> &'static Promises {
        if self.quorum.is_single() { &PROMISES } else { &PROMISES_REDLOCK }
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(&self.quorum, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.quorum, name))
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            if proof.is_empty() {
                return Err(Error::Unsupported("the proof of a Redis lease is empty".to_owned()));
            }
            Ok(Arc::new(RedisHold::new(&self.quorum, name, proof)) as Arc<dyn Hold>)
        })
    }
}
