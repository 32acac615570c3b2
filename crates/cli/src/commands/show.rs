//! `holdfast show`: one lock, its holders and its waiters in order.

use super::{Common, ending, list, number, print_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::table::{Cell, Colour, Table, clean, say, tint};
use clap::Args;
use serde_json::Value;

/// Who holds it, who waits at which place, and how the last holder ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast show seat-12A
  holdfast show seat-12A --json")]
pub(crate) struct Show {
    /// The lock
    name: String,
    #[command(flatten)]
    common: Common,
}

impl Show {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let lock = self.common.server.http()?.get("/v1/lock", &[("name", &self.name)])?;
        if self.common.json {
            return print_json(&lock);
        }
        let (holding, waiting) = (number(&lock, "holding"), number(&lock, "waiting"));
        let (holding, waiting) = (holding.unwrap_or(0), waiting.unwrap_or(0));
        let state = match (holding, waiting, number(&lock, "permits")) {
            (0, 0, _) => "free".to_owned(),
            (_, _, Some(permits)) => format!("{holding} of {permits} held, {waiting} waiting"),
            (_, _, None) => format!("{holding} holding, {waiting} waiting"),
        };
        say(&format!("{}  {state}\n", tint(&self.name, Colour::Bold)))?;
        let holders = list(&lock, "holders").iter().map(|ticket| (None, ticket));
        let waiters = list(&lock, "waiters").iter().enumerate();
        let waiters = waiters.map(|(at, ticket)| (Some(at + 1), ticket));
        let mut table =
            Table::new(&["PLACE", ">TOKEN", "WHO", "MODE", ">FOR", ">ENDS IN", "NOTE", "NAMES"]);
        for (place, ticket) in holders.chain(waiters) {
            table.row(row(place, ticket));
        }
        if !table.is_empty() {
            table.without_empty().print()?;
        }
        let shown = list(&lock, "holders").len() + list(&lock, "waiters").len();
        let hidden = (holding + waiting).saturating_sub(shown as u64);
        let more = |field: &str| lock.get(field).filter(|value| !value.is_null());
        let mut after = String::new();
        if hidden > 0 {
            after += &format!("and {hidden} more\n");
        }
        if let Some(last) = more("ended") {
            after += &format!("the last holder ended: {}\n", clean(&ending(last)));
        }
        if let Some(death) = more("needs_recovery") {
            let words = format!("needs recovery: {}", ending(death));
            after += &format!("{}\n", tint(&words, Colour::Bad));
        }
        if let Some(ms) = number(&lock, "delayed_for_ms") {
            after += &format!("nobody is served for {} after a death\n", duration::show(ms));
        }
        say(&after)?;
        Ok(Exit::Success)
    }
}

fn row(place: Option<usize>, ticket: &Value) -> Vec<Cell> {
    let time = |field| number(ticket, field).map_or(String::new(), duration::show);
    let names = list(ticket, "names");
    let others = names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    vec![
        match place {
            None => Cell::new("held", Colour::Good),
            Some(place) => place.into(),
        },
        number(ticket, "token").unwrap_or(0).into(),
        text(ticket, "label").into(),
        text(ticket, "mode").into(),
        time("for_ms").into(),
        time("ends_in_ms").into(),
        text(ticket, "note").into(),
        if names.len() > 1 { others.into() } else { "".into() },
    ]
}
