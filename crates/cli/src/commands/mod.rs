//! Client commands that make a request and print the reply: inspect locks, keep one by hand,
//! operate a cluster.
//!
//! Each uses the HTTP API and prints a table, or JSON with `--json`.

pub(crate) mod acquire;
pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod history;
pub(crate) mod ls;
pub(crate) mod members;
pub(crate) mod operator;
pub(crate) mod register;
pub(crate) mod sessions;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod ticket;
pub(crate) mod users;
pub(crate) mod watch;
pub(crate) mod why;

use crate::exit::{Exit, Problem};
use crate::server_flags::ServerFlags;
use crate::table::say;
use clap::Args;
use serde_json::Value;

/// What every command here takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Print the reply as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

/// Prints JSON on one line.
fn print_json(value: &Value) -> Result<Exit, Problem> {
    say(&format!("{value}\n"))?;
    Ok(Exit::Success)
}

/// Prints the reply as JSON, or else as `words`.
fn answer(json: bool, value: &Value, words: impl FnOnce() -> String) -> Result<Exit, Problem> {
    if json {
        return print_json(value);
    }
    say(&format!("{}\n", words()))?;
    Ok(Exit::Success)
}

/// A number in a reply.
fn number(value: &Value, field: &str) -> Option<u64> {
    value.get(field).and_then(Value::as_u64)
}

/// An array in a reply; empty if it is missing.
fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How a holder ended, in short.
pub(crate) fn ending(ending: &Value) -> String {
    let text = |field| crate::http::text(ending, field);
    let mut words = format!("{}, token {}", text("how"), number(ending, "token").unwrap_or(0));
    for (before, field, after) in
        [(" (", "label", ")"), (", note: ", "note", ""), (", by ", "by", ""), (": ", "reason", "")]
    {
        if !text(field).is_empty() {
            words += &format!("{before}{}{after}", text(field));
        }
    }
    words
}
