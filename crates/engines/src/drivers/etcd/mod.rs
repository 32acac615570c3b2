//! etcd: a lease for each acquisition, and a line of keys attached to these leases.
//!
//! The keys are those of etcd's own `concurrency.Mutex`, which `etcdctl lock` and the v3 lock
//! service use too, so all of them exclude each other. The steps are done here and not by the lock
//! service because that one writes no value: nobody could see who holds a lock.

mod acquire;
mod calls;
mod client;
mod hold;
mod inspect;

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

use crate::driver::{Acquired, Driver, Hold, Request, Step, within};
use crate::drivers::grpc_tls::TlsFiles;
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use crate::url::EngineUrl;
use calls::{LockKeys, is_lease};
use client::{Client, Credentials};
use hold::EtcdHold;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "etcd",
    recipe: "lease",
    fair: Promise::yes("waiters are served in the order of their create revisions"),
    token: Promise::yes("the create revision of the lock's key"),
    survives_failover: Promise::yes("every write is on a majority of the members"),
    reports_death: Promise::no("a key that expired is gone, like one that was deleted"),
    detachable: Promise::yes("a lease is independent of connections"),
    lost_in_time: Promise::yes("the holder counts 9/10 of the TTL from before it sent the renewal"),
    clock: "the etcd leader's; a new leader starts every lease over",
    after_crash: "the lock stays held for up to one TTL, rounded up to whole seconds",
    after_disconnect: "nothing is lost: the lease goes on, renewed through another member",
    late_request: "nothing: its lease is revoked, or its key was put since",
};

const PORT: u16 = 2379;

/// As etcdctl's flags are called.
const TLS_OPTIONS: [&str; 3] = ["cacert", "cert", "key"];

/// Connects to the first member that answers.
pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    let secure = url.scheme == "etcds";
    url.check_options(if secure { &TLS_OPTIONS } else { &[] })?;
    if !url.path.is_empty() {
        return Err(Error::BadUrl(
            "an etcd:// URL has no path; put a prefix in front of the locks' names instead"
                .to_owned(),
        ));
    }
    let credentials = match (&url.user, &url.password) {
        (Some(user), Some(password)) => {
            Some(Credentials { user: user.clone(), password: password.clone() })
        }
        (None, None) => None,
        _ => return Err(Error::BadUrl("write etcd://USER:PASSWORD@HOST".to_owned())),
    };
    let tls = secure
        .then(|| TlsFiles::read(url, TLS_OPTIONS))
        .transpose()?
        .as_ref()
        .map(TlsFiles::config);
    let mut endpoints = Vec::new();
    for host in &url.hosts {
        let address = host.authority(PORT);
        let bad = |error: tonic::transport::Error| Error::BadUrl(format!("`{address}`: {error}"));
        let endpoint = match &tls {
            None => Endpoint::from_shared(format!("http://{address}")).map_err(bad)?,
            Some(tls) => Endpoint::from_shared(format!("https://{address}"))
                .and_then(|endpoint| endpoint.tls_config(tls.clone()))
                .map_err(bad)?,
        };
        endpoints.push((address, endpoint));
    }
    if endpoints.is_empty() {
        return Err(Error::BadUrl("the host is missing: etcd://127.0.0.1:2379".to_owned()));
    }
    let addresses: Vec<_> = endpoints.iter().map(|(address, _)| address.as_str()).collect();
    let what = format!("etcd at {}", addresses.join(","));
    let client = Client::new(endpoints, credentials, timeout);
    within(timeout, &what, async {
        client.authenticate().await?;
        client.status().await?;
        Ok(client.probe().await?)
    })
    .await?;
    Ok(Arc::new(Etcd { client: Arc::new(client) }))
}

struct Etcd {
    client: Arc<Client>,
}

impl Driver for Etcd {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    /// etcd accepts every name and TTL.
    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(&self.client, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.client, name))
    }

    fn attach<'a>(&'a self, name: &'a str, proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        Box::pin(async move {
            if !is_lease(proof) {
                return Err(Error::Unsupported("this lease is not one of etcd's".to_owned()));
            }
            let key = LockKeys::of(name).key(proof);
            let hold = EtcdHold::attached(self.client.clone(), key, proof.to_owned());
            Ok(Arc::new(hold) as Arc<dyn Hold>)
        })
    }
}
