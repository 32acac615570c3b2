//! Patterns take no more time than a script may: one call of `string.find` can try as many ways to
//! match as there are to place its repetitions, and no step of the script is counted meanwhile.

use super::errors::{located, raise};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};

/// Ways to place the repetitions of a pattern in a text: some tenths of a second.
const WAYS_MAX: f64 = 1e8;

/// Puts a check in front of all that match patterns.
pub(super) fn install(lua: &Lua) -> Result<()> {
    let string: Table = lua.globals().raw_get("string")?;
    for name in ["find", "match", "gmatch", "gsub", "gfind"] {
        let Value::Function(original) = string.raw_get(name)? else { continue };
        string.raw_set(name, checked(lua, name, original)?)?;
    }
    Ok(())
}

fn checked(lua: &Lua, name: &'static str, original: Function) -> Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let plain = name == "find" && values.get(3).is_some_and(|v| !v.is_nil() && !is_false(v));
        if let (Some(Value::String(text)), Some(Value::String(pattern))) =
            (values.front(), values.get(1))
            && !plain
            && ways(text.as_bytes().len(), &pattern.as_bytes()) > WAYS_MAX
        {
            return raise(located(lua, "the pattern has too many repetitions for so long a text"));
        }
        original.call::<MultiValue>(values)
    })
}

fn is_false(value: &Value) -> bool {
    matches!(value, Value::Boolean(false))
}

/// How many ways there are at most.
fn ways(len: usize, pattern: &[u8]) -> f64 {
    let mut repetitions = 0_usize;
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                rest.next();
            }
            b'*' | b'+' | b'-' | b'?' => repetitions += 1,
            _ => {}
        }
    }
    // Without an anchor every place is tried as the beginning.
    let places = repetitions + usize::from(pattern.first() != Some(&b'^'));
    (1..=places).fold(1.0, |ways, place| ways * (len + place) as f64 / place as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_use_is_cheap() {
        for (len, pattern) in [
            (4_096, "[^:]+"),
            (500, "^%s*(.-)%s*$"),
            (200, "(%w+)=(%w+)"),
            (100_000, "%d"),
            (1_000_000, "x"),
        ] {
            assert!(ways(len, pattern.as_bytes()) <= WAYS_MAX, "{pattern}");
        }
        for (len, pattern) in [(100, ".-.-.-.-.-.-.-x"), (100_000, ".-.-x"), (30_000, "a*b")] {
            assert!(ways(len, pattern.as_bytes()) > WAYS_MAX, "{pattern}");
        }
    }
}
