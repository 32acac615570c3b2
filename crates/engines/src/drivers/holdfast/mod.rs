//! Holdfast itself: fair locks with tokens and endings. Waiting happens in a session of
//! `holdfast-client`, so a process that dies leaves the line. A held lock has its own lease, which
//! any process can renew and release by token and secret (`calls.rs`).

mod acquire;
mod calls;
mod hold;
mod inspect;
mod watch;

use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::drivers::grpc_tls::TlsFiles;
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use crate::url::EngineUrl;
use calls::Calls;
use hold::HoldfastHold;
use holdfast_client::Client;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 7400;

/// An alternative to `holdfast://:PASSWORD@host`.
const PASSWORD_OPTION: &str = "password";

/// With `holdfasts://`: as the command line's flags are called.
const TLS_OPTIONS: [&str; 3] = ["ca", "cert", "key"];
const SERVER_NAME_OPTION: &str = "server_name";

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "holdfast",
    recipe: "lease",
    fair: Promise::yes("one line per lock, replicated with it"),
    token: Promise::yes("one counter for all locks, replicated"),
    survives_failover: Promise::yes("a lock is on the disks of a majority before it is granted"),
    reports_death: Promise::yes("the ending of the last holder is kept with the lock"),
    detachable: Promise::yes("token and secret are the proof"),
    lost_in_time: Promise::yes(
        "counted from before the request was sent; a forced release is noticed at once, but after the fact",
    ),
    clock: "the cluster's own clock, which counts elapsed time and is never set",
    after_crash: "the lock, until its lease is over; a waiter leaves the line after 10s",
    after_disconnect: "the lock, until its lease is over; any node renews it",
    late_request: "a take ends with its session; a renewal that comes more than 5s after its time limit can shorten a lease that was handed over",
};

/// How to reach the servers.
struct Servers {
    /// `http://host:port` or `https://host:port`, at least one.
    addresses: Vec<String>,
    /// The user to log in as; `None` if the password is that of the cluster, or a token.
    user: Option<String>,
    password: Option<String>,
    /// `None` for plain connections.
    tls: Option<Tls>,
    /// The limit of a whole call.
    timeout: Duration,
}

struct Tls {
    files: TlsFiles,
    /// The name in the servers' certificates; `None` for the host in the address.
    server_name: Option<String>,
}

pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    let encrypted = matches!(url.scheme.as_str(), "holdfasts" | "https");
    let mut options = vec![PASSWORD_OPTION];
    if encrypted {
        options.extend(TLS_OPTIONS);
        options.push(SERVER_NAME_OPTION);
    }
    url.check_options(&options)?;
    if url.hosts.is_empty() {
        return Err(Error::BadUrl(format!(
            "the host is missing: write `holdfast://127.0.0.1:{PORT}`"
        )));
    }
    if !url.path.is_empty() {
        return Err(Error::BadUrl(format!("`/{}`: a Holdfast URL has no path", url.path)));
    }
    let scheme = if encrypted { "https" } else { "http" };
    let tls = |files| Tls { files, server_name: url.option(SERVER_NAME_OPTION).map(str::to_owned) };
    // `holdfast://PASSWORD@host` can only mean the password, which may also be a token.
    let (user, password) = match (url.user.clone(), url.password.clone()) {
        (Some(user), Some(password)) if !user.is_empty() => (Some(user), Some(password)),
        (user, password) => (None, password.or(user)),
    };
    let servers = Servers {
        addresses: url
            .hosts
            .iter()
            .map(|host| format!("{scheme}://{}", host.authority(PORT)))
            .collect(),
        user,
        password: url.option(PASSWORD_OPTION).map(str::to_owned).or(password),
        tls: encrypted.then(|| TlsFiles::read(url, TLS_OPTIONS)).transpose()?.map(tls),
        timeout,
    };
    let calls = Calls::new(&servers)?;
    let client = acquire::connect(&servers).await?;
    Ok(Arc::new(Holdfast { client, calls: Arc::new(calls), timeout }))
}

struct Holdfast {
    /// Waits in line.
    client: Client,
    calls: Arc<Calls>,
    timeout: Duration,
}

impl Driver for Holdfast {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(self, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.calls, name))
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            let hold = HoldfastHold::of_proof(&self.calls, name, proof)?;
            Ok(Arc::new(hold) as Arc<dyn Hold>)
        })
    }

    /// An abandoned acquire leaves the line with the session at the latest.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.client.clone().close())
    }
}
