//! `holdfast ls`: all locks that are held, waited for or marked "needs recovery".

use super::{Common, list, number, print_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::{Http, text};
use crate::stderr::eprint_line;
use crate::table::{Cell, Colour, Table};
use clap::Args;
use serde_json::{Value, json};

/// Locks per page.
const PAGE: usize = 1_000;

/// Of several holders the first is shown. A `!` after ENDED: a holder died, and nobody has recovered
/// since.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast ls
  holdfast ls shop/
  holdfast ls --json")]
pub(crate) struct Ls {
    /// Only names with this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

impl Ls {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let http = self.common.server.http()?;
        let (locks, more) = all(&http, &self.prefix, self.limit)?;
        if more {
            eprint_line!("holdfast: there are more than {}: use --limit N or a prefix", self.limit);
        }
        if self.common.json {
            return print_json(&locks.iter().map(short).collect());
        }
        let mut table =
            Table::new(&["NAME", "MODE", ">TOKEN", "HOLDER", ">HELD", ">WAITING", "ENDED"]);
        for lock in &locks {
            table.row(row(lock));
        }
        if table.is_empty() {
            eprint_line!("holdfast: no lock is held or waited for");
        }
        table.print()?;
        Ok(Exit::Success)
    }
}

/// Locks with this prefix, page by page, up to `limit`; and whether there are more.
pub(crate) fn all(http: &Http, prefix: &str, limit: usize) -> Result<(Vec<Value>, bool), Problem> {
    let mut locks: Vec<Value> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let count = (limit - locks.len()).min(PAGE).to_string();
        let mut query = vec![("prefix", prefix), ("limit", count.as_str())];
        if let Some(after) = &after {
            query.push(("after", after));
        }
        let page = http.get("/v1/locks", &query)?;
        locks.extend(list(&page, "locks").iter().cloned());
        let next = page.get("next_after").and_then(Value::as_str).map(str::to_owned);
        if next.is_none() || next == after {
            return Ok((locks, false));
        }
        if locks.len() >= limit {
            return Ok((locks, true));
        }
        after = next;
    }
}

fn first_holder(lock: &Value) -> Option<&Value> {
    list(lock, "holders").first()
}

/// One flat object per lock, for `--json`.
fn short(lock: &Value) -> Value {
    let holder = first_holder(lock).unwrap_or(&Value::Null);
    json!({
        "name": lock["name"],
        "mode": holder["mode"],
        "token": holder["token"],
        "holder": holder["label"],
        "waiting": lock["waiting"],
        "held_ms": holder["for_ms"],
        "ended": lock["ended"],
    })
}

fn row(lock: &Value) -> Vec<Cell> {
    let holder = first_holder(lock);
    let holding = number(lock, "holding").unwrap_or(0);
    let (token, held) = match holder {
        Some(holder) => (
            number(holder, "token").unwrap_or(0).to_string(),
            duration::show(number(holder, "for_ms").unwrap_or(0)),
        ),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let label = holder.map_or("", |holder| text(holder, "label"));
    let others = if holding > 1 { format!(" and {} more", holding - 1) } else { String::new() };
    let waiting = number(lock, "waiting").unwrap_or(0);
    let waiting_colour = if waiting > 0 { Colour::Warn } else { Colour::Dim };
    let mode = match (holder, number(lock, "permits")) {
        (Some(_), Some(permits)) => format!("permit of {permits}"),
        (Some(holder), None) => text(holder, "mode").to_owned(),
        (None, _) => "free".to_owned(),
    };
    vec![
        Cell::new(text(lock, "name"), Colour::Bold),
        mode.into(),
        token.into(),
        format!("{label}{others}").into(),
        held.into(),
        Cell::new(waiting.to_string(), waiting_colour),
        ended(lock),
    ]
}

/// How the last holder ended, with a `!` if a holder died and nobody has recovered since.
fn ended(lock: &Value) -> Cell {
    let how = |field| lock.get(field).map_or("", |ending| text(ending, "how"));
    match (how("ended"), how("needs_recovery")) {
        (how, "") => how.into(),
        ("", how) | (how, _) => Cell::new(format!("{how}!"), Colour::Bad),
    }
}
