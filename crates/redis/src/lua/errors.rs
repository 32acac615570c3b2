//! Errors inside a script, and what they become outside.

use mlua::{Function, Lua, MultiValue, Value};
use std::fmt;

/// An error raised by one of our functions.
#[derive(Debug, Clone)]
pub(super) struct Raised {
    /// The message.
    pub(super) text: Vec<u8>,
    /// Whether it is an error reply, which has its own code, or a Lua message.
    pub(super) coded: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

/// Raises an error in the script.
pub(super) fn raise<T>(raised: Raised) -> mlua::Result<T> {
    Err(mlua::Error::external(raised))
}

/// An error reply.
pub(super) fn coded(text: impl Into<Vec<u8>>) -> Raised {
    Raised { text: text.into(), coded: true }
}

/// A Lua message, with the line at which the script called the function.
pub(super) fn located(lua: &Lua, text: &str) -> Raised {
    let text = format!("user_script:{}: {text}", line(lua));
    Raised { text: text.into_bytes(), coded: false }
}

/// Calls one of Lua's own functions from its replacement. Its errors are attributed to the script,
/// as if there were no replacement.
pub(super) fn forward(
    lua: &Lua,
    name: &str,
    original: &Function,
    values: MultiValue,
) -> mlua::Result<MultiValue> {
    original.call(values).or_else(|error| match &error {
        mlua::Error::RuntimeError(text) if !text.starts_with("user_script:") => {
            let text = text.split("\nstack traceback:").next().unwrap_or_default();
            raise(located(lua, &text.replace("'?'", &format!("'{name}'"))))
        }
        _ => Err(error),
    })
}

/// How many stack frames are searched for a line of the script.
const FRAMES_MAX: usize = 64;

/// The line of the script that is being executed.
pub(super) fn line(lua: &Lua) -> usize {
    let line = |level| {
        lua.inspect_stack(level, |frame| {
            let ours = frame.source().short_src.is_some_and(|name| name == "user_script");
            frame.current_line().filter(|_| ours)
        })
        .flatten()
    };
    (0..FRAMES_MAX).find_map(line).unwrap_or(1)
}

/// Converts an error value: one of our errors, a table with `err`, or any text.
pub(super) fn understood(value: &Value) -> Raised {
    match value {
        Value::String(text) => Raised { text: text.as_bytes().to_vec(), coded: false },
        Value::Table(table) => match table.raw_get("err") {
            Ok(Value::String(text)) => coded(text.as_bytes().to_vec()),
            _ => Raised { text: b"unknown error".to_vec(), coded: false },
        },
        Value::Error(error) => of(error),
        other => Raised {
            text: other.to_string().unwrap_or_else(|_| "unknown error".to_owned()).into_bytes(),
            coded: false,
        },
    }
}

fn of(error: &mlua::Error) -> Raised {
    match error {
        mlua::Error::CallbackError { cause, .. } => of(cause),
        mlua::Error::ExternalError(cause) => match cause.downcast_ref::<Raised>() {
            Some(raised) => raised.clone(),
            None => Raised { text: cause.to_string().into_bytes(), coded: false },
        },
        mlua::Error::RuntimeError(text) => {
            let text = text.split("\nstack traceback:").next().unwrap_or_default();
            Raised { text: text.as_bytes().to_vec(), coded: false }
        }
        mlua::Error::MemoryError(_) => Raised { text: b"not enough memory".to_vec(), coded: false },
        other => Raised { text: other.to_string().into_bytes(), coded: false },
    }
}
