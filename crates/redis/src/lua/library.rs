//! The `redis` table: `redis.call` and its other functions.

use super::convert::to_lua;
use super::errors::{coded, raise};
use super::scripts::sha1_hex;
use crate::command;
use crate::error::Error;
use crate::number::general;
use crate::resp::{Bounds, Protocol, Reply};
use crate::run::{Overlay, Stop, run};
use bytes::Bytes;
use mlua::{Lua, MultiValue, Result, Scope, Table, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// The state shared between a running script and its surroundings.
pub(super) struct Running {
    /// The script must end: it ran too long, or needs a key that has not been read yet.
    pub(super) stopped: Rc<Cell<bool>>,
    /// The protocol in which it wants its replies.
    pub(super) protocol: Rc<Cell<Protocol>>,
    pub(super) read_only: bool,
    /// When it must have ended.
    pub(super) until: Instant,
}

const LOG_LEVELS: [(&str, i64); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// Creates the table `redis`, whose calls go to the overlay.
pub(super) fn install<'scope, 'env>(
    lua: &Lua,
    scope: &'scope Scope<'scope, 'env>,
    overlay: &'env RefCell<&'env mut Overlay<'_>>,
    running: &'env Running,
) -> Result<Table> {
    let table = lua.create_table()?;
    let call = scope.create_function(move |lua, values: MultiValue| {
        match called(&values, overlay, running) {
            Reply::Error(error) => raise(coded(error.as_bytes())),
            reply => to_lua(lua, &reply, running.protocol.get()),
        }
    })?;
    let pcall = scope.create_function(move |lua, values: MultiValue| {
        let reply = called(&values, overlay, running);
        if running.stopped.get() {
            return raise(coded("ERR stopped"));
        }
        to_lua(lua, &reply, running.protocol.get())
    })?;
    table.raw_set("call", call)?;
    table.raw_set("pcall", pcall)?;
    let protocol = running.protocol.clone();
    table.raw_set(
        "setresp",
        lua.create_function(move |_, values: MultiValue| {
            protocol.set(match values.iter().next().and_then(Value::as_i64) {
                _ if values.len() != 1 => {
                    return raise(coded("ERR redis.setresp() requires one argument."));
                }
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                _ => return raise(coded("ERR RESP version must be 2 or 3.")),
            });
            Ok(())
        })?,
    )?;
    plain_functions(lua, &table)?;
    Ok(table)
}

fn plain_functions(lua: &Lua, table: &Table) -> Result<()> {
    for (name, number) in LOG_LEVELS.into_iter().chain(REPLICATION) {
        table.raw_set(name, number)?;
    }
    table.raw_set("REDIS_VERSION", "7.0.15")?;
    table.raw_set("REDIS_VERSION_NUM", 0x0007_000f)?;
    table.raw_set("error_reply", lua.create_function(|lua, v| single(lua, &v, "err"))?)?;
    table.raw_set("status_reply", lua.create_function(|lua, v| single(lua, &v, "ok"))?)?;
    table.raw_set(
        "sha1hex",
        lua.create_function(|_, values: MultiValue| match values.iter().next() {
            Some(value) if values.len() == 1 => Ok(sha1_hex(&argument(value).unwrap_or_default())),
            _ => raise(coded("ERR wrong number of arguments")),
        })?,
    )?;
    table.raw_set(
        "log",
        lua.create_function(|_, values: MultiValue| {
            let level = values.iter().next().and_then(Value::as_i64);
            match level {
                _ if values.len() < 2 => {
                    raise(coded("ERR redis.log() requires two arguments or more."))
                }
                None => raise(coded("ERR First argument must be a number (log level).")),
                Some(0..=3) => Ok(()),
                Some(_) => raise(coded("ERR Invalid debug level.")),
            }
        })?,
    )?;
    table.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    table.raw_set("set_repl", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set(
        "acl_check_cmd",
        lua.create_function(|_, values: MultiValue| {
            let name = values.iter().next().and_then(argument);
            if name.is_some_and(|name| command::find(&name).is_some()) {
                Ok(true)
            } else {
                raise(coded("ERR Invalid command passed to redis.acl_check_cmd()"))
            }
        })?,
    )
}

/// A table with one field: an error or a status.
fn single(lua: &Lua, values: &MultiValue, name: &str) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    let text = match values.front() {
        Some(Value::String(text)) if values.len() == 1 => text.as_bytes().to_vec(),
        _ => {
            table.raw_set("err", "ERR wrong number or type of arguments")?;
            return Ok(table);
        }
    };
    let text = if name == "err" { with_code(&text) } else { text };
    table.raw_set(name, lua.create_string(&text)?)?;
    Ok(table)
}

/// Adds a code to an error that consists of one word.
fn with_code(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

/// Converts a string or number to a command's argument.
fn argument(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => Some(Bytes::from(general(*number as f64, 17))),
        Value::Number(number) => Some(Bytes::from(general(*number, 17))),
        _ => None,
    }
}

fn called(values: &MultiValue, overlay: &RefCell<&mut Overlay<'_>>, running: &Running) -> Reply {
    let fail = |text: &'static str| Reply::Error(Error::fixed(text));
    if values.is_empty() {
        return fail("ERR Please specify at least one argument for this redis lib call");
    }
    // A single command may take long, and many fit between two instruction counts.
    if Instant::now() > running.until {
        running.stopped.set(true);
        return fail("ERR stopped");
    }
    let text_bytes = |value: &Value| match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    let bytes = values.iter().map(text_bytes).fold(0, usize::saturating_add);
    if bytes > Bounds::DEFAULT.request_bytes_max {
        return fail("ERR too many bytes in one command called from script");
    }
    let Some(request) = values.iter().map(argument).collect::<Option<Vec<Bytes>>>() else {
        return fail("ERR Lua redis lib command arguments must be strings or integers");
    };
    let spec = request.first().and_then(|name| command::find(name));
    let Some(spec) = spec else { return fail("ERR Unknown Redis command called from script") };
    if !spec.takes(request.len()) {
        return fail("ERR Wrong number of args calling Redis command from script");
    }
    if spec.is("noscript") {
        return fail("ERR This Redis command is not allowed from script");
    }
    if running.read_only && (spec.is("write") || spec.name == "publish") {
        return fail("ERR Write commands are not allowed from read-only scripts.");
    }
    let parsed = match command::parse(&request) {
        Ok(parsed) => parsed,
        Err(error) => return Reply::Error(error),
    };
    let mut overlay = overlay.borrow_mut();
    overlay.may_block = false;
    match run(&parsed.command, &mut overlay) {
        Ok(reply) => reply,
        Err(Stop::Error(error)) => Reply::Error(error),
        Err(Stop::Apart) => Reply::Error(crate::Error::NOT_DRAWN_YET),
        Err(Stop::Missing | Stop::Lua | Stop::Block { .. }) => {
            running.stopped.set(true);
            fail("ERR stopped")
        }
    }
}
