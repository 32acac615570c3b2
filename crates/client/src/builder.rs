//! The settings of a client.

use crate::client::Client;
use crate::code::ErrorCode;
use crate::driver::Setup;
use crate::error::{Error, check_size};
use crate::servers::IntoServers;
use crate::status::with_causes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Default: how long a session may be silent before the server ends it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// Default: how long a request without a limit of its own may take. Long enough for several leader
/// elections.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any real wait, and short enough for time arithmetic.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 365);

/// Locks that one client may hold or wait for. A client that reattaches lists all of them in one
/// message, which the server limits in size.
const TICKETS_MAX: usize = 10_000;

/// A connection that has been idle for this long is pinged, and has as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The settings of a client.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// let client = Client::builder()
///     .session_ttl(Duration::from_secs(5))
///     .label("till 3")
///     .timeout(Duration::from_secs(20))
///     .connect(&servers)
///     .await?;
/// # client.close().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Builder {
    ttl: Duration,
    label: Option<String>,
    user: Option<String>,
    password: Option<String>,
    timeout: Duration,
    tickets_max: usize,
    tls: Tls,
}

/// How servers at `https://` addresses are verified, and the client's own certificate.
#[derive(Clone, Default)]
struct Tls {
    ca: Option<Certificate>,
    identity: Option<Identity>,
    server_name: Option<String>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            ttl: SESSION_TTL,
            label: None,
            user: None,
            password: None,
            timeout: TIMEOUT,
            tickets_max: TICKETS_MAX,
            tls: Tls::default(),
        }
    }

    /// How long the session may be silent before the server ends it and grants its locks to the
    /// next holders. Default: 10s.
    #[must_use]
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The label of the client's tickets, for people who look at the locks. Default: `host:pid`.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The user to log in as. Default: the password is that of the cluster, or a token.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password of the user; without a user, the password of the cluster or a token.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The authority that signs the servers' certificates, as PEM; for `https://` addresses.
    /// Default: those that the system trusts.
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.ca = Some(Certificate::from_pem(pem));
        self
    }

    /// The client's own certificate and its private key, as PEM; for `https://` addresses.
    #[must_use]
    pub fn client_certificate(mut self, cert: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls.identity = Some(Identity::from_pem(cert, key));
        self
    }

    /// The name that must be in the servers' certificates; for `https://` addresses. Default: the
    /// host in the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// How long to retry when no server answers, for requests without a limit of their own; after
    /// that they fail with [`Error::Unreachable`]. Default: 10s. An acquire that waits in line
    /// continues for as long as its session lives.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// How many locks the client may hold or wait for at once; beyond that, [`Error::TooMany`].
    /// Default and maximum: 10,000.
    #[must_use]
    pub fn tickets_max(mut self, tickets: usize) -> Self {
        self.tickets_max = tickets.min(TICKETS_MAX);
        self
    }

    /// Connects to one or more servers, and returns once one of them has opened a session.
    pub async fn connect(self, servers: impl IntoServers) -> Result<Client, Error> {
        let servers = servers.into_servers();
        let servers: Vec<Endpoint> = servers
            .iter()
            .map(|server| endpoint(server, &self.tls))
            .collect::<Result<_, Error>>()?;
        if servers.is_empty() {
            let why = "no server was named: give at least one, as in http://127.0.0.1:7400";
            return Err(Error::BadAddress(why.to_owned()));
        }
        let label = self.label.unwrap_or_else(own_label);
        check_size(label.len())?;
        let setup = Setup {
            servers,
            ttl: self.ttl,
            label: Some(Bytes::from(label)),
            authorization: authorization(self.user.as_deref(), self.password.as_deref())?,
            timeout: self.timeout,
        };
        Client::open(setup, self.tickets_max).await
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password and the private key.
        f.debug_struct("Builder")
            .field("ttl", &self.ttl)
            .field("label", &self.label)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Parses `http://host:port`, with or without the scheme, or `https://host:port`.
fn endpoint(server: &str, tls: &Tls) -> Result<Endpoint, Error> {
    let bad = |why: &str| Error::BadAddress(format!("{server}: {why}"));
    let url = match server.split_once("://") {
        None => format!("http://{server}"),
        Some(("http" | "https", _)) => server.to_owned(),
        Some(_) => {
            let why = "only http:// and https:// are supported, as in http://127.0.0.1:7400";
            return Err(bad(why));
        }
    };
    let endpoint = Endpoint::from_shared(url).map_err(|error| bad(&error.to_string()))?;
    let uri = endpoint.uri();
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("the host is missing, as in http://127.0.0.1:7400"));
    }
    if uri.port_u16().is_none_or(|port| port == 0) {
        let rest = uri.authority().and_then(|whole| whole.as_str().rsplit_once(':'));
        let has_port = rest.is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
        let why = if has_port { "the port must be from 1 to 65535" } else { "the port is missing" };
        return Err(bad(&format!("{why}, as in http://127.0.0.1:7400")));
    }
    let encrypted = uri.scheme_str() == Some("https");
    let endpoint = endpoint
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(2))
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    if !encrypted {
        return Ok(endpoint);
    }
    endpoint.tls_config(tls.config()).map_err(|error| bad(&with_causes(error.to_string(), &error)))
}

impl Tls {
    fn config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(ca) => config.ca_certificate(ca.clone()),
            None => config.with_native_roots(),
        };
        if let Some(identity) = &self.identity {
            config = config.identity(identity.clone());
        }
        match &self.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

/// The default label: `host:pid`.
fn own_label() -> String {
    let host = rustix::system::uname();
    format!("{}:{}", host.nodename().to_string_lossy(), std::process::id())
}

/// The value of the metadata `authorization`; `None` if there is nothing to prove.
fn authorization(
    user: Option<&str>,
    password: Option<&str>,
) -> Result<Option<MetadataValue<Ascii>>, Error> {
    let value = match (user, password) {
        (None, None) => return Ok(None),
        (None, Some(password)) => format!("Bearer {password}"),
        (Some(user), password) => {
            let both = format!("{user}:{}", password.unwrap_or_default());
            format!("Basic {}", STANDARD.encode(both))
        }
    };
    let mut value: MetadataValue<Ascii> = value.parse().map_err(|_| {
        let message = "the password has characters that can't be sent";
        Error::local(ErrorCode::BadRequest, message, "use ASCII letters, digits and punctuation")
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}
