//! What the holder of a lock does with it: release, renew, note, recovered.

use super::{Common, answer};
use crate::duration;
use crate::exit::{Exit, Problem};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Which lock, and the proof that it is ours.
#[derive(Debug, Args)]
pub(crate) struct TicketArgs {
    /// The lock
    name: String,
    /// The fencing token that came with it
    #[arg(long, env = "HOLDFAST_TOKEN")]
    token: u64,
    /// The secret that came with it
    #[arg(long, env = "HOLDFAST_SECRET", hide_env_values = true)]
    secret: String,
    #[command(flatten)]
    common: Common,
}

impl TicketArgs {
    fn ask(
        &self,
        path: &str,
        more: &[(&str, Value)],
        words: impl FnOnce(&Value) -> String,
    ) -> Result<Exit, Problem> {
        let mut body =
            json!({ "name": self.name, "fencing_token": self.token, "secret": self.secret });
        for (field, value) in more {
            body[*field] = value.clone();
        }
        let said = self.common.server.http()?.post(path, &body)?;
        answer(self.common.json, &said, || words(&said))
    }
}

/// Token and secret come from HOLDFAST_TOKEN and HOLDFAST_SECRET, as `acquire` prints them.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grant=$(holdfast acquire seat-12A --ttl 60s) || exit
  eval \"$grant\"
  holdfast release seat-12A")]
pub(crate) struct Release {
    #[command(flatten)]
    own: TicketArgs,
}

impl Release {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let token = self.own.token;
        self.own.ask("/v1/release_lock", &[], |_| format!("released token {token}"))
    }
}

/// Only for a lock with its own TTL, as taken with `acquire`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grant=$(holdfast acquire seat-12A --ttl 5s) || exit
  eval \"$grant\"
  holdfast renew seat-12A --ttl 5s || exit")]
pub(crate) struct Renew {
    /// How long it is held from now on
    #[arg(long, value_parser = duration::parse)]
    ttl: Duration,
    #[command(flatten)]
    own: TicketArgs,
}

impl Renew {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let ttl_ms = duration::millis(self.ttl);
        let words = format!("token {} is held for {}", self.own.token, duration::show(ttl_ms));
        self.own.ask("/v1/renew", &[("ttl_ms", ttl_ms.into())], |_| words)
    }
}

/// Everyone can see it, and the next holder gets it if this one dies.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast lock nightly-report -- sh -c 'holdfast note nightly-report \"page 3 of 7\"'")]
pub(crate) struct Note {
    #[command(flatten)]
    own: TicketArgs,
    /// The note; without one, it is removed
    text: Option<String>,
}

impl Note {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let words = format!("noted on token {}", self.own.token);
        self.own.ask("/v1/note", &[("note", self.text.into())], |_| words)
    }
}

/// Takes the mark "needs recovery" from a lock that is held.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast lock ledger -- sh -c 'holdfast recovered ledger'")]
pub(crate) struct Recovered {
    #[command(flatten)]
    own: TicketArgs,
}

impl Recovered {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        self.own.ask("/v1/recovered", &[], |said| match said.get("from") {
            Some(death) if !death.is_null() => {
                format!("recovered from: {}", crate::table::clean(&super::ending(death)))
            }
            _ => "there was nothing to recover from".to_owned(),
        })
    }
}
