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
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Read a value: good for looking, not for deciding
    Get {
        /// The key
        key: String,
        #[command(flatten)]
        common: Common,
    },
    /// Write a value, unless a later holder has been here
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Show a token to the fence and read: what a new holder does first
    Raise {
        /// The key
        key: String,
        #[command(flatten)]
        shown: Shown,
    },
}

/// The token that the fence compares.
#[derive(Debug, Args)]
struct Shown {
    /// The fencing token
    #[arg(long, env = "HOLDFAST_TOKEN")]
    token: u64,
    /// The lock is held shared
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    common: Common,
}

impl Shown {
    fn mode(&self) -> &'static str {
        if self.shared { "shared" } else { "exclusive" }
    }
}

impl Register {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let (common, fence) = match &self.what {
            What::Get { key, common } => {
                (common, common.server.http()?.get("/v1/register", &[("key", key)])?)
            }
            What::Put { key, value, shown } => {
                let token = shown.token;
                let body = json!({
                    "key": key, "value": value, "fencing_token": token, "mode": shown.mode(),
                });
                let http = shown.common.server.http()?;
                (&shown.common, http.post("/v1/do_external_operation", &body)?)
            }
            What::Raise { key, shown } => {
                let token = shown.token;
                let body = json!({ "key": key, "fencing_token": token, "mode": shown.mode() });
                (&shown.common, shown.common.server.http()?.post("/v1/raise", &body)?)
            }
        };
        let is_get = matches!(self.what, What::Get { .. });
        answer(common.json, &fence, || said(&fence, is_get))
    }
}

fn said(fence: &Value, is_get: bool) -> String {
    let value = clean(text(fence, "value"));
    match (fence.get("value").is_some_and(|value| !value.is_null()), is_get) {
        (true, true) => value,
        (false, true) => "(no value)".to_owned(),
        (_, false) => {
            format!("{value}\nthe highest token seen is {}", number(fence, "highest").unwrap_or(0))
        }
    }
}
