//! `holdfast watch`: prints what happens to locks, as it happens.

use super::{Common, ending, list, number};
use crate::exit::{Exit, Problem};
use crate::http::{Http, text};
use crate::table::{Colour, clean, say, tint};
use crate::wall;
use clap::Args;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest line of an event.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Pause before reconnecting when a watch has ended.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Runs until it is interrupted. With --json, one object per line; an event `gap` means that some
/// events may have been missed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast watch seat-12A
  holdfast watch --prefix shop/
  holdfast watch --json --count 2")]
pub(crate) struct Watch {
    /// One lock. Default: all locks
    name: Option<String>,
    /// All locks with this prefix
    #[arg(long, conflicts_with = "name")]
    prefix: Option<String>,
    /// Exit after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Watch {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let http = self.common.server.http()?;
        let mut left = self.count;
        let mut begun = false;
        loop {
            match self.follow(&http, &mut left, &mut begun) {
                Ok(ControlFlow::Break(told)) => return told.map(|()| Exit::Success),
                // The first failure is for the user to see; later ones are worth a retry.
                Err(problem) if !begun => return Err(problem),
                Ok(ControlFlow::Continue(())) | Err(_) => {}
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    /// Follows events until the server ends the watch (`Continue`), `count` is reached or printing
    /// fails (`Break`).
    fn follow(
        &self,
        http: &Http,
        left: &mut Option<u64>,
        begun: &mut bool,
    ) -> Result<ControlFlow<Result<(), Problem>>, Problem> {
        let query: Vec<(&str, &str)> = match (&self.name, &self.prefix) {
            (Some(name), _) => vec![("name", name)],
            (None, Some(prefix)) => vec![("prefix", prefix)],
            (None, None) => Vec::new(),
        };
        let mut lines = BufReader::new(http.stream("/v1/watch", &query)?);
        let mut event = String::new();
        loop {
            let mut line = String::new();
            let read = io_take(&mut lines, &mut line);
            if !read.is_ok_and(|count| count > 0) {
                return Ok(ControlFlow::Continue(()));
            }
            if let Some(name) = line.strip_prefix("event:") {
                event = name.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data:") {
                if event == "watching" {
                    // A second one comes after a reconnect: anything may have happened in between.
                    if std::mem::replace(begun, true)
                        && let Err(problem) = self.eprint_line("gap", &Value::Null)
                    {
                        return Ok(ControlFlow::Break(Err(problem)));
                    }
                    continue;
                }
                let data: Value = serde_json::from_str(data.trim()).unwrap_or_default();
                if let Err(problem) = self.eprint_line(&event, &data) {
                    return Ok(ControlFlow::Break(Err(problem)));
                }
                *left = left.map(|left| left.saturating_sub(1));
                if *left == Some(0) {
                    return Ok(ControlFlow::Break(Ok(())));
                }
            }
        }
    }

    fn eprint_line(&self, event: &str, data: &Value) -> Result<(), Problem> {
        if self.common.json {
            let mut object = Map::new();
            object.insert("event".to_owned(), event.into());
            object.extend(data.as_object().cloned().unwrap_or_default());
            say(&format!("{}\n", Value::Object(object)))?;
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = wall::time(u64::try_from(now.as_millis()).unwrap_or(0));
        say(&format!("{now}  {}\n", words(event, data)))?;
        Ok(())
    }
}

fn io_take(lines: &mut impl BufRead, line: &mut String) -> std::io::Result<usize> {
    std::io::Read::take(lines, LINE_BYTES_MAX).read_line(line)
}

fn words(event: &str, data: &Value) -> String {
    let names = list(data, "names").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let token = number(data, "fencing_token").unwrap_or(0);
    let label = text(data, "label");
    let who = if label.is_empty() { String::new() } else { format!(" ({label})") };
    let (what, colour, more) = match event {
        "granted" => ("granted", Colour::Good, format!("token {token}{who}")),
        "ended" => {
            let how = text(data, "how");
            let held = data.get("held").and_then(Value::as_bool).unwrap_or(false);
            let colour = match (held, how) {
                (true, "released") => Colour::Plain,
                (true, _) => Colour::Bad,
                (false, _) => Colour::Dim,
            };
            let ticket = if held { "token" } else { "wait of ticket" };
            (how, colour, format!("{ticket} {token}{who}"))
        }
        "delayed" => ("delayed", Colour::Warn, "nobody is served for a while".to_owned()),
        "revocation_asked" => {
            let (by, reason) = (text(data, "by"), text(data, "reason"));
            ("asked to let go", Colour::Warn, format!("token {token}, by {by}: {reason}"))
        }
        "noted" => ("noted", Colour::Plain, format!("token {token}: {}", text(data, "note"))),
        "recovered" => {
            let from = data.get("from").map(ending).unwrap_or_default();
            ("recovered", Colour::Good, format!("token {token}, from: {from}"))
        }
        "gap" => ("a gap", Colour::Warn, "something may have been missed".to_owned()),
        other => (other, Colour::Plain, format!("token {token}{who}")),
    };
    format!("{}  {}  {}", clean(&names), tint(what, colour), clean(&more))
}
