//! Locks inside one process: for tests, and for programs that may grow into several processes.
//!
//! `memory:` is one namespace for the whole process; each `memory://NAME` is a separate one.

mod acquire;
mod hold;
mod space;

use crate::driver::{Acquired, Driver, Hold, Request, Step, label_of};
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use crate::url::EngineUrl;
use hold::MemoryHold;
use space::Space;
use std::sync::Arc;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "memory",
    recipe: "line",
    fair: Promise::yes("waiters are served in the order of their tickets"),
    token: Promise::yes("the number of the ticket"),
    survives_failover: Promise::no("everything ends with the process"),
    reports_death: Promise::yes("an expired lease is remembered until the next holder"),
    detachable: Promise::yes("within the process"),
    lost_in_time: Promise::yes("holder and lock share one clock"),
    clock: "the process's boot clock",
    after_crash: "nothing: the locks were in the process",
    after_disconnect: "there is no connection",
    late_request: "there is no connection",
};

pub(super) fn connect(url: &EngineUrl) -> Result<Arc<dyn Driver>, Error> {
    url.check_options(&[])?;
    let space = match url.hosts.as_slice() {
        [] => "",
        [host] if host.port.is_none() && url.path.is_empty() => &host.name,
        _ => return Err(Error::BadUrl("write `memory:` or `memory://NAME`".to_owned())),
    };
    Ok(Arc::new(Memory { space: Space::named(space) }))
}

struct Memory {
    space: Arc<Space>,
}

impl Driver for Memory {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(async move { Ok(acquire::acquire(&self.space, request).await) })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(async move {
            Ok(self.space.with_line(name, |line| {
                let holder = line.tickets.front()?;
                Some(Inspection {
                    holder: Some(label_of(&holder.owner)),
                    token: Some(holder.token),
                    line: Some(line.tickets.iter().skip(1).map(|t| label_of(&t.owner)).collect()),
                })
            }))
        })
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            let (space, name) = (self.space.clone(), name.to_owned());
            Ok(Arc::new(MemoryHold { space, name, owner: proof.to_owned() }) as Arc<dyn Hold>)
        })
    }
}
