//! The `bit` library.

use super::random::number;
use mlua::{Lua, MultiValue, Result};

/// Wraps a number around at 32 bits.
fn wrapped(number: f64) -> i32 {
    number.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}

/// Creates the library's table.
pub(super) fn install(lua: &Lua) -> Result<()> {
    let table = lua.create_table()?;
    let one = |name: &'static str, change: fn(i32) -> i32| {
        let function = lua.create_function(move |lua, values: MultiValue| {
            Ok(change(wrapped(number(lua, &values, 0, name)?)))
        })?;
        table.raw_set(name, function)
    };
    one("tobit", |x| x)?;
    one("bnot", |x| !x)?;
    one("bswap", i32::swap_bytes)?;
    let all = |name: &'static str, join: fn(i32, i32) -> i32| {
        let function = lua.create_function(move |lua, values: MultiValue| {
            let mut joined = wrapped(number(lua, &values, 0, name)?);
            for at in 1..values.len() {
                joined = join(joined, wrapped(number(lua, &values, at, name)?));
            }
            Ok(joined)
        })?;
        table.raw_set(name, function)
    };
    all("band", |a, b| a & b)?;
    all("bor", |a, b| a | b)?;
    all("bxor", |a, b| a ^ b)?;
    let shift = |name: &'static str, shift: fn(i32, u32) -> i32| {
        let function = lua.create_function(move |lua, values: MultiValue| {
            let by = wrapped(number(lua, &values, 1, name)?).cast_unsigned() & 31;
            Ok(shift(wrapped(number(lua, &values, 0, name)?), by))
        })?;
        table.raw_set(name, function)
    };
    shift("lshift", |x, by| x.wrapping_shl(by))?;
    shift("rshift", |x, by| (x.cast_unsigned() >> by).cast_signed())?;
    shift("arshift", |x, by| x >> by)?;
    shift("rol", i32::rotate_left)?;
    shift("ror", i32::rotate_right)?;
    table.raw_set(
        "tohex",
        lua.create_function(|lua, values: MultiValue| {
            let value = wrapped(number(lua, &values, 0, "tohex")?);
            let digits =
                if values.len() > 1 { wrapped(number(lua, &values, 1, "tohex")?) } else { 8 };
            let len = digits.unsigned_abs().min(8) as usize;
            let hex = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
            Ok(hex.get(8 - len..).unwrap_or_default().to_owned())
        })?,
    )?;
    lua.globals().raw_set("bit", table)
}
