//! An HTTP client.

use super::eventually;
use serde_json::Value;
use std::time::Duration;
use ureq::Agent;

/// A client; it keeps connections open between requests.
pub(crate) struct Http {
    agent: Agent,
}

/// A reply, whatever its status.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Reply {
    /// The code of an error.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

impl Http {
    /// A client with this timeout.
    pub(crate) fn new(timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self { agent: config.into() }
    }

    /// An error means that there was no reply: nobody knows whether the request arrived.
    pub(crate) fn get(&self, port: u16, path: &str) -> Result<Reply, String> {
        read(self.agent.get(format!("http://127.0.0.1:{port}{path}")).call())
    }

    pub(crate) fn post(&self, port: u16, path: &str, body: &Value) -> Result<Reply, String> {
        let request = self.agent.post(format!("http://127.0.0.1:{port}{path}"));
        read(request.content_type("application/json").send(body.to_string()))
    }

    /// The bytes of a download.
    pub(crate) fn download(&self, port: u16, path: &str) -> Result<Vec<u8>, String> {
        let got = self.agent.get(format!("http://127.0.0.1:{port}{path}")).call();
        let mut got = got.map_err(|error| error.to_string())?;
        got.body_mut().read_to_vec().map_err(|error| error.to_string())
    }

    /// Retries until the status is 200: only for requests that may be repeated.
    pub(crate) fn get_ok(&self, port: u16, path: &str) -> Value {
        eventually(&format!("{path} at port {port} answers"), || {
            self.get(port, path).ok().filter(|reply| reply.status == 200).map(|reply| reply.body)
        })
    }

    /// The same, for a change.
    pub(crate) fn post_ok(&self, port: u16, path: &str, body: &Value) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{path} {body} at port {port} is done"), || {
            let reply = self.post(port, path, body).ok()?;
            if reply.status == 200 {
                return Some(reply.body);
            }
            if reply.body != last {
                eprintln!("{path} {body}: {}", reply.body);
                last = reply.body;
            }
            None
        })
    }

    /// Takes a lock that must be free by now, for an hour.
    pub(crate) fn grab(&self, port: u16, name: &str) -> Held {
        let request_id = format!("{name}/{}", unique());
        let body =
            serde_json::json!({ "name": name, "ttl_ms": 3_600_000, "request_id": request_id });
        Held::of(name, &self.post_ok(port, "/v1/grab_lock", &body))
    }

    /// Releases a lock. If a reply was lost, it is enough that the lock is no longer held.
    pub(crate) fn let_go(&self, port: u16, held: &Held) {
        let mut tried = false;
        eventually(&format!("{held:?} is released"), || {
            let reply = self.post(port, "/v1/release_lock", &held.to_release());
            let gone = |reply: &Reply| reply.status == 200 || (tried && reply.code() == "not_held");
            let done = reply.as_ref().is_ok_and(gone);
            tried = true;
            done.then_some(())
        });
    }

    /// The tokens of a lock's current holders.
    pub(crate) fn holders(&self, port: u16, name: &str) -> Vec<u64> {
        tokens(&self.get_ok(port, &format!("/v1/lock?name={name}"))["holders"])
    }
}

/// A lock held by a test.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) secret: String,
}

impl Held {
    /// From the body of a grant.
    pub(crate) fn of(name: &str, grant: &Value) -> Self {
        Self {
            name: name.to_owned(),
            token: grant["fencing_token"].as_u64().expect("a grant has a token"),
            secret: grant["secret"].as_str().expect("a grant has a secret").to_owned(),
        }
    }

    pub(crate) fn to_release(&self) -> Value {
        serde_json::json!({ "name": self.name, "fencing_token": self.token, "secret": self.secret })
    }
}

pub(crate) fn tokens(tickets: &Value) -> Vec<u64> {
    let tickets = tickets.as_array().into_iter().flatten();
    tickets.filter_map(|ticket| ticket["token"].as_u64()).collect()
}

/// Different for each call, in this process and in others.
pub(crate) fn unique() -> String {
    use std::hash::{BuildHasher, RandomState};
    let draw = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", draw(), draw())
}

fn read(got: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Reply, String> {
    let mut got = got.map_err(|error| error.to_string())?;
    let status = got.status().as_u16();
    let text = got.body_mut().read_to_string().map_err(|error| error.to_string())?;
    let body = serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
    Ok(Reply { status, body })
}
