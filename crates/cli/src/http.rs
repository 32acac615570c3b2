//! The HTTP API, asked in turn at each server until one answers.

use crate::exit::{Exit, Problem};
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::Agent;

/// Until a connection stands.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Until an answer to something that needs no waiting: a server gives up on its own before.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long one of several servers has in the first round: one that hangs must not cost a lease.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// The longest answer that is read as JSON: a thousand locks with full lines stay far below.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What to do if nobody answers.
pub(crate) const NO_SERVER: &str =
    "is it running? say --server URL or set HOLDFAST_SERVER; `holdfast dev` starts one";

/// The servers of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    agent: Agent,
    servers: Vec<String>,
    password: Option<String>,
    /// How long an answer may take that needs no waiting.
    patience: Duration,
}

/// An answer, whatever it says.
struct Reply {
    status: u16,
    body: Value,
}

impl Http {
    pub(crate) fn new(servers: Vec<String>, password: Option<String>) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self { agent: config.into(), servers, password, patience: PATIENCE }
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The same for what is answered at once or not at all.
    pub(crate) fn hasty(self) -> Self {
        Self { patience: CONNECT_PATIENCE, ..self }
    }

    /// The same for one server only.
    pub(crate) fn at(&self, server: &str) -> Self {
        Self { servers: vec![server.to_owned()], ..self.clone() }
    }

    pub(crate) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Problem> {
        self.each(Duration::ZERO, |server, timeout| {
            let mut request = self.agent.get(format!("{server}{path}"));
            for (key, value) in query {
                request = request.query(*key, *value);
            }
            let request = request.config().timeout_global(Some(timeout)).build();
            request.header("authorization", self.bearer()).call()
        })
    }

    /// An answer that is no JSON.
    pub(crate) fn text(&self, path: &str) -> Result<String, Problem> {
        let mut text = String::new();
        self.stream(path, &[])?.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Asks for a change that has the same effect if it is asked for twice.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Problem> {
        self.post_waiting(path, body, Duration::ZERO)
    }

    /// The same for something that may take so long.
    pub(crate) fn post_waiting(
        &self,
        path: &str,
        body: &Value,
        wait: Duration,
    ) -> Result<Value, Problem> {
        self.each(wait, |server, timeout| {
            let request = self.agent.post(format!("{server}{path}"));
            let request = request.config().timeout_global(Some(timeout)).build();
            let request = request.header("authorization", self.bearer());
            request.content_type("application/json").send(body.to_string())
        })
    }

    /// An answer that comes bit by bit.
    pub(crate) fn stream(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<impl Read + use<>, Problem> {
        let mut failed = Failed::default();
        for server in &self.servers {
            let mut request = self.agent.get(format!("{server}{path}"));
            for (key, value) in query {
                request = request.query(*key, *value);
            }
            // With others to ask, one that hangs is left sooner.
            let head = if self.servers.len() > 1 { self.patience / 3 } else { self.patience };
            let request = request.config().timeout_recv_response(Some(head)).build();
            match request.header("authorization", self.bearer()).call() {
                Ok(response) if response.status() == 200 => {
                    return Ok(response.into_body().into_reader());
                }
                Ok(response) => match read(response) {
                    Ok(reply) if reply.status != 503 => return Err(refused(&reply)),
                    Ok(reply) => failed.unavailable = Some(reply),
                    Err(error) => failed.unreachable = error,
                },
                Err(error) => failed.unreachable = error.to_string(),
            }
        }
        Err(self.failed(&failed))
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.password.as_deref().unwrap_or_default())
    }

    /// Asks one server after the other. With several, each has little time at first: only if none
    /// of them answers, they are asked again with all the time that they may need.
    fn each(
        &self,
        wait: Duration,
        ask: impl Fn(&str, Duration) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Problem> {
        let timeout = self.patience.saturating_add(wait);
        let several = self.servers.len() > 1 && wait.is_zero();
        let first = several.then_some(FIRST_ROUND.min(timeout));
        let mut failed = Failed::default();
        for timeout in first.into_iter().chain([timeout]) {
            for server in &self.servers {
                match ask(server, timeout).map_err(|error| error.to_string()).and_then(read) {
                    Ok(reply) if reply.status == 200 => return Ok(reply.body),
                    Ok(reply) if reply.status == 503 => failed.unavailable = Some(reply),
                    Ok(reply) => return Err(refused(&reply)),
                    Err(error) => failed.unreachable = error,
                }
            }
            if failed.unavailable.is_some() {
                break;
            }
        }
        Err(self.failed(&failed))
    }

    /// A server that answered knows best why nothing was done, even if others could not be reached.
    fn failed(&self, failed: &Failed) -> Problem {
        if let Some(reply) = &failed.unavailable {
            return refused(reply);
        }
        let (servers, why) = (self.servers.join(", "), &failed.unreachable);
        Problem::new(Exit::NoServer, format!("no server answers at {servers}: {why}"))
            .hint(NO_SERVER)
    }
}

/// Why none of the servers did what was asked.
#[derive(Default)]
struct Failed {
    /// The last answer that said "not now" (status 503).
    unavailable: Option<Reply>,
    /// The last error of a connection.
    unreachable: String,
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Result<Reply, String> {
    let status = response.status().as_u16();
    let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let bytes = bytes.map_err(|error| error.to_string())?;
    let body = serde_json::from_slice(&bytes);
    Ok(Reply { status, body: body.map_err(|_| "that is no Holdfast server".to_owned())? })
}

/// The server's word, with the next step in the words of the command line.
fn refused(reply: &Reply) -> Problem {
    let exit = match reply.status {
        400 | 413 => Exit::Usage,
        409 => Exit::NotAcquired,
        503 => Exit::NoServer,
        _ => Exit::Failure,
    };
    let hint = hint(text(&reply.body, "code"), text(&reply.body, "hint"));
    Problem::new(exit, text(&reply.body, "message")).hint(hint)
}

/// The next step, in the words of the command line where the server's are those of its API.
pub(crate) fn hint<'a>(code: &str, said: &'a str) -> &'a str {
    match code {
        "not_acquired" => "say --wait 30s to stand in line, or try later",
        "unauthenticated" | "Unauthenticated" => {
            "say --password-file FILE, or set HOLDFAST_PASSWORD_FILE"
        }
        "not_held" => "`holdfast show NAME` says who holds it",
        "not_owner" => "say --token and --secret as `holdfast acquire` printed them",
        "would_deadlock" => "take all names in one step: holdfast lock NAME NAME... -- CMD",
        "barred" | "ended" | "other_request" => "use a new --request-id to acquire anew",
        "not_changed" => "`holdfast status` shows the members",
        _ => said,
    }
}

/// A text within an answer; nothing if there is none.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
