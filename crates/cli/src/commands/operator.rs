//! `holdfast revoke` and `holdfast break`: ask other clients to release a lock, or take it from
//! them.

use super::{Common, list, number, print_json};
use crate::duration;
use crate::exit::{Exit, Problem};
use crate::http::{Http, text};
use crate::server_flags::own_label;
use crate::table::{clean, say};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Which lock, who acts, and why.
#[derive(Debug, Args)]
struct OperatorArgs {
    /// The lock
    name: String,
    /// Only the holder with this token. Default: all holders
    #[arg(long)]
    token: Option<u64>,
    /// The reason, which is recorded and shown to everyone concerned
    #[arg(long)]
    reason: String,
    /// Who is asking. Default: USER@HOST:PID
    #[arg(long)]
    by: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl OperatorArgs {
    /// Names each current holder by its token, so that a retry never hits the next holder.
    fn each(&self, path: &str, more: &Value, done: &str) -> Result<Exit, Problem> {
        let http = self.common.server.http()?;
        let holders = self.holders(&http)?;
        if holders.is_empty() {
            return Err(Problem::new(Exit::NotAcquired, format!("nobody holds {}", self.name))
                .hint("`holdfast show NAME` shows who holds it"));
        }
        let mut tokens = Vec::new();
        for (token, label) in holders {
            let mut body = json!({
                "name": self.name,
                "fencing_token": token,
                "by": self.by(),
                "reason": self.reason,
            });
            for (field, value) in more.as_object().into_iter().flatten() {
                body[field] = value.clone();
            }
            http.post(path, &body)?;
            if !self.common.json {
                say(&format!("{done}: token {token} ({})\n", clean(&label)))?;
            }
            tokens.push(token);
        }
        if self.common.json {
            return print_json(&json!({ "name": self.name, "tokens": tokens }));
        }
        Ok(Exit::Success)
    }

    fn holders(&self, http: &Http) -> Result<Vec<(u64, String)>, Problem> {
        let lock = http.get("/v1/lock", &[("name", &self.name)])?;
        let holders = list(&lock, "holders").iter();
        let holders = holders.filter_map(|holder| {
            Some((number(holder, "token")?, text(holder, "label").to_owned()))
        });
        Ok(match self.token {
            // The server reports an error if this token holds nothing.
            Some(token) => {
                let label = holders.into_iter().find(|(held, _)| *held == token);
                vec![(token, label.map(|(_, label)| label).unwrap_or_default())]
            }
            None => holders.collect(),
        })
    }

    fn by(&self) -> String {
        self.by.clone().unwrap_or_else(|| {
            let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
            format!("{}@{}", user.unwrap_or_else(|_| "somebody".to_owned()), own_label())
        })
    }
}

/// The holder is notified, and should finish and release the lock. `holdfast lock` sends SIGTERM to its
/// command.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast revoke nightly-report --within 30s --reason 'the machine goes down'")]
pub(crate) struct Revoke {
    #[command(flatten)]
    whose: OperatorArgs,
    /// How long the holder has
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    within: Duration,
    /// Then take the lock away
    #[arg(long)]
    force: bool,
}

impl Revoke {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let more = json!({ "within_ms": duration::millis(self.within), "force": self.force });
        self.whose.each("/v1/revoke", &more, "asked to let go")
    }
}

/// Its holder is not asked, and may still believe that it holds the lock: only a fence stops it
/// then. The next holder learns that it was broken, by whom and why.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast break nightly-report --reason 'its machine burnt down'")]
pub(crate) struct Break {
    #[command(flatten)]
    whose: OperatorArgs,
}

impl Break {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        self.whose.each("/v1/force", &Value::Null, "broken")
    }
}
