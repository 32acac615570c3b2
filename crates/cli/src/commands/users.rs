//! `holdfast users`, `holdfast roles` and `holdfast audit`: who may do what, and who did what.

use super::{Common, answer, list, number, print_json};
use crate::exit::{Exit, Problem};
use crate::http::text;
use crate::table::{Cell, Colour, Table, say};
use crate::wall;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Records per page.
const PAGE: u64 = 1_000;

/// A longer file is not a password.
const PASSWORD_BYTES_MAX: u64 = 4_096;

/// As long as there are no users, everyone who can reach the cluster, or who has its password, may do
/// everything.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A role for the nightly jobs, and a user that has it:
    holdfast roles set jobs use:jobs/
    holdfast users add nightly --role jobs --new-password-file nightly.password

  The user logs in with its name and password:
    holdfast lock jobs/nightly --user nightly --password-file nightly.password -- ./job

  A token for a program, which it sends in place of a password:
    holdfast users add-token nightly --note 'cron on db-1' > nightly.token")]
pub(crate) struct Users {
    #[command(subcommand)]
    what: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    /// List the users
    List(Common),
    /// Add a user
    Add {
        /// The user's name
        name: String,
        /// A role that it has; may be repeated. The role `admin` may do everything
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// A file whose first line is the user's password; `-` for standard input. Without it, the
        /// user needs a token or a certificate
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a user and its tokens
    Remove {
        /// The user's name
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Replace a user's password
    SetPassword {
        /// The user's name
        name: String,
        /// A file whose first line is the new password; `-` for standard input
        #[arg(long, value_name = "FILE", required_unless_present = "none")]
        new_password_file: Option<PathBuf>,
        /// Remove the password: only tokens and certificates are left
        #[arg(long, conflicts_with = "new_password_file")]
        none: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Replace a user's roles
    SetRoles {
        /// The user's name
        name: String,
        /// A role that it has from now on; may be repeated. Without any, it may do nothing
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Add a bearer token and print it: it is not shown again
    AddToken {
        /// The user's name
        name: String,
        /// What the token is for
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        #[command(flatten)]
        common: Common,
    },
    /// Revoke a bearer token
    RemoveToken {
        /// The user's name
        name: String,
        /// The token's id, as `holdfast users list` shows it
        id: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Show who you are, and your rights
    Whoami(Common),
}

impl Users {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        match self.what {
            UsersCommand::List(common) => list_users(&common),
            UsersCommand::Add { name, roles, new_password_file, common } => {
                let password = new_password_file.as_deref().map(read_password).transpose()?;
                let body = json!({ "name": name, "roles": roles, "password": password });
                change(&common, "/v1/users/add", &body, || format!("user {name} is added"))
            }
            UsersCommand::Remove { name, common } => {
                let said = || format!("user {name} is removed; locks that it holds are not");
                change(&common, "/v1/users/remove", &json!({ "name": name }), said)
            }
            UsersCommand::SetPassword { name, new_password_file, none: _, common } => {
                let password = new_password_file.as_deref().map(read_password).transpose()?;
                let body = json!({ "name": name, "password": password });
                change(&common, "/v1/users/set_password", &body, || {
                    format!("user {name} has a new password")
                })
            }
            UsersCommand::SetRoles { name, roles, common } => {
                let body = json!({ "name": name, "roles": roles });
                change(&common, "/v1/users/set_roles", &body, || {
                    format!("user {name} has the roles: {}", roles.join(", "))
                })
            }
            UsersCommand::AddToken { name, note, common } => {
                let body = json!({ "name": name, "note": note });
                let reply = common.server.http()?.post("/v1/users/add_token", &body)?;
                answer(common.json, &reply, || text(&reply, "token").to_owned())
            }
            UsersCommand::RemoveToken { name, id, common } => {
                let body = json!({ "name": name, "id": id });
                change(&common, "/v1/users/remove_token", &body, || {
                    format!("token {id} is revoked")
                })
            }
            UsersCommand::Whoami(common) => whoami(&common),
        }
    }
}

fn change(
    common: &Common,
    path: &str,
    body: &Value,
    words: impl FnOnce() -> String,
) -> Result<Exit, Problem> {
    let reply = common.server.http()?.post(path, body)?;
    answer(common.json, &reply, words)
}

/// The first line of a file.
fn read_password(file: &Path) -> Result<String, Problem> {
    let wrong = |why: String| {
        Problem::new(Exit::Usage, format!("can't read the new password: {}: {why}", file.display()))
            .hint("give a file whose first line is the password, or `-` for standard input")
    };
    let mut content = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(PASSWORD_BYTES_MAX).read_to_string(&mut content)
    } else {
        fs::File::open(file)
            .and_then(|opened| opened.take(PASSWORD_BYTES_MAX).read_to_string(&mut content))
    };
    read.map_err(|error| wrong(error.to_string()))?;
    match content.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(password) => Ok(password.to_owned()),
        None => Err(wrong("its first line is empty".to_owned())),
    }
}

fn joined(value: &Value, field: &str) -> String {
    list(value, field).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

fn list_users(common: &Common) -> Result<Exit, Problem> {
    let reply = common.server.http()?.get("/v1/users", &[])?;
    if common.json {
        return print_json(&reply);
    }
    let mut table = Table::new(&["USER", "ROLES", "PASSWORD", "TOKENS"]);
    for user in list(&reply, "users") {
        let has_password = user.get("has_password").and_then(Value::as_bool) == Some(true);
        let tokens = list(user, "tokens").iter().map(|token| {
            let (id, note) = (number(token, "id").unwrap_or(0), text(token, "note"));
            if note.is_empty() { id.to_string() } else { format!("{id} ({note})") }
        });
        table.row(vec![
            text(user, "name").into(),
            joined(user, "roles").into(),
            if has_password { "yes" } else { "no" }.into(),
            tokens.collect::<Vec<_>>().join(", ").into(),
        ]);
    }
    table.print()?;
    Ok(Exit::Success)
}

/// `use,read:jobs/`, as `holdfast roles set` takes it.
fn shown_rule(rule: &Value) -> String {
    let rights = list(rule, "rights").iter().filter_map(Value::as_str).collect::<Vec<_>>();
    format!("{}:{}", rights.join(","), text(rule, "prefix"))
}

fn shown_rules(value: &Value) -> String {
    list(value, "rules").iter().map(shown_rule).collect::<Vec<_>>().join(" ")
}

fn whoami(common: &Common) -> Result<Exit, Problem> {
    let reply = common.server.http()?.get("/v1/whoami", &[])?;
    answer(common.json, &reply, || match reply.get("user").and_then(Value::as_str) {
        Some(user) => format!("{user}  {}", shown_rules(&reply)),
        None => "not logged in: nobody has to be, and everybody may do everything".to_owned(),
    })
}

/// A role gives its users rights to all names that begin with a prefix.
#[derive(Debug, Args)]
#[command(after_help = "\
Rules are written RIGHT,...:PREFIX. The rights are:
  use      take locks, keep and release them, and look at them
  read     look at locks and watch them
  operate  ask holders to release, break locks, and look at them
  admin    change members, users and roles, and take backups: without a prefix only

Examples:
  holdfast roles set jobs use:jobs/
  holdfast roles set on-call operate: read:
  holdfast roles set backup admin:")]
pub(crate) struct Roles {
    #[command(subcommand)]
    what: RolesCommand,
}

#[derive(Debug, Subcommand)]
enum RolesCommand {
    /// List the roles and their rules
    List(Common),
    /// Add a role, or replace its rules
    Set {
        /// The role's name
        name: String,
        /// What its users may do, as in `use:jobs/`; an empty prefix stands for all names
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a role that no user has
    Remove {
        /// The role's name
        name: String,
        #[command(flatten)]
        common: Common,
    },
}

impl Roles {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        match self.what {
            RolesCommand::List(common) => list_roles(&common),
            RolesCommand::Set { name, rules, common } => {
                let rules: Vec<Value> =
                    rules.iter().map(|rule| parse_rule(rule)).collect::<Result<_, _>>()?;
                let body = json!({ "name": name, "rules": rules });
                change(&common, "/v1/roles/set", &body, || format!("role {name} is set"))
            }
            RolesCommand::Remove { name, common } => {
                let said = || format!("role {name} is removed");
                change(&common, "/v1/roles/remove", &json!({ "name": name }), said)
            }
        }
    }
}

fn parse_rule(rule: &str) -> Result<Value, Problem> {
    let Some((rights, prefix)) = rule.split_once(':') else {
        return Err(Problem::usage(format!("`{rule}` is not a rule"))
            .hint("write RIGHT,...:PREFIX, as in use:jobs/; for all names, read:"));
    };
    let rights: Vec<&str> = rights.split(',').collect();
    Ok(json!({ "rights": rights, "prefix": prefix }))
}

fn list_roles(common: &Common) -> Result<Exit, Problem> {
    let reply = common.server.http()?.get("/v1/roles", &[])?;
    if common.json {
        return print_json(&reply);
    }
    let mut table = Table::new(&["ROLE", "RULES"]);
    table.row(vec![
        Cell::new("admin", Colour::Dim),
        Cell::new("use,read,operate,admin: (built in)", Colour::Dim),
    ]);
    for role in list(&reply, "roles") {
        table.row(vec![text(role, "name").into(), shown_rules(role).into()]);
    }
    table.print()?;
    Ok(Exit::Success)
}

/// Who broke locks and changed users, roles and members, and whose logins and requests were refused,
/// newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast audit
  holdfast audit --json --limit 100")]
pub(crate) struct Audit {
    /// Show at most this many records
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    #[command(flatten)]
    common: Common,
}

impl Audit {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let http = self.common.server.http()?;
        let mut records: Vec<Value> = Vec::new();
        let mut before = u64::MAX;
        while (records.len() as u64) < self.limit {
            let count = (self.limit - records.len() as u64).min(PAGE);
            let (shown, below) = (count.to_string(), before.to_string());
            let page = http.get("/v1/audit", &[("limit", &shown), ("before", &below)])?;
            let page = list(&page, "records");
            records.extend(page.iter().cloned());
            let Some(last) = page.last().and_then(|last| number(last, "number")) else { break };
            if (page.len() as u64) < count {
                break;
            }
            before = last;
        }
        if self.common.json {
            return print_json(&json!(records));
        }
        if records.is_empty() {
            say("nothing has been recorded\n")?;
            return Ok(Exit::Success);
        }
        let mut table = Table::new(&["WHEN (UTC)", "USER", "FROM", "ACTION", "SUBJECT", "DETAIL"]);
        for record in &records {
            table.row(row(record));
        }
        table.print()?;
        Ok(Exit::Success)
    }
}

fn row(record: &Value) -> Vec<Cell> {
    let user = text(record, "user");
    let refused = text(record, "refused");
    let (detail, colour) = match refused {
        "" => (text(record, "detail").to_owned(), Colour::Plain),
        why => (format!("refused: {why}"), Colour::Warn),
    };
    vec![
        wall::show(number(record, "wall_ms").unwrap_or(0)).into(),
        Cell::new(if user.is_empty() { "-" } else { user }, Colour::Plain),
        format!("{} ({})", text(record, "address"), text(record, "door")).into(),
        text(record, "action").replace('_', " ").into(),
        text(record, "subject").into(),
        Cell::new(detail, colour),
    ]
}
