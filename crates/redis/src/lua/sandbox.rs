//! One run of one script, in its own Lua state.

use super::convert::to_reply;
use super::errors::{self, coded, line, raise, understood};
use super::library::{self, Running};
use super::readonly::ReadOnly;
use super::scripts::Script;
use super::{bits, json, patterns, random};
use crate::error::Error;
use crate::resp::{Protocol, Reply};
use crate::run::{Overlay, Stop};
use bytes::Bytes;
use mlua::{
    ChunkMode, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value,
    VmState,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The memory a script may use, for all its strings and tables. Lock scripts use some kilobytes.
/// What it returns may take as much again.
const MEMORY_BYTES_MAX: usize = 16 << 20;

/// Instructions that a script may execute: about a tenth of a second. Lock scripts take some
/// dozens.
const INSTRUCTIONS_MAX: u32 = 10_000_000;

/// How often instructions are counted and the clock is checked. One instruction may call a function
/// that goes through all of the memory, so the interval is short.
const INSTRUCTIONS_COUNTED: u32 = 20;

/// How long a script may run, whatever it does. This is the only clock in this crate: it decides
/// nothing but that a script ends.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Libraries that a script can't change.
const LIBRARIES: [&str; 6] = ["string", "table", "math", "redis", "bit", "cjson"];

/// Globals that are removed: access to the outside world, compiled code, and whatever would bypass
/// the counting of instructions.
const REMOVED: [&str; 11] = [
    "dofile",
    "loadfile",
    "newproxy",
    "print",
    "getfenv",
    "setfenv",
    "coroutine",
    "require",
    "module",
    "collectgarbage",
    "gcinfo",
];

/// The registry key of the globals, for chunks that a script loads.
const ENVIRONMENT: &str = "environment";

/// `pcall` and `xpcall` that catch errors, but not the end of a script that must stop; the caught
/// errors look as they do in Redis.
const PROTECTED_CALLS: &str = "
    local pcall0, xpcall0, error0, stopped, text, table_of = ...
    local function after(ok, ...)
        if stopped() then error0('stopped', 0) end
        if ok then return true, ... end
        return false, text((...))
    end
    local function after_handler(ok, ...)
        if stopped() then error0('stopped', 0) end
        return ok, ...
    end
    local function safe_pcall(...) return after(pcall0(...)) end
    local function safe_xpcall(f, handler)
        return after_handler(xpcall0(f, function(e) return handler(table_of(e)) end))
    end
    return safe_pcall, safe_xpcall
";

/// Lua's own `sort` compares without executing instructions of the script, in the worst case each
/// element with each: it gets a comparison function whose instructions are counted.
const COUNTED_SORT: &str = "
    local sort0, type0 = ...
    local function less(a, b) return a < b end
    return function(list, before)
        if type0(list) ~= 'table' then return sort0(list) end
        if before == nil then return sort0(list, less) end
        if type0(before) ~= 'function' then return sort0(list, before) end
        return sort0(list, function(a, b) return (before(a, b)) end)
    end
";

/// Checks that a script compiles.
pub(crate) fn check(script: &Script) -> std::result::Result<(), Error> {
    machine().and_then(|lua| compiled(&lua, script.lua()).map(|_| ())).map_err(|e| not_lua(&e))
}

fn not_lua(error: &mlua::Error) -> Error {
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    Error::err(format_args!("Error compiling script (new function): {text}"))
}

fn machine() -> Result<Lua> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::default())?;
    lua.set_memory_limit(MEMORY_BYTES_MAX)?;
    Ok(lua)
}

fn compiled(lua: &Lua, text: &[u8]) -> Result<Function> {
    lua.load(text).set_name("@user_script").set_mode(ChunkMode::Text).into_function()
}

/// Runs a script.
pub(crate) fn run(
    script: &Script,
    keys: &[Bytes],
    arguments: &[Bytes],
    read_only: bool,
    overlay: &mut Overlay<'_>,
) -> std::result::Result<Reply, Stop> {
    let lua =
        machine().map_err(|error| Error::err(format_args!("no room for a script: {error}")))?;
    let function = compiled(&lua, script.lua()).map_err(|error| not_lua(&error))?;
    let running = Running {
        stopped: Rc::new(Cell::new(false)),
        protocol: Rc::new(Cell::new(Protocol::Resp2)),
        read_only: read_only || script.read_only,
        // All scripts in one MULTI share this time.
        until: *overlay.scripts_until.get_or_insert_with(|| Instant::now() + TIME_MAX),
    };
    let database = overlay.database;
    let before = overlay.mark();
    let random = Rc::new(Cell::new(overlay.random));
    let shared = RefCell::new(&mut *overlay);
    let at = Rc::new(Cell::new(1));
    let reply = lua.scope(|scope| {
        let redis = library::install(&lua, scope, &shared, &running)?;
        let globals = furnish(&lua, redis, keys, arguments, &running, &random)?;
        function.set_environment(globals)?;
        count_instructions(&lua, &running)?;
        let seen = at.clone();
        let handler = lua.create_function(move |lua, value: Value| {
            seen.set(line(lua));
            Ok(value)
        })?;
        let xpcall: Function = lua.named_registry_value("xpcall")?;
        let mut results: MultiValue = xpcall.call((function, handler))?;
        let fine = results.pop_front() == Some(Value::Boolean(true));
        let value = results.pop_front().unwrap_or(Value::Nil);
        Ok(if fine {
            to_reply(&value, running.protocol.get(), MEMORY_BYTES_MAX)
        } else {
            Reply::Error(failed(script, &understood(&value), at.get()))
        })
    });
    (overlay.database, overlay.random) = (database, random.get());
    if overlay.missing().is_some() {
        return Err(Stop::Missing);
    }
    // One call may have run for longer than the script had: what it wrote is too late.
    if running.stopped.get() || Instant::now() > running.until {
        overlay.back_to(before);
        let has_failed = !running.stopped.get() && matches!(reply, Ok(Reply::Error(_)));
        if !has_failed {
            return Ok(Reply::Error(failed(script, &too_long(), at.get())));
        }
    }
    Ok(reply.unwrap_or_else(|error| {
        Reply::Error(failed(script, &understood(&Value::Error(Box::new(error))), 1))
    }))
}

/// An error with the script and the line where it happened.
fn failed(script: &Script, raised: &errors::Raised, line: usize) -> Error {
    let mut text = if raised.coded { Vec::new() } else { b"ERR ".to_vec() };
    text.extend_from_slice(&raised.text);
    let place = format!(" script: {}, on @user_script:{line}.", script.sha);
    text.extend_from_slice(place.as_bytes());
    Error::new(text)
}

fn too_long() -> errors::Raised {
    coded(format!("ERR the script took more than {INSTRUCTIONS_MAX} steps or {TIME_MAX:?}"))
}

fn count_instructions(lua: &Lua, running: &Running) -> Result<()> {
    let (taken, stopped) = (Cell::new(0_u32), running.stopped.clone());
    let until = running.until;
    let every = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_COUNTED);
    lua.set_hook(every, move |_, _| {
        taken.set(taken.get().saturating_add(INSTRUCTIONS_COUNTED));
        if taken.get() > INSTRUCTIONS_MAX || Instant::now() > until || stopped.get() {
            stopped.set(true);
            return raise(too_long());
        }
        Ok(VmState::Continue)
    })
}

/// Sets up everything that a script may use, and nothing else.
fn furnish(
    lua: &Lua,
    redis: Table,
    keys: &[Bytes],
    arguments: &[Bytes],
    running: &Running,
    random: &Rc<Cell<u64>>,
) -> Result<Table> {
    let globals = lua.globals();
    for name in REMOVED {
        globals.raw_set(name, Value::Nil)?;
    }
    let string: Table = globals.raw_get("string")?;
    string.raw_set("dump", Value::Nil)?;
    patterns::install(lua)?;
    random::install(lua, random.clone())?;
    bits::install(lua)?;
    json::install(lua)?;
    json::missing(lua, "cmsgpack")?;
    json::missing(lua, "struct")?;
    loaders(lua)?;
    counted_sort(lua)?;
    protected_calls(lua, running)?;
    globals.raw_set("redis", redis)?;
    for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
        let table = lua.create_table_with_capacity(texts.len(), 0)?;
        for (index, text) in texts.iter().enumerate() {
            table.raw_set(index + 1, lua.create_string(text)?)?;
        }
        globals.raw_set(name, table)?;
    }
    let read_only = ReadOnly::new(lua)?;
    read_only.libraries(&LIBRARIES)?;
    let environment = read_only.globals()?;
    lua.set_named_registry_value(ENVIRONMENT, environment.clone())?;
    Ok(environment)
}

fn counted_sort(lua: &Lua) -> Result<()> {
    let globals = lua.globals();
    let table: Table = globals.raw_get("table")?;
    let (sort, kind): (Function, Function) = (table.raw_get("sort")?, globals.raw_get("type")?);
    let made = lua.load(COUNTED_SORT).set_name("=sort").into_function()?;
    table.raw_set("sort", made.call::<Function>((sort, kind))?)
}

fn protected_calls(lua: &Lua, running: &Running) -> Result<()> {
    let globals = lua.globals();
    let xpcall: Function = globals.raw_get("xpcall")?;
    let pcall: Function = globals.raw_get("pcall")?;
    let error: Function = globals.raw_get("error")?;
    lua.set_named_registry_value("xpcall", xpcall.clone())?;
    let flag = running.stopped.clone();
    let stopped = lua.create_function(move |_, ()| Ok(flag.get()))?;
    let text = lua.create_function(|lua, value: Value| match &value {
        Value::Error(_) => lua.create_string(understood(&value).text).map(Value::String),
        Value::Table(table) => match table.raw_get("err")? {
            Value::String(text) => Ok(Value::String(text)),
            _ => Ok(value),
        },
        _ => Ok(value),
    })?;
    let table_of = lua.create_function(|lua, value: Value| match &value {
        Value::Error(_) => {
            let raised = understood(&value);
            let text = lua.create_string(raised.text)?;
            if !raised.coded {
                return Ok(Value::String(text));
            }
            let table = lua.create_table()?;
            table.raw_set("err", text)?;
            Ok(Value::Table(table))
        }
        _ => Ok(value),
    })?;
    let made = lua.load(PROTECTED_CALLS).set_name("=protected").into_function()?;
    let (safe_pcall, safe_xpcall): (Function, Function) =
        made.call((pcall, xpcall, error, stopped, text, table_of))?;
    globals.raw_set("pcall", safe_pcall)?;
    globals.raw_set("xpcall", safe_xpcall)
}

/// Installs `load` and `loadstring`, which accept source but no compiled code.
fn loaders(lua: &Lua) -> Result<()> {
    let globals = lua.globals();
    let loaded = |lua: &Lua, text: &[u8], name: Option<Value>| -> Result<MultiValue> {
        let name = match name {
            Some(Value::String(name)) => name.to_string_lossy(),
            _ => "=?".to_owned(),
        };
        let globals: Table = lua.named_registry_value(ENVIRONMENT)?;
        let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
        let chunk = chunk.set_environment(globals);
        Ok(match chunk.into_function() {
            Ok(function) => MultiValue::from_iter([Value::Function(function)]),
            Err(error) => {
                let text = lua.create_string(error.to_string())?;
                MultiValue::from_iter([Value::Nil, Value::String(text)])
            }
        })
    };
    globals.raw_set(
        "loadstring",
        lua.create_function(move |lua, (text, name): (mlua::String, Option<Value>)| {
            loaded(lua, &text.as_bytes(), name)
        })?,
    )?;
    globals.raw_set(
        "load",
        lua.create_function(move |lua, (next, name): (Function, Option<Value>)| {
            let mut text = Vec::new();
            while let Value::String(piece) = next.call::<Value>(())? {
                if piece.as_bytes().is_empty() || text.len() > MEMORY_BYTES_MAX {
                    break;
                }
                text.extend_from_slice(&piece.as_bytes());
            }
            loaded(lua, &text, name)
        })?,
    )
}
