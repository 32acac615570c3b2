//! A client for the HTTP API that tries each server in turn until one answers.

use crate::exit::{Exit, Problem};
use crate::tls_flags::TlsFlags;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::Agent;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for calls that don't wait: a server gives up earlier than this.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout for each of several servers in the first round: one that hangs must not cost a lease.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// The longest JSON reply accepted: a thousand locks with full lines stay far below.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The hint if no server answers.
pub(crate) const NO_SERVER: &str =
    "is it running? use --server URL or set HOLDFAST_SERVER; `holdfast dev` starts one";

/// The servers of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    /// One for each of `servers`.
    agents: Vec<Agent>,
    servers: Vec<String>,
    /// The value of the header `Authorization`.
    authorization: String,
    /// Timeout for calls that don't wait.
    timeout: Duration,
    tls: TlsFlags,
}

/// How one server is requested.
struct Endpoint<'a> {
    url: String,
    agent: &'a Agent,
}

/// A reply, whatever its status.
struct Reply {
    status: u16,
    body: Value,
}

impl Http {
    pub(crate) fn new(
        servers: Vec<String>,
        user: Option<String>,
        password: Option<String>,
        tls: TlsFlags,
    ) -> Result<Self, Problem> {
        let agent = |server: &String| {
            let config = Agent::config_builder()
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .http_status_as_error(false)
                .proxy(None);
            tls.agent(config, server)
        };
        let agents = servers.iter().map(agent).collect::<Result<_, _>>()?;
        let password = password.unwrap_or_default();
        let authorization = match user {
            Some(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            None => format!("Bearer {password}"),
        };
        Ok(Self { agents, servers, authorization, tls, timeout: TIMEOUT })
    }

    /// Every server, as it must be requested and with the agent for it.
    fn each_server(&self) -> impl Iterator<Item = Endpoint<'_>> {
        let agents = self.servers.iter().zip(&self.agents);
        agents.map(|(server, agent)| Endpoint { url: self.tls.url(server), agent })
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The same with a short timeout, for calls that are answered at once or not at all.
    pub(crate) fn with_short_timeout(self) -> Self {
        Self { timeout: CONNECT_TIMEOUT, ..self }
    }

    /// The same for one server only.
    pub(crate) fn at(&self, server: &str) -> Self {
        let known = self.servers.iter().position(|known| known == server);
        let agent = known.and_then(|at| self.agents.get(at)).or_else(|| self.agents.first());
        let agents = agent.into_iter().cloned().collect();
        Self { servers: vec![server.to_owned()], agents, ..self.clone() }
    }

    pub(crate) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Problem> {
        self.each(Duration::ZERO, |server, timeout| {
            let mut request = server.agent.get(format!("{}{path}", server.url));
            for (key, value) in query {
                request = request.query(*key, *value);
            }
            let request = request.config().timeout_global(Some(timeout)).build();
            request.header("authorization", &self.authorization).call()
        })
    }

    /// For a reply that is not JSON.
    pub(crate) fn text(&self, path: &str) -> Result<String, Problem> {
        let mut text = String::new();
        self.stream(path, &[])?.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Sends a request. It may be sent to several servers, so it must be idempotent.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Problem> {
        self.post_waiting(path, body, Duration::ZERO)
    }

    /// The same for a call that may wait for up to `wait`.
    pub(crate) fn post_waiting(
        &self,
        path: &str,
        body: &Value,
        wait: Duration,
    ) -> Result<Value, Problem> {
        self.each(wait, |server, timeout| {
            let request = server.agent.post(format!("{}{path}", server.url));
            let request = request.config().timeout_global(Some(timeout)).build();
            let request = request.header("authorization", &self.authorization);
            request.content_type("application/json").send(body.to_string())
        })
    }

    /// A reply that is read as it arrives.
    pub(crate) fn stream(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<impl Read + use<>, Problem> {
        let mut failed = NoServerAnswered::default();
        for server in self.each_server() {
            let mut request = server.agent.get(format!("{}{path}", server.url));
            for (key, value) in query {
                request = request.query(*key, *value);
            }
            // With other servers to try, one that hangs is given up sooner.
            let head = if self.servers.len() > 1 { self.timeout / 3 } else { self.timeout };
            let request = request.config().timeout_recv_response(Some(head)).build();
            match request.header("authorization", &self.authorization).call() {
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

    /// Tries one server after the other. With several, each gets a short timeout at first; only if
    /// none answers are they tried again with the full one.
    fn each(
        &self,
        wait: Duration,
        ask: impl Fn(&Endpoint<'_>, Duration) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Problem> {
        let timeout = self.timeout.saturating_add(wait);
        let several = self.servers.len() > 1 && wait.is_zero();
        let first = several.then_some(FIRST_ROUND.min(timeout));
        let mut failed = NoServerAnswered::default();
        for timeout in first.into_iter().chain([timeout]) {
            for server in self.each_server() {
                match ask(&server, timeout).map_err(|error| error.to_string()).and_then(read) {
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
    fn failed(&self, failed: &NoServerAnswered) -> Problem {
        if let Some(reply) = &failed.unavailable {
            return refused(reply);
        }
        let (servers, why) = (self.servers.join(", "), &failed.unreachable);
        Problem::new(Exit::NoServer, format!("no server answers at {servers}: {why}"))
            .hint(NO_SERVER)
    }
}

/// Why none of the servers did what was requested.
#[derive(Default)]
struct NoServerAnswered {
    /// The last reply with status 503.
    unavailable: Option<Reply>,
    /// The last connection error.
    unreachable: String,
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Result<Reply, String> {
    let status = response.status().as_u16();
    let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let bytes = bytes.map_err(|error| error.to_string())?;
    let body = serde_json::from_slice(&bytes);
    Ok(Reply { status, body: body.map_err(|_| "that is not a Holdfast server".to_owned())? })
}

/// The server's error, with a hint for the command line.
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

/// The hint in terms of the command line, where the server's is about its API.
pub(crate) fn hint<'a>(code: &str, said: &'a str) -> &'a str {
    match code {
        "not_acquired" => "use --wait 30s to wait in line, or try later",
        "unauthenticated" | "Unauthenticated" => {
            "use --password-file FILE (and --user NAME), or set HOLDFAST_PASSWORD_FILE"
        }
        "not_held" => "`holdfast show NAME` shows who holds it",
        "not_owner" => "use --token and --secret as `holdfast acquire` printed them",
        "would_deadlock" => "take all names in one step: holdfast lock NAME NAME... -- CMD",
        "barred" | "ended" | "other_request" => "use a new --request-id to acquire again",
        "not_changed" if said != "nothing was changed" => "`holdfast status` shows the members",
        _ => said,
    }
}

/// A string in a reply; empty if it is missing.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
