//! Bounds the time of string functions: one call of `string.find` can try as many matches as there
//! are ways to place the pattern's repetitions, and none of the script's instructions are counted
//! meanwhile.

use super::errors::{forward, located, raise};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};

/// Ways to place the repetitions of a pattern in a text: a few tenths of a second.
const WAYS_MAX: f64 = 1e8;

/// How many bytes of a pattern are compared in the time that one way takes.
const COMPARED_BYTES: f64 = 16.0;

/// Puts a check in front of all functions that match patterns, and of `rep`.
pub(super) fn install(lua: &Lua) -> Result<()> {
    let string: Table = lua.globals().raw_get("string")?;
    for name in ["find", "match", "gmatch", "gsub", "gfind"] {
        let Value::Function(original) = string.raw_get(name)? else { continue };
        string.raw_set(name, checked(lua, name, original)?)?;
    }
    let rep: Function = string.raw_get("rep")?;
    let repeated = lua.create_function(move |lua, mut values: MultiValue| {
        let empty =
            matches!(values.front(), Some(Value::String(text)) if text.as_bytes().is_empty());
        if empty
            && let Some(count) = values.get_mut(1)
            && lua.coerce_number(count.clone())?.is_some()
        {
            // An empty string, however often; Lua would count that far.
            *count = Value::Integer(0);
        }
        forward(lua, "rep", &rep, values)
    })?;
    string.raw_set("rep", repeated)
}

fn checked(lua: &Lua, name: &'static str, original: Function) -> Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let plain = name == "find" && values.get(3).is_some_and(|v| !v.is_nil() && !is_false(v));
        if let (Some(Value::String(text)), Some(Value::String(pattern))) =
            (values.front(), values.get(1))
            && ways(text.as_bytes().len(), &pattern.as_bytes(), plain) > WAYS_MAX
        {
            return raise(located(lua, "the pattern has too many repetitions for so long a text"));
        }
        forward(lua, name, &original, values)
    })
}

fn is_false(value: &Value) -> bool {
    matches!(value, Value::Boolean(false))
}

/// An upper bound on the number of ways.
fn ways(len: usize, pattern: &[u8], plain: bool) -> f64 {
    let mut repetitions = 0_usize;
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next().filter(|_| !plain) {
        match byte {
            b'%' => {
                // A `%b` pair, or a back reference, may be of any length.
                let any_length = |next: &u8| *next == b'b' || next.is_ascii_digit();
                repetitions += usize::from(rest.next().is_some_and(any_length));
            }
            b'*' | b'+' | b'-' | b'?' => repetitions += 1,
            _ => {}
        }
    }
    // Without an anchor, every position is tried as the start.
    let anchored = !plain && pattern.first() == Some(&b'^');
    let places = repetitions + usize::from(!anchored);
    let each = (pattern.len() as f64 / COMPARED_BYTES).max(1.0);
    (1..=places).fold(each, |ways, place| ways * (len + place) as f64 / place as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_patterns_are_cheap() {
        for (len, pattern) in [
            (4_096, "[^:]+"),
            (500, "^%s*(.-)%s*$"),
            (200, "(%w+)=(%w+)"),
            (100_000, "%d"),
            (1_000_000, "x"),
        ] {
            assert!(ways(len, pattern.as_bytes(), false) <= WAYS_MAX, "{pattern}");
        }
        for (len, pattern) in [
            (100, ".-.-.-.-.-.-.-x"),
            (100_000, ".-.-x"),
            (30_000, "a*b"),
            (100_000, "%b()"),
            (1_000, "(.*)%1x"),
        ] {
            assert!(ways(len, pattern.as_bytes(), false) > WAYS_MAX, "{pattern}");
        }
        let (text, sought) = (4 << 20, vec![b'a'; 2 << 20]);
        assert!(ways(text, &sought, true) > WAYS_MAX);
        assert!(ways(text, b".-.-.-", true) <= WAYS_MAX);
    }
}
