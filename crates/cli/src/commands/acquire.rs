//! `holdfast acquire` and `holdfast outcome`: a lock kept by hand, as a script does.

use super::{Common, answer, ending, number, say_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::server_flags::own_label;
use crate::table::{clean, say};
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// The longest time in line: the server takes no longer one.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

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
    /// How long to stand in line; a day unless said otherwise
    #[arg(long, value_parser = duration::parse, conflicts_with = "try_once")]
    wait: Option<Duration>,
    /// Don't wait: exit with 75 if it is not free
    #[arg(long = "try")]
    try_once: bool,
    /// Together with others that ask for it shared
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// One of so many permits
    #[arg(long, value_name = "N")]
    permits: Option<u32>,
    /// A word left on the lock: the next holder hears it if this one dies
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// What the holder is called; HOST:PID unless said otherwise
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// If this holder dies, nobody is served for so long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    /// A random word of 16 to 128 letters: asked again with it, there is one ticket
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Acquire {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let wait = if self.try_once { Duration::ZERO } else { self.wait.unwrap_or(WAIT_MAX) };
        let mode = match (self.shared, self.permits) {
            (true, _) => "shared",
            (false, Some(_)) => "permit",
            (false, None) => "exclusive",
        };
        let body = json!({
            "names": self.name,
            "ttl_ms": duration::millis(self.ttl),
            "wait_ms": duration::millis(wait.min(WAIT_MAX)),
            "mode": mode,
            "permits": self.permits,
            "note": self.note,
            "label": self.label.unwrap_or_else(own_label),
            "lock_delay_ms": self.lock_delay.map_or(0, duration::millis),
            // With an id of its own, asking another server is asking again.
            "request_id": self.request_id.map_or_else(request_id, Ok)?,
        });
        let http = self.common.server.http()?;
        let grant = http.post_waiting("/v1/grab_lock", &body, wait)?;
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
}

fn request_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
