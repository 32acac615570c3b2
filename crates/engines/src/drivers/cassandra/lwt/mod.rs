//! Conditional writes (lightweight transactions) on two tables.
//!
//! `locks (lock_name, client_id)` is the well-known recipe: a row with a TTL that is only written
//! if there is none. A person in cqlsh can take part with `INSERT ... IF NOT EXISTS`. Our client id
//! is `label/random`, unique to the acquisition. We write the row with UPDATE, because a row
//! written with INSERT also has a row marker, whose TTL a renewal would not extend.
//!
//! `lock_tokens (lock_name, token, holder, note)` has no TTL. The owner of the row raises the token
//! and records itself as the unfinished holder, then reads the lock row again: if that is still its
//! own, nobody can get a higher token before its lease ends. A release clears this mark first, so a
//! mark that is still there tells the next holder that the previous one died.

mod acquire;
mod hold;
mod inspect;
mod tables;

use super::cluster::Cluster;
use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use hold::LwtHold;
use std::sync::Arc;
use tables::Tables;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "cassandra",
    recipe: "lwt",
    fair: Promise::no("waiters of one process queue up, but processes poll for a free lock"),
    token: Promise::yes("a counter in a table of its own, without TTL"),
    survives_failover: Promise::yes("a majority of the replicas has it before it is acknowledged"),
    reports_death: Promise::yes("a holder's mark stays until it is released or replaced"),
    detachable: Promise::yes("the random client id is the proof"),
    lost_in_time: Promise::yes(
        "the holder stops counting on a lease at 90% of its TTL; nodes whose clocks differ by more break this",
    ),
    clock: "the wall clocks of the Cassandra nodes, in whole seconds",
    after_crash: "the lease, until its TTL is over (up to two seconds more)",
    after_disconnect: "the lease: it is renewed over a new connection",
    late_request: "a take that comes within 15s of its timeout is taken back; one that comes later holds the lock for nobody, until its TTL is over",
};

pub(in crate::drivers) static PLAIN: Promises = Promises {
    recipe: "lwt, plain",
    token: Promise::no("the lock table has none"),
    reports_death: Promise::no("an expired row leaves nothing"),
    ..PROMISES
};

pub(super) async fn connect(cluster: Cluster, plain: bool) -> Result<Arc<dyn Driver>, Error> {
    let tables = Tables::open(cluster, plain).await?;
    Ok(Arc::new(Lwt { tables: Arc::new(tables) }))
}

struct Lwt {
    tables: Arc<Tables>,
}

impl Driver for Lwt {
    fn promises(&self) -> &'static Promises {
        if self.tables.tokens.is_some() { &PROMISES } else { &PLAIN }
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
            let hold = LwtHold::new(self.tables.clone(), name.to_owned(), proof.to_owned());
            Ok(Arc::new(hold) as Arc<dyn Hold>)
        })
    }
}
