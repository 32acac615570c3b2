//! Lamport's bakery on two plain tables, with quorum reads and writes and no conditional writes.
//!
//! `choosing (lock_name, id, choosing)` and `numbers (lock_name, id, number, client_id)`. In order:
//! wait while anyone is choosing; set our flag; take the highest number plus one; write it; clear
//! the flag; wait for each chooser; wait for each lower (number, id). Leaving removes both rows.
//!
//! Each attempt has its own random id, so nothing that an earlier attempt left behind (a tombstone,
//! a write that arrives late) can hide or replace a row. Timestamps rise within a row, and each
//! write is retried until it is acknowledged, then read back. Rows have a TTL: a customer whose
//! step took so long that a row may have expired leaves, and starts again at the end of the line.

mod acquire;
mod hold;
mod inspect;
#[cfg(test)]
mod model;
mod tables;
mod ticket;

use super::cluster::Cluster;
use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use hold::BakeryHold;
use std::sync::Arc;
use tables::Tables;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "cassandra",
    recipe: "bakery",
    fair: Promise::yes(
        "numbers are served in order; those who come at the same moment, in any order",
    ),
    token: Promise::no("numbers start again at 1 when nobody is left"),
    survives_failover: Promise::yes("a majority of the replicas has each row"),
    reports_death: Promise::no("an expired number leaves nothing"),
    detachable: Promise::yes("the number's random id is the proof"),
    lost_in_time: Promise::yes(
        "the holder stops counting on its number at 90% of its TTL; nodes whose clocks differ by more break this, and nothing but the TTL guards a number",
    ),
    clock: "the wall clocks of the Cassandra nodes, in whole seconds",
    after_crash: "the number, until its TTL is over (up to two seconds more)",
    after_disconnect: "the number: it is renewed over a new connection",
    late_request: "nothing: it has an older timestamp than what came after it",
};

pub(super) async fn connect(cluster: Cluster) -> Result<Arc<dyn Driver>, Error> {
    Ok(Arc::new(Bakery { tables: Arc::new(Tables::open(cluster).await?) }))
}

struct Bakery {
    tables: Arc<Tables>,
}

impl Driver for Bakery {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(&self.tables, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.tables, name))
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            let bad = |_| Error::Unsupported("this is not the proof of a bakery lease".to_owned());
            let id = proof.parse().map_err(bad)?;
            Ok(Arc::new(BakeryHold::new(self.tables.clone(), name.to_owned(), id)) as Arc<dyn Hold>)
        })
    }
}
