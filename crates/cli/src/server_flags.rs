//! How client commands reach a server: its address and the password.

use crate::exit::{Exit, Problem};
use crate::http::{self, Http};
use crate::tls_flags::TlsFlags;
use clap::Args;
use holdfast_client::{Error, ErrorCode};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The longest password file accepted.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// How long to look for a server that answers: longer than one takes to restart.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Which cluster is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerFlags {
    /// The servers of one cluster; any that answers will do
    #[arg(
        long,
        value_name = "URL,...",
        env = "HOLDFAST_SERVER",
        default_value = "http://127.0.0.1:7400",
        value_delimiter = ',',
        value_parser = parse_server,
        help_heading = "Server"
    )]
    server: Vec<String>,
    /// The user to log in as. Default: the password is that of the cluster, or a token
    #[arg(long, value_name = "NAME", env = "HOLDFAST_USER", help_heading = "Server")]
    user: Option<String>,
    /// A file whose first line is the user's password, the cluster's password, or a token
    #[arg(long, value_name = "FILE", env = "HOLDFAST_PASSWORD_FILE", help_heading = "Server")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
}

impl ServerFlags {
    /// In the format of HOLDFAST_SERVER.
    pub(crate) fn words(&self) -> String {
        self.server.join(",")
    }

    /// The user to log in as.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password file's absolute path, for a process with another working directory.
    pub(crate) fn password_file(&self) -> Option<PathBuf> {
        let file = self.password_file.as_ref()?;
        Some(std::path::absolute(file).unwrap_or_else(|_| file.clone()))
    }

    /// For a process with another working directory.
    pub(crate) fn tls_variables(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        self.tls.variables()
    }

    pub(crate) fn password(&self) -> Result<Option<String>, Problem> {
        let Some(file) = &self.password_file else { return Ok(None) };
        let wrong = |why: String| {
            Problem::new(Exit::Usage, format!("can't read the password: {}: {why}", file.display()))
                .hint("use --password-file FILE, a file whose first line is the password")
        };
        let about = fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if about.len() > PASSWORD_BYTES_MAX {
            return Err(wrong(format!("longer than {PASSWORD_BYTES_MAX} bytes")));
        }
        let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        match text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
            Some(password) => Ok(Some(password.to_owned())),
            None => Err(wrong("its first line is empty".to_owned())),
        }
    }

    /// Whether the servers speak TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.server.iter().any(|server| server.starts_with("https://"))
    }

    /// For single requests.
    pub(crate) fn http(&self) -> Result<Http, Problem> {
        Http::new(self.server.clone(), self.user.clone(), self.password()?, self.tls.clone())
    }

    /// Opens a session with the native client.
    pub(crate) async fn client(
        &self,
        ttl: Duration,
        label: &str,
    ) -> Result<holdfast_client::Client, Problem> {
        let mut builder = holdfast_client::Client::builder().session_ttl(ttl).label(label);
        if let Some(password) = self.password()? {
            builder = builder.password(password);
        }
        if let Some(user) = &self.user {
            builder = builder.user(user);
        }
        builder = self.tls.client(builder)?;
        builder.timeout(TIMEOUT).connect(&self.server).await.map_err(problem)
    }
}

/// Converts an error of the native client, with a hint for the command line.
pub(crate) fn problem(error: Error) -> Problem {
    match error {
        Error::NotAcquired(why) => Problem::new(Exit::NotAcquired, why),
        Error::Refused { code, message, hint, .. } => {
            let exit = match code {
                ErrorCode::BadRequest | ErrorCode::TooLarge => Exit::Usage,
                _ => Exit::NotAcquired,
            };
            Problem::new(exit, message).hint(http::hint(code.as_str(), &hint))
        }
        Error::Unreachable(why) => {
            Problem::new(Exit::NoServer, format!("no server answers: {why}")).hint(http::NO_SERVER)
        }
        Error::BadAddress(why) => Problem::usage(why),
        error => Problem::new(Exit::NotAcquired, error.to_string()),
    }
}

fn parse_server(text: &str) -> Result<String, String> {
    let text = text.trim();
    let wrong = || "write it as in http://127.0.0.1:7400 or https://127.0.0.1:7400".to_owned();
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: ureq::http::Uri = url.parse().map_err(|_| wrong())?;
    let whole = uri.host().is_some_and(|host| !host.is_empty()) && matches!(uri.path(), "" | "/");
    let fits = whole && matches!(uri.scheme_str(), Some("http" | "https"));
    if fits { Ok(url.trim_end_matches('/').to_owned()) } else { Err(wrong()) }
}

/// The default label of a holder: `HOST:PID`.
pub(crate) fn own_label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::parse_server;

    #[test]
    fn servers_are_parsed_as_addresses() {
        assert_eq!(parse_server("http://a:7400/"), Ok("http://a:7400".to_owned()));
        assert_eq!(parse_server(" a:7400"), Ok("http://a:7400".to_owned()));
        assert_eq!(parse_server("https://a:7400/"), Ok("https://a:7400".to_owned()));
        for wrong in ["", "http://", "ftp://a", "http://a/v1", "https://a/v1", "a b"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }
}
