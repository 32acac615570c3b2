//! What a Redis server's replies and failures mean.

use crate::error::Error;
use redis::{ErrorKind, RedisError, ServerError, Value};

/// A call without a usable reply.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) error: Error,
    /// Whether the server may have executed the request.
    pub(super) may_have_happened: bool,
}

impl Fault {
    /// Adds a hint, if no Redis server answered.
    pub(super) fn with_hint(mut self, hint: &str) -> Self {
        if let Error::Unreachable(why) = &self.error {
            self.error = Error::Unreachable(format!("{why}: {hint}"));
        }
        self
    }

    fn nothing_happened(error: Error) -> Self {
        Self { error, may_have_happened: false }
    }
}

/// The call failed as a whole. `sent`: the request may have been sent.
pub(super) fn failed(address: &str, error: &RedisError, sent: bool) -> Fault {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let (code, detail) = (error.code().unwrap_or("ERR"), error.detail().unwrap_or(""));
            Fault::nothing_happened(meaning(address, code, detail))
        }
        ErrorKind::AuthenticationFailed => {
            let why = "wrong user or password: check those in the URL";
            Fault::nothing_happened(Error::Refused(format!("{address}: {why}")))
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            Fault { may_have_happened: sent, ..strange(address) }
        }
        _ => {
            let error = Error::Unreachable(format!("{address}: {}", io_cause(error)));
            Fault { error, may_have_happened: sent }
        }
    }
}

fn io_cause(error: &RedisError) -> String {
    if error.is_connection_refusal() {
        return "connection refused".to_owned();
    }
    error.to_string()
}

/// The error for a reply that no Redis server sends.
pub(super) fn strange(address: &str) -> Fault {
    let why = format!("{address}: what answers there does not speak the Redis protocol");
    Fault { error: Error::Unreachable(why), may_have_happened: true }
}

/// The server refused, and did nothing.
pub(super) fn refused(address: &str, error: &ServerError) -> Fault {
    Fault::nothing_happened(meaning(address, error.code(), error.details().unwrap_or("")))
}

fn meaning(address: &str, code: &str, detail: &str) -> Error {
    let reply = format!("{address}: {code} {detail}");
    let reply = reply.trim_end_matches([' ', '.']);
    match code {
        "NOAUTH" => Error::Refused(format!(
            "{reply}: put the password into the URL, as in `redis://:PASSWORD@{address}`"
        )),
        "WRONGPASS" => Error::Refused(format!("{reply}: check the user and password in the URL")),
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => Error::Refused(format!(
            "{reply}: this is a node of a Redis Cluster; name independent servers instead"
        )),
        "READONLY" => Error::Refused(format!("{reply}: this is a replica; name the primary")),
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" => Error::Unreachable(reply.to_owned()),
        _ => Error::Refused(reply.to_owned()),
    }
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
