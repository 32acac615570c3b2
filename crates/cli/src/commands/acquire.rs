//! `holdfast acquire` and `holdfast outcome`: a lock kept by hand, as a script does.

use super::{Common, answer, ending, number, say_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::{hint, text};
use crate::server_flags::problem;
use crate::table::{clean, say};
use crate::wanted::Wanted;
use clap::Args;
use holdfast_client::{Error, Guard};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// The longest time in line that belongs to nobody: the server takes no longer one.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How soon a place in line is free after this program was killed.
const SESSION_TTL: Duration = Duration::from_secs(5);

/// How long the session may take to close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Prints the token and the secret, as lines for a shell. The lock is held until it is released or
/// its time is over, whatever becomes of this program: `holdfast lock` is safer where it fits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eval \"$(holdfast acquire seat-12A --ttl 60s)\"
  holdfast renew seat-12A --ttl 60s
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
    wanted: Wanted,
    /// If this holder dies, nobody is served for so long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    /// A random word of 16 to 128 letters: asked again with it, there is one ticket, in line also
    /// when this program was killed, for a day at most
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Acquire {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let grant = match &self.request_id {
            Some(id) => self.alone(id)?,
            None => crate::serve::runtime()?.block_on(self.in_session())?,
        };
        if let Some(death) = grant.get("needs_recovery").filter(|death| !death.is_null()) {
            let ended = clean(&ending(death));
            eprintln!("holdfast: needs recovery: a holder before ended: {ended}");
        }
        if self.common.json {
            return say_json(&grant);
        }
        let token = number(&grant, "fencing_token").unwrap_or(0);
        let secret = text(&grant, "secret");
        say(&format!("export HOLDFAST_TOKEN={token} HOLDFAST_SECRET={secret}\n"))?;
        Ok(Exit::Success)
    }

    fn mode(&self) -> &'static str {
        match (self.wanted.shared, self.wanted.permits) {
            (true, _) => "shared",
            (false, Some(_)) => "permit",
            (false, None) => "exclusive",
        }
    }

    /// The wait belongs to a session: if this program is killed, it ends soon after.
    async fn in_session(&self) -> Result<Value, Problem> {
        let client = self.common.server.client(SESSION_TTL, &self.wanted.label()).await?;
        let delay = self.lock_delay.unwrap_or_default();
        let more = |lock: holdfast_client::Lock| lock.ttl(self.ttl).lock_delay(delay);
        let served = self.wanted.acquire(&client, &self.name, more).await;
        let grant = served.map(|guard| {
            let grant = self.grant(&guard);
            // Dropped, it would let go: it is kept until somebody releases it, or its time is over.
            std::mem::forget(guard);
            grant
        });
        let _ = timeout(CLOSE_PATIENCE, client.close()).await;
        grant.map_err(|error| {
            let in_line = matches!(error, Error::NotAcquired(_));
            let problem = problem(error);
            if in_line { problem.hint(hint("not_acquired", "")) } else { problem }
        })
    }

    /// As the HTTP API writes it.
    fn grant(&self, guard: &Guard) -> Value {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ending = |ending: &holdfast_client::Ending| {
            json!({
                "how": ending.how.to_string(),
                "token": ending.token,
                "label": ending.label.as_deref().map(shown),
                "note": ending.note.as_deref().map(shown),
            })
        };
        json!({
            "fencing_token": guard.token(),
            "secret": guard.secret().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            "names": guard.names().iter().map(|name| shown(name)).collect::<Vec<_>>(),
            "mode": self.mode(),
            "ttl_ms": duration::millis(self.ttl),
            "ended": guard.ending().map(ending),
            "needs_recovery": guard.deaths().first().map(ending),
        })
    }

    /// The wait belongs to nobody but its id, so that whoever asks again finds it.
    fn alone(&self, id: &str) -> Result<Value, Problem> {
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
        self.common.server.http()?.post_waiting("/v1/grab_lock", &body, wait)
    }
}

/// One that the cluster has not seen by now never takes effect.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast acquire seat-12C --ttl 5s --request-id order-4711-try-1 --json
  holdfast outcome order-4711-try-1")]
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
                "never" => "never seen, and never will take effect".to_owned(),
                "refused" => format!("refused: {}", clean(text(&outcome, "message"))),
                other => clean(other),
            }
        })
    }
}
