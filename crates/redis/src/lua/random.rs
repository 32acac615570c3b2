//! `math.random` as in Redis: with its own generator, which `math.randomseed` seeds. A job's seed
//! is drawn at random at the edge, because scripts make owner tokens from these numbers.

use super::errors::{located, raise};
use mlua::{Lua, MultiValue, Result, Value};
use std::cell::Cell;
use std::rc::Rc;

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MODULUS_MASK: u64 = (1 << 48) - 1;

fn begun_at(number: i32) -> u64 {
    (u64::from(number.cast_unsigned()) << 16) | 0x330E
}

/// The next 31 bits.
fn draw(state: &Cell<u64>) -> u64 {
    let next = state.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MODULUS_MASK;
    state.set(next);
    next >> 17
}

/// Installs `random` and `randomseed` in `math`. The next script of the same job continues from
/// what `state` then holds, as in Redis.
pub(super) fn install(lua: &Lua, state: Rc<Cell<u64>>) -> Result<()> {
    let math: mlua::Table = lua.globals().raw_get("math")?;
    state.set(state.get() & MODULUS_MASK);
    let begin = state.clone();
    math.raw_set(
        "randomseed",
        lua.create_function(move |lua, values: MultiValue| {
            let number = number(lua, &values, 0, "randomseed")?;
            begin.set(begun_at(number as i64 as i32));
            Ok(())
        })?,
    )?;
    math.raw_set(
        "random",
        lua.create_function(move |lua, bounds: MultiValue| {
            let most = f64::from(i32::MAX);
            let part = (draw(&state) % i32::MAX as u64) as f64 / most;
            let empty = |at: usize| {
                raise(located(lua, &format!("bad argument #{at} to 'random' (interval is empty)")))
            };
            match bounds.len() {
                0 => Ok(part),
                1 => {
                    let high = number(lua, &bounds, 0, "random")?.trunc();
                    if high < 1.0 { empty(1) } else { Ok((part * high).floor() + 1.0) }
                }
                2 => {
                    let low = number(lua, &bounds, 0, "random")?.trunc();
                    let high = number(lua, &bounds, 1, "random")?.trunc();
                    if low > high {
                        empty(2)
                    } else {
                        Ok((part * (high - low + 1.0)).floor() + low)
                    }
                }
                _ => raise(located(lua, "wrong number of arguments")),
            }
        })?,
    )
}

/// A numeric argument; otherwise an error in Lua's wording.
pub(super) fn number(lua: &Lua, values: &MultiValue, at: usize, function: &str) -> Result<f64> {
    let value = values.get(at);
    let number = match value {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => {
            std::str::from_utf8(&text.as_bytes()).ok().and_then(|text| text.trim().parse().ok())
        }
        _ => None,
    };
    let got = value.map_or("no value", Value::type_name);
    let place = at.saturating_add(1);
    match number {
        Some(number) => Ok(number),
        None => raise(located(
            lua,
            &format!("bad argument #{place} to '{function}' (number expected, got {got})"),
        )),
    }
}
