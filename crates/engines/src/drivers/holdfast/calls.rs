//! Calls that need no session: any server accepts them, and a lease is identified by its name,
//! token and secret. They may be retried.

use super::{Servers, Tls};
use crate::driver::within;
use crate::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// The most time that one server gets before the next one is tried.
const ATTEMPT: Duration = Duration::from_secs(3);

pub(super) struct Calls {
    servers: Vec<(String, Channel)>,
    authorization: Option<MetadataValue<Ascii>>,
    timeout: Duration,
    /// The server that answered last.
    best: AtomicUsize,
}

impl Calls {
    /// Connects on first use.
    pub(super) fn new(servers: &Servers) -> Result<Self, Error> {
        let Servers { addresses, user, password, tls, timeout } = servers;
        let tls = tls.as_ref().map(|Tls { files, server_name }| match server_name {
            Some(name) => files.config().domain_name(name),
            None => files.config(),
        });
        let connect = |address: &String| {
            let bad = |error| Error::BadUrl(format!("{address}: {error}"));
            let endpoint = Endpoint::from_shared(address.clone()).map_err(bad)?;
            let endpoint = endpoint.tcp_nodelay(true).connect_timeout(ATTEMPT.min(*timeout));
            let endpoint = match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(bad)?,
                None => endpoint,
            };
            Ok((address.clone(), endpoint.connect_lazy()))
        };
        let authorization = |password: &String| {
            let why = "the password has control characters, which can't be sent";
            let value = match user {
                Some(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
                None => format!("Bearer {password}"),
            };
            let value: Result<MetadataValue<Ascii>, _> = value.parse();
            value.map_err(|_| Error::BadUrl(why.to_owned()))
        };
        Ok(Self {
            servers: addresses.iter().map(connect).collect::<Result<_, Error>>()?,
            authorization: password.as_ref().map(authorization).transpose()?,
            timeout: *timeout,
            best: AtomicUsize::new(0),
        })
    }

    /// How long a renewal may take: it must leave time for another one before the lease ends.
    pub(super) fn renewal_limit(&self, ttl: Duration) -> Duration {
        self.timeout.min(ttl / 3)
    }

    pub(super) async fn renew(&self, own: &proto::TicketRef, ttl: Duration) -> Result<(), Error> {
        let ttl_ms = Some(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let renew = proto::RenewRequest { own: Some(own.clone()), ttl_ms };
        let limit = self.renewal_limit(ttl);
        let renewing = |mut server: HoldfastClient<Channel>, request| async move {
            server.renew(request).await
        };
        self.call(limit, renew, renewing).await.map(drop)
    }

    pub(super) async fn release(&self, own: &proto::TicketRef) -> Result<(), Error> {
        let releasing = |mut server: HoldfastClient<Channel>, request| async move {
            server.release(request).await
        };
        self.call(self.timeout / 2, own.clone(), releasing).await.map(drop)
    }

    pub(super) async fn show(&self, name: &Bytes) -> Result<proto::Lock, Error> {
        let show = proto::ShowRequest { name: name.clone(), stale: false };
        let showing = |mut server: HoldfastClient<Channel>, request| async move {
            server.show(request).await
        };
        self.call(self.timeout, show, showing).await
    }

    /// Tries one server after the other, each once.
    async fn call<M: Clone, R, F>(
        &self,
        limit: Duration,
        message: M,
        call: impl Fn(HoldfastClient<Channel>, Request<M>) -> F,
    ) -> Result<R, Error>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let until = Instant::now() + limit;
        let mut trouble = String::new();
        for _ in 0..self.servers.len() {
            let best = self.best.load(Ordering::Relaxed);
            let Some((name, channel)) = self.servers.get(best % self.servers.len()) else { break };
            let mut request = Request::new(message.clone());
            if let Some(authorization) = &self.authorization {
                request.metadata_mut().insert("authorization", authorization.clone());
            }
            let limit = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
            let call = call(HoldfastClient::new(channel.clone()), request);
            let answer =
                async { Ok(call.await.map_err(|status| meaning(name, &status))?.into_inner()) };
            match within(limit, name, answer).await {
                Err(Error::Unreachable(why)) => trouble = why,
                definite => return definite,
            }
            self.best.store(best.wrapping_add(1), Ordering::Relaxed);
        }
        Err(Error::Unreachable(trouble))
    }
}

/// Servers send `code: message (hint)`.
fn meaning(server: &str, status: &Status) -> Error {
    let text = status.message().to_owned();
    match (status.code(), text.split_once(": ")) {
        (
            Code::FailedPrecondition | Code::PermissionDenied,
            Some(("not_held" | "not_owner", why)),
        ) => Error::NotHeld(why.to_owned()),
        (
            Code::InvalidArgument
            | Code::NotFound
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::ResourceExhausted
            | Code::OutOfRange,
            _,
        ) => Error::Refused(format!("{server}: {text}")),
        _ => Error::Unreachable(format!("{server}: {text}")),
    }
}
