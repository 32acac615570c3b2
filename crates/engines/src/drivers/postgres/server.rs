//! The server named by a URL, and how to open a connection to it.

use super::errors::{connect_error, no_answer};
use super::tls;
use crate::error::Error;
use crate::url::EngineUrl;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, Client, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

const PORT: u16 = 5432;

/// A connection whose peer is silent for this long gets keepalive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

/// A connection whose peer acknowledges nothing for this long is closed.
const USER_TIMEOUT: Duration = Duration::from_secs(25);

pub(super) type Connection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

#[derive(Clone)]
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    /// The limit for each call.
    pub(super) timeout: Duration,
    /// Its name in errors.
    pub(super) name: String,
}

impl Server {
    pub(super) fn from_url(url: &EngineUrl, timeout: Duration) -> Result<Self, Error> {
        let mut config = Config::new();
        if url.hosts.is_empty() {
            return Err(Error::BadUrl(
                "the host is missing: `postgres://host/database`".to_owned(),
            ));
        }
        for host in &url.hosts {
            // As in libpq, this is the folder of a Unix socket:
            // `postgres://%2Frun%2Fpostgresql/db`.
            if host.name.to_ascii_lowercase().starts_with("%2f") {
                config.host_path(host.name.replace("%2F", "/").replace("%2f", "/"));
            } else {
                config.host(&host.name);
            }
            config.port(host.port.unwrap_or(PORT));
        }
        if url.hosts.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if let Some(user) = &url.user {
            config.user(user);
        }
        if let Some(password) = &url.password {
            config.password(password);
        }
        if !url.path.is_empty() {
            config.dbname(&url.path);
        }
        let mode = url.option("sslmode").unwrap_or("prefer");
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" | "verify-full" => SslMode::Require,
            other => {
                return Err(Error::BadUrl(format!(
                    "`sslmode={other}` is not supported: write `disable`, `prefer`, `require` or `verify-full`"
                )));
            }
        });
        let tls = tls::connector(mode == "verify-full", url.option("sslrootcert"))?;
        config.connect_timeout(timeout).keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_IDLE / 2).keepalives_retries(3);
        config.tcp_user_timeout(USER_TIMEOUT);
        let hosts: Vec<_> = url.hosts.iter().map(|host| host.authority(PORT)).collect();
        Ok(Self { config, tls, timeout, name: format!("PostgreSQL at {}", hosts.join(",")) })
    }

    pub(super) async fn open(&self, label: &str) -> Result<(Client, Connection), Error> {
        let mut config = self.config.clone();
        config.application_name(short(label));
        match timeout(self.timeout, config.connect(self.tls.clone())).await {
            Ok(Ok(open)) => Ok(open),
            Ok(Err(error)) => Err(connect_error(&self.name, &error)),
            Err(_) => Err(no_answer(&self.name, self.timeout)),
        }
    }

    pub(super) async fn cancel(&self, token: CancelToken) {
        // The cancelled query itself tells whether this worked.
        let _ = timeout(self.timeout, token.cancel_query(self.tls.clone())).await;
    }
}

/// As much of a label as fits into PostgreSQL's `application_name`.
fn short(label: &str) -> &str {
    const BYTES_MAX: usize = 63;
    &label[..label.floor_char_boundary(BYTES_MAX)]
}
