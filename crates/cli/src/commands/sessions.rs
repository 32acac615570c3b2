//! `holdfast sessions`: the open sessions.

use super::{Common, list, number, print_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::stderr::eprint_line;
use crate::table::{Cell, Colour, Table};
use clap::Args;
use serde_json::{Value, json};

/// Sessions per page.
const PAGE: usize = 1_000;

/// A node has a session of its own, for clients without one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast sessions
  holdfast sessions --json")]
pub(crate) struct Sessions {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

impl Sessions {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let http = self.common.server.http()?;
        let mut sessions: Vec<Value> = Vec::new();
        let mut after = None;
        while sessions.len() < self.limit {
            let count = (self.limit - sessions.len()).min(PAGE).to_string();
            let mut query = vec![("limit", count)];
            query.extend(after.map(|id: u64| ("after", id.to_string())));
            let query: Vec<(&str, &str)> = query.iter().map(|(k, v)| (*k, v.as_str())).collect();
            let page = http.get("/v1/sessions", &query)?;
            sessions.extend(list(&page, "sessions").iter().cloned());
            after = number(&page, "next_after");
            if after.is_none() {
                break;
            }
        }
        if after.is_some() {
            eprint_line!("holdfast: there are more than {}: use --limit N", self.limit);
        }
        if self.common.json {
            return print_json(&json!(sessions));
        }
        let mut table = Table::new(&[">ID", "KIND", "LABEL", ">TTL", ">OPEN FOR", ">TICKETS"]);
        for session in &sessions {
            table.row(row(session));
        }
        table.print()?;
        Ok(Exit::Success)
    }
}

fn row(session: &Value) -> Vec<Cell> {
    let time = |field| duration::show(number(session, field).unwrap_or(0));
    let kind = text(session, "kind");
    let colour = if kind == "node" { Colour::Dim } else { Colour::Plain };
    vec![
        number(session, "id").unwrap_or(0).into(),
        Cell::new(kind, colour),
        text(session, "label").into(),
        time("ttl_ms").into(),
        time("open_for_ms").into(),
        list(session, "tickets").len().into(),
    ]
}
