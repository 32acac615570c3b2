//! Commands about the server.

use super::Command;
use super::args::is;
use super::table::{NOWHERE, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Commands that only show something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// `COMMAND ...`.
    Command(Describe),
    /// `INFO`, with the requested sections.
    Info(Vec<Bytes>),
    /// `CONFIG GET`, with patterns.
    ConfigGet(Vec<Bytes>),
    /// `TIME`.
    Time,
    /// `ROLE`.
    Role,
}

/// The subcommands of `COMMAND`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Describe {
    /// `COMMAND`: all commands.
    All,
    /// `COMMAND COUNT`.
    Count,
    /// `COMMAND LIST`.
    List,
    /// `COMMAND INFO`; empty means all.
    Info(Vec<Bytes>),
    /// `COMMAND DOCS`; empty means all.
    Docs(Vec<Bytes>),
    /// `COMMAND GETKEYS`: the keys of a request.
    GetKeys(Vec<Bytes>),
}

pub(super) const TABLE: &[Spec] = &[
    spec("command", -1, "loading stale", NOWHERE, "server", "Describe the commands", command),
    spec("info", -1, "loading stale", NOWHERE, "server", "Show figures of the server", |a| {
        Ok(Command::Server(Server::Info(a.to_vec())))
    }),
    spec("config", -2, "admin noscript loading stale", NOWHERE, "server", "Show settings", config),
    spec("cluster", -2, "stale", NOWHERE, "cluster", "Report that cluster mode is off", |_| {
        Err(Error::fixed("ERR This instance has cluster support disabled"))
    }),
    spec("time", 1, "loading stale fast", NOWHERE, "server", "Get the wall clock", |_| {
        Ok(Command::Server(Server::Time))
    }),
    spec(
        "role",
        1,
        "noscript loading stale fast",
        NOWHERE,
        "server",
        "Report the node's role",
        |_| Ok(Command::Server(Server::Role)),
    ),
];

fn command(a: &[Bytes]) -> Result<Command, Error> {
    let describe = match a {
        [] => Describe::All,
        [what] if is(what, "count") => Describe::Count,
        [what] if is(what, "list") => Describe::List,
        [what, names @ ..] if is(what, "info") => Describe::Info(names.to_vec()),
        [what, names @ ..] if is(what, "docs") => Describe::Docs(names.to_vec()),
        [what, _, _, ..] if is(what, "getkeys") => {
            Describe::GetKeys(a.get(1..).unwrap_or_default().to_vec())
        }
        [what, ..] if is(what, "getkeys") => return Err(Error::arity("command|getkeys")),
        [what, ..] if is(what, "count") => return Err(Error::arity("command|count")),
        [what, ..] => return Err(Error::unknown_subcommand("command", what)),
    };
    Ok(Command::Server(Server::Command(describe)))
}

fn config(a: &[Bytes]) -> Result<Command, Error> {
    match a {
        [what] if is(what, "get") => Err(Error::arity("config|get")),
        [what, patterns @ ..] if is(what, "get") => {
            Ok(Command::Server(Server::ConfigGet(patterns.to_vec())))
        }
        [what, ..] if is(what, "set") => Err(Error::fixed(
            "ERR CONFIG SET is not possible here: settings are given when the server is started",
        )),
        [what, ..] => Err(Error::unknown_subcommand("config", what)),
        [] => Err(Error::arity("config")),
    }
}
