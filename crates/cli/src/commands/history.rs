//! `holdfast history`: what happened to a lock.

use super::{Common, list, number, print_json};
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::stderr::eprint_line;
use crate::table::{Cell, Colour, Table};
use crate::wall;
use clap::Args;
use serde_json::Value;

/// The newest first, as far as it is remembered. Times are those of the leader's wall clock, in
/// UTC: they are shown to people, and decide nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast history seat-12A
  holdfast history seat-12A --limit 5 --json")]
pub(crate) struct History {
    /// The lock
    name: String,
    /// Show at most this many events
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    #[command(flatten)]
    common: Common,
}

impl History {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let limit = self.limit.to_string();
        let query = [("name", self.name.as_str()), ("limit", limit.as_str())];
        let history = self.common.server.http()?.get("/v1/history", &query)?;
        if self.common.json {
            return print_json(&history);
        }
        let mut table = Table::new(&["WHEN", ">TOKEN", "WHAT", "WHO", "MORE"]);
        for event in list(&history, "events") {
            table.row(row(event));
        }
        if table.is_empty() {
            eprint_line!("holdfast: no history of {}", self.name);
        }
        table.print()?;
        Ok(Exit::Success)
    }
}

fn row(event: &Value) -> Vec<Cell> {
    let what = text(event, "what");
    let colour = match what {
        "granted" => Colour::Good,
        "expired" | "closed" | "forced" => Colour::Bad,
        _ => Colour::Plain,
    };
    let more = event.get("more").unwrap_or(&Value::Null);
    let more = match (text(more, "by"), text(more, "reason"), number(more, "from")) {
        (_, _, Some(from)) => format!("from token {from}"),
        ("", ..) => String::new(),
        (by, reason, None) => format!("by {by}: {reason}"),
    };
    vec![
        wall::show(number(event, "wall_ms").unwrap_or(0)).into(),
        number(event, "token").unwrap_or(0).into(),
        Cell::new(what, colour),
        text(event, "label").into(),
        more.into(),
    ]
}
