//! `holdfast register`: the fenced register.

use super::{Common, answer, number};
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::table::clean;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// A value that only the newest holder can write: a token lower than the highest seen is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast lock ledger -- sh -c 'holdfast register put ledger/total 42'
  holdfast register get ledger/total")]
pub(crate) struct Register {
    #[command(subcommand)]
    what: RegisterCommand,
}

#[derive(Debug, Subcommand)]
enum RegisterCommand {
    /// Read a value; it may change at any time
    Get {
        /// The key
        key: String,
        #[command(flatten)]
        common: Common,
    },
    /// Write a value, unless a later holder's token was seen
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        #[command(flatten)]
        shown: TokenArgs,
    },
    /// Show a token to the fence and read: a new holder's first step
    Raise {
        /// The key
        key: String,
        #[command(flatten)]
        shown: TokenArgs,
    },
}

/// The token that the fence compares.
#[derive(Debug, Args)]
struct TokenArgs {
    /// The fencing token
    #[arg(long, env = "HOLDFAST_TOKEN")]
    token: u64,
    /// The lock is held shared
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    common: Common,
}

impl TokenArgs {
    fn mode(&self) -> &'static str {
        if self.shared { "shared" } else { "exclusive" }
    }
}

impl Register {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let (common, fence) = match &self.what {
            RegisterCommand::Get { key, common } => {
                (common, common.server.http()?.get("/v1/register", &[("key", key)])?)
            }
            RegisterCommand::Put { key, value, shown } => {
                let token = shown.token;
                let body = json!({
                    "key": key, "value": value, "fencing_token": token, "mode": shown.mode(),
                });
                let http = shown.common.server.http()?;
                (&shown.common, http.post("/v1/do_external_operation", &body)?)
            }
            RegisterCommand::Raise { key, shown } => {
                let token = shown.token;
                let body = json!({ "key": key, "fencing_token": token, "mode": shown.mode() });
                (&shown.common, shown.common.server.http()?.post("/v1/raise", &body)?)
            }
        };
        let is_get = matches!(self.what, RegisterCommand::Get { .. });
        answer(common.json, &fence, || highest_text(&fence, is_get))
    }
}

fn highest_text(fence: &Value, is_get: bool) -> String {
    let value = clean(text(fence, "value"));
    match (fence.get("value").is_some_and(|value| !value.is_null()), is_get) {
        (true, true) => value,
        (false, true) => "(no value)".to_owned(),
        (_, false) => {
            format!("{value}\nthe highest token seen is {}", number(fence, "highest").unwrap_or(0))
        }
    }
}
