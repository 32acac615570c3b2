//! A lease table: one row per lock, never deleted, so that tokens never start over.
//!
//! Take, extend and release are one statement each, and use the database's clock. A row that
//! expired without a release is a death, and the next holder learns of it. A waiter sleeps until it
//! is notified of a release (`listener.rs`) or the holder's lease ends; of the waiters in one
//! process, only the first one tries (`drivers/local_queue.rs`).

mod acquire;
mod hold;
mod inspect;
mod listener;
mod table;

use super::server::Server;
use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::drivers::local_queue::LocalQueues;
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use hold::LeaseHold;
use listener::Listener;
use std::sync::Arc;
use table::Table;

/// The default table name.
pub(super) const TABLE: &str = "holdfast_locks";

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "postgres",
    recipe: "lease",
    fair: Promise::no("waiters of one process queue up, but processes race for a released lock"),
    token: Promise::yes("a counter in the lock's row, which is never deleted"),
    survives_failover: Promise::yes(
        "a lock is on disk before it is acknowledged; a standby has it if replication is synchronous",
    ),
    reports_death: Promise::yes("a lease that ran out without a release stays in the row"),
    detachable: Promise::yes("the lease's random owner id is the proof"),
    lost_in_time: Promise::yes(
        "the holder stops counting on a lease at 90% of its TTL; setting the database's clock forward breaks this",
    ),
    clock: "the database server's wall clock",
    after_crash: "the lease, until its TTL is over",
    after_disconnect: "the lease: it is renewed over a new connection",
    late_request: "nothing: a new session first ends the one before",
};

pub(super) async fn connect(server: Server, table: &str) -> Result<Arc<dyn Driver>, Error> {
    let table = Arc::new(Table::open(server.clone(), table).await?);
    let lines = Arc::new(LocalQueues::default());
    let listener = Listener::start(server, table.channel().to_owned(), lines.clone());
    Ok(Arc::new(Leases { table, lines, _listener: listener }))
}

struct Leases {
    table: Arc<Table>,
    lines: Arc<LocalQueues>,
    _listener: Listener,
}

impl Driver for Leases {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(&self.table, &self.lines, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.table, name))
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            let hold = LeaseHold::new(self.table.clone(), name.to_owned(), proof.to_owned());
            Ok(Arc::new(hold) as Arc<dyn Hold>)
        })
    }
}
