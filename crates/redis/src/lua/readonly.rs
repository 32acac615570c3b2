//! Tables that a script can read but not write: the libraries, the globals, and the metatable of
//! strings. Redis patches its Lua for this; here each is an empty proxy in front of the real table,
//! and the functions that bypass metatables know about it.

use super::errors::{Raised, forward, located, raise};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};

/// Redis's wording.
const REFUSED: &str = "Attempt to modify a readonly table";

/// The proxies in front of the real tables.
pub(super) struct ReadOnly<'a> {
    lua: &'a Lua,
    /// Maps each proxy to its real table.
    real: Table,
    refuse: Function,
}

impl<'a> ReadOnly<'a> {
    pub(super) fn new(lua: &'a Lua) -> Result<Self> {
        let refuse = lua
            .create_function(|lua, _: MultiValue| -> Result<()> { raise(located(lua, REFUSED)) })?;
        Ok(Self { lua, real: lua.create_table()?, refuse })
    }

    /// Makes a read-only proxy for a table.
    fn front(&self, table: Table) -> Result<Table> {
        let (front, meta) = (self.lua.create_table()?, self.lua.create_table()?);
        meta.raw_set("__index", table.clone())?;
        meta.raw_set("__newindex", self.refuse.clone())?;
        front.set_metatable(Some(meta))?;
        self.real.raw_set(front.clone(), table)?;
        Ok(front)
    }

    /// Protects these globals.
    pub(super) fn libraries(&self, names: &[&str]) -> Result<()> {
        let globals = self.lua.globals();
        for name in names {
            globals.raw_set(*name, self.front(globals.raw_get(*name)?)?)?;
        }
        Ok(())
    }

    /// Protects all globals; returns the environment for a script.
    pub(super) fn globals(&self) -> Result<Table> {
        let lua = self.lua;
        let globals = lua.globals();
        let nonexistent =
            lua.create_function(|lua, (_, name): (Value, Value)| -> Result<Value> {
                let name = name.to_string()?;
                let text =
                    format!("Script attempted to access nonexistent global variable '{name}'");
                raise(located(lua, &text))
            })?;
        let meta = lua.create_table()?;
        meta.raw_set("__index", nonexistent.clone())?;
        let environment = self.front(globals.clone())?;
        self.functions(&environment, self.front(meta.clone())?)?;
        globals.raw_set("_G", environment.clone())?;
        globals.set_metatable(Some(meta))?;
        Ok(environment)
    }

    /// Replaces the functions that bypass metatables.
    fn functions(&self, environment: &Table, environment_meta: Table) -> Result<()> {
        let lua = self.lua;
        let globals = lua.globals();
        let table: Table = globals.raw_get("table")?;
        let table: Table = self.real.raw_get(table)?;
        for (place, name) in [(&globals, "rawset"), (&globals, "setmetatable"), (&table, "insert")]
        {
            let (original, real): (Function, _) = (place.raw_get(name)?, self.real.clone());
            let checked = lua.create_function(move |lua, values: MultiValue| {
                if let Some(Value::Table(table)) = values.front()
                    && real.raw_get::<Option<Table>>(table)?.is_some()
                {
                    return raise(Raised { text: REFUSED.into(), coded: false });
                }
                forward(lua, name, &original, values)
            })?;
            place.raw_set(name, checked)?;
        }
        let (original, real): (Function, _) = (globals.raw_get("rawget")?, self.real.clone());
        let rawget = lua.create_function(move |lua, mut values: MultiValue| {
            if let Some(Value::Table(table)) = values.front_mut()
                && let Some(real) = real.raw_get::<Option<Table>>(&*table)?
            {
                *table = real;
            }
            forward(lua, "rawget", &original, values)
        })?;
        globals.raw_set("rawget", rawget)?;
        let original: Function = globals.raw_get("getmetatable")?;
        let texts: Table = original.call("")?;
        texts.raw_set("__index", globals.raw_get::<Table>("string")?)?;
        let texts = self.front(texts)?;
        let (environment, real) = (environment.clone(), self.real.clone());
        let getmetatable = lua.create_function(move |lua, values: MultiValue| {
            let shown = match values.front() {
                Some(Value::String(_)) => Value::Table(texts.clone()),
                Some(Value::Table(table)) if *table == environment => {
                    Value::Table(environment_meta.clone())
                }
                Some(Value::Table(table)) if real.raw_get::<Option<Table>>(table)?.is_some() => {
                    Value::Nil
                }
                _ => return forward(lua, "getmetatable", &original, values),
            };
            Ok(MultiValue::from_iter([shown]))
        })?;
        globals.raw_set("getmetatable", getmetatable)
    }
}
