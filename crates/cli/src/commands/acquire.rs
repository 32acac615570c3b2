//! `holdfast acquire` and `holdfast outcome`: a lock whose token and secret the caller keeps, for
//! scripts.

use super::{Common, answer, ending, number};
use crate::acquire_flags::{AcquireFlags, Acquired};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::{hint, text};
use crate::lock::Signals;
use crate::server_flags::problem;
use crate::stderr::eprint_line;
use crate::table::clean;
use clap::Args;
use holdfast_client::{Error, Guard};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for a request that belongs to no session: the server accepts no longer one.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How soon the place in line is freed if this program is killed.
const SESSION_TTL: Duration = Duration::from_secs(5);

/// How long closing the session may take. By then an abandoned acquire has been withdrawn, or
/// released if it was granted in the meantime.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prints the token and the secret as a line for a shell to evaluate. The lock is held until it is
/// released or its time is over, whatever becomes of this program: `holdfast lock` is safer where
/// it fits.
///
/// If the lock is not acquired, the line makes a script that evaluates it exit with the same code
/// as this program, and an interactive shell go on with that status.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  grant=$(holdfast acquire seat-12A --ttl 60s) || exit
  eval \"$grant\"
  holdfast renew seat-12A --ttl 60s || exit
  holdfast release seat-12A

  holdfast acquire seat-12B --ttl 5s --try --json")]
pub(crate) struct Acquire {
    /// The lock; several are taken in one step
    #[arg(required = true)]
    name: Vec<String>,
    /// How long it is held unless it is renewed or released
    #[arg(long, value_parser = duration::parse)]
    ttl: Duration,
    #[command(flatten)]
    wanted: AcquireFlags,
    /// If this holder dies, delay the next grant by this long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    /// A random string of 16 to 128 bytes, as from `uuidgen`: new for each acquire, and as secret
    /// as the lock. Repeated with the same one, the request has one effect; it stays in line when
    /// this program is killed, for a day at most
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Acquire {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let bug = |_| Err(Problem::new(Exit::Failure, "this is a bug in holdfast"));
        let done = catch_unwind(AssertUnwindSafe(|| self.take())).unwrap_or_else(bug);
        if let Err(problem) = &done
            && !self.common.json
        {
            stop_shell(problem.exit);
        }
        done
    }

    fn take(&self) -> Result<Exit, Problem> {
        let runtime = crate::serve::runtime()?;
        let grant = runtime.block_on(async {
            let mut signals = Signals::listen()?;
            match &self.request_id {
                Some(id) => self.alone(id, &mut signals).await,
                None => self.in_session(&mut signals).await,
            }
        });
        // An abandoned request may still be waiting for its reply.
        runtime.shutdown_background();
        let grant = grant?;
        if let Some(death) = grant.get("needs_recovery").filter(|death| !death.is_null()) {
            let ended = clean(&ending(death));
            eprint_line!("holdfast: needs recovery: a holder before ended: {ended}");
        }
        let token = number(&grant, "fencing_token").unwrap_or(0);
        let secret = text(&grant, "secret");
        let line = if self.common.json {
            format!("{grant}\n")
        } else {
            format!("export HOLDFAST_TOKEN={token} HOLDFAST_SECRET={secret}\n")
        };
        let mut out = stdout().lock();
        let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) else {
            return Ok(Exit::Success);
        };
        let problem = Problem::from(format!("can't print the token: {error}"));
        if self.request_id.is_some() {
            return Err(problem.hint("the lock is held: ask again with the same --request-id"));
        }
        // Nobody else knows the secret, so nobody else could release it.
        let http = self.common.server.http()?;
        let body = json!({ "name": self.name.first(), "fencing_token": token, "secret": secret });
        Err(problem.hint(match http.post("/v1/release_lock", &body) {
            Ok(_) => "the lock was released".to_owned(),
            Err(why) => format!("not released: {}; it is held until its lease ends", why.message),
        }))
    }

    fn mode(&self) -> &'static str {
        match (self.wanted.shared, self.wanted.permits) {
            (true, _) => "shared",
            (false, Some(_)) => "permit",
            (false, None) => "exclusive",
        }
    }

    /// The wait belongs to a session: if this program is killed, it ends soon after.
    async fn in_session(&self, signals: &mut Signals) -> Result<Value, Problem> {
        let label = self.wanted.label();
        let client = tokio::select! {
            client = self.common.server.client(SESSION_TTL, &label) => client?,
            signal = signals.end() => return Err(interrupted(signal)),
        };
        let delay = self.lock_delay.unwrap_or_default();
        let more = |lock: holdfast_client::Lock| lock.ttl(self.ttl).lock_delay(delay);
        let grant = match self.wanted.acquire(&client, &self.name, more, signals).await {
            Acquired::Answered(Ok(guard)) => {
                let grant = self.grant(&guard);
                // Dropping the guard would release the lock: it is to be held until somebody
                // releases it or its TTL is over.
                std::mem::forget(guard);
                Ok(grant)
            }
            Acquired::Answered(Err(error)) => {
                let in_line = matches!(error, Error::NotAcquired(_));
                let problem = problem(error);
                Err(if in_line { problem.hint(hint("not_acquired", "")) } else { problem })
            }
            Acquired::Interrupted(signal, guard) => {
                if let Some(guard) = guard {
                    let _ = timeout(CLOSE_TIMEOUT, guard.release()).await;
                }
                Err(interrupted(signal))
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, client.close()).await;
        grant
    }

    /// In the HTTP API's format.
    fn grant(&self, guard: &Guard) -> Value {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ending = |ending: &holdfast_client::Ending| {
            json!({
                "how": ending.how.to_string(),
                "token": ending.token.get(),
                "label": ending.label.as_deref().map(shown),
                "note": ending.note.as_deref().map(shown),
            })
        };
        json!({
            "fencing_token": guard.token().get(),
            "secret": guard.secret().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            "names": guard.names().iter().map(|name| shown(name)).collect::<Vec<_>>(),
            "mode": self.mode(),
            "ttl_ms": duration::millis(self.ttl),
            "ended": guard.ending().map(ending),
            "needs_recovery": guard.deaths().first().map(ending),
        })
    }

    /// The wait belongs to its request id and to no session, so that a retry finds it.
    async fn alone(&self, id: &str, signals: &mut Signals) -> Result<Value, Problem> {
        let wait = self.wanted.wait().map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX));
        let body = json!({
            "names": self.name,
            "ttl_ms": duration::millis(self.ttl),
            "wait_ms": duration::millis(wait),
            "mode": self.mode(),
            "permits": self.wanted.permits,
            "note": self.wanted.note,
            "label": self.wanted.label(),
            "lock_delay_ms": self.lock_delay.map_or(0, duration::millis),
            "request_id": id,
        });
        let http = self.common.server.http()?;
        let ask = move || http.post_waiting("/v1/grab_lock", &body, wait);
        tokio::select! {
            asked = tokio::task::spawn_blocking(ask) => {
                asked.unwrap_or_else(|error| Err(error.to_string().into()))
            }
            signal = signals.end() => {
                Err(interrupted(signal).hint("the request stays in line: see `holdfast outcome`"))
            }
        }
    }
}

fn interrupted(signal: i32) -> Problem {
    Problem::new(Exit::of_signal(signal), format!("interrupted by signal {signal}"))
}

/// Makes a shell that evaluates this program's output stop: evaluating an empty string would
/// succeed, and the script would go on without the lock. A script exits with the code; an
/// interactive shell only gets it as its status.
pub(crate) fn stop_shell(exit: Exit) {
    let mut out = stdout().lock();
    if !out.is_terminal() {
        let code = exit.code();
        // If nobody can read this, nobody evaluates it.
        let _ = writeln!(out, "case $- in *i*) (exit {code});; *) exit {code};; esac");
        let _ = out.flush();
    }
}

/// One that the cluster has not seen by now never takes effect.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  id=$(cat /proc/sys/kernel/random/uuid)
  holdfast acquire seat-12C --ttl 5s --request-id \"$id\" --json
  holdfast outcome \"$id\"")]
pub(crate) struct Outcome {
    /// As `holdfast acquire --request-id` had it
    request_id: String,
    #[command(flatten)]
    common: Common,
}

impl Outcome {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let body = json!({ "request_id": self.request_id });
        let outcome = self.common.server.http()?.post("/v1/outcome", &body)?;
        answer(self.common.json, &outcome, || {
            let token = number(&outcome, "fencing_token").unwrap_or(0);
            match text(&outcome, "outcome") {
                "held" => {
                    let grant = outcome.get("grant").unwrap_or(&outcome);
                    let token = number(grant, "fencing_token").unwrap_or(0);
                    format!("held, token {token}, secret {}", text(grant, "secret"))
                }
                "waiting" => {
                    let place = number(&outcome, "place").unwrap_or(0);
                    format!("waiting at place {place}, ticket {token}")
                }
                "ended" => format!("ended: {}, token {token}", text(&outcome, "how")),
                "never" => "never seen, and will never take effect".to_owned(),
                "refused" => format!("refused: {}", clean(text(&outcome, "message"))),
                other => clean(other),
            }
        })
    }
}
