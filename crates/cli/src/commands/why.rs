//! `holdfast why`: who is waiting for whom.

use super::{Common, list, number, print_json};
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::table::{Cell, Colour, Table, say, tint};
use clap::Args;
use serde_json::Value;

/// Follows the line of a lock to what its holders wait for themselves, and so on. A cycle whose
/// every link is declared would have been refused; others are only possible.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast why seat-12A
  holdfast why seat-12A --json")]
pub(crate) struct Why {
    /// The lock
    name: String,
    #[command(flatten)]
    common: Common,
}

impl Why {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let why = self.common.server.http()?.get("/v1/why", &[("name", &self.name)])?;
        if self.common.json {
            return print_json(&why);
        }
        let links = list(&why, "links");
        if links.is_empty() {
            say(&format!("nobody waits for {}\n", tint(&self.name, Colour::Bold)))?;
            return Ok(Exit::Success);
        }
        let mut table = Table::new(&[">TICKET", "WHO", "WAITS FOR", ">BEHIND", "WHO"]);
        for link in links {
            table.row(row(link));
        }
        table.print()?;
        for circle in list(&why, "circles") {
            let tokens = list(circle, "tokens").iter().map(Value::to_string);
            let mut tokens: Vec<String> = tokens.collect();
            tokens.extend(tokens.first().cloned());
            let declared = circle.get("declared").and_then(Value::as_bool).unwrap_or(false);
            let (kind, colour) = if declared {
                ("a cycle", Colour::Bad)
            } else {
                ("a possible cycle", Colour::Warn)
            };
            say(&format!("{}: {}\n", tint(kind, colour), tokens.join(" -> ")))?;
        }
        if why.get("cut").and_then(Value::as_bool).unwrap_or(false) {
            say("and more: only the first links are shown\n")?;
        }
        Ok(Exit::Success)
    }
}

fn row(link: &Value) -> Vec<Cell> {
    let token = |field| number(link, field).unwrap_or(0).into();
    let yes = |field| link.get(field).and_then(Value::as_bool).unwrap_or(false);
    if text(link, "link") == "behind" {
        let name = text(link, "name");
        vec![
            token("waiter"),
            text(link, "label").into(),
            if yes("permit") { format!("a permit of {name}").into() } else { name.into() },
            token("front"),
            text(link, "front_label").into(),
        ]
    } else {
        let how = if yes("declared") { "(kept by)" } else { "(held by the session of)" };
        vec![
            token("token"),
            text(link, "label").into(),
            Cell::new(how, Colour::Warn),
            token("waiter"),
            "".into(),
        ]
    }
}
