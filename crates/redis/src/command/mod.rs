//! Parses requests into typed commands. There is one file per family: its commands' names, how many
//! arguments they take, which of these are keys, and what they mean.

pub(crate) mod args;
mod connection;
mod describe;
mod hashes;
mod holdfast;
mod keys;
mod lists;
mod pubsub;
mod scripting;
mod server;
mod strings;
mod table;
mod transactions;

pub use connection::{ClientCommand, Connection, Hello};
pub(crate) use describe::describe;
pub use hashes::Hashes;
pub use holdfast::Holdfast;
pub use keys::{Condition, Keys, Scan};
pub use lists::{End, Lists};
pub use pubsub::PubSub;
pub use scripting::Scripting;
pub use server::{Describe, Server};
pub use strings::{Expire, ExpireTime, SetCondition, Strings};
pub use table::{KeyPlaces, Spec, all, find};
pub use transactions::Transactions;

use crate::error::Error;
use bytes::Bytes;

/// A command with its arguments parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Strings, which are locks.
    Strings(Strings),
    /// Keys of any type.
    Keys(Keys),
    /// Hashes.
    Hashes(Hashes),
    /// Lists.
    Lists(Lists),
    /// Lua.
    Scripting(Scripting),
    /// MULTI and related commands.
    Transactions(Transactions),
    /// Publish/subscribe.
    PubSub(PubSub),
    /// The connection itself.
    Connection(Connection),
    /// The server.
    Server(Server),
    /// Commands that Redis does not have.
    Holdfast(Holdfast),
    /// A command queued by MULTI whose arguments are wrong: Redis reports it when the command runs.
    Wrong(Error),
}

/// A parsed command, with its entry in the table.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// Its entry in the table.
    pub spec: &'static Spec,
    /// The command itself.
    pub command: Command,
    /// Its keys, as far as its arguments tell.
    pub keys: Vec<Bytes>,
    /// The size of all its arguments, in bytes.
    pub bytes: usize,
}

/// Looks up the command of a request, and checks its arity.
pub fn look_up(request: &[Bytes]) -> Result<&'static Spec, Error> {
    let Some((name, arguments)) = request.split_first() else { return Err(Error::SYNTAX) };
    let spec = find(name).ok_or_else(|| Error::unknown_command(name, arguments))?;
    if spec.takes(request.len()) { Ok(spec) } else { Err(Error::arity(spec.name)) }
}

/// Parses a request.
pub fn parse(request: &[Bytes]) -> Result<Parsed, Error> {
    let spec = look_up(request)?;
    let command = (spec.parse)(request.get(1..).unwrap_or_default())?;
    Ok(Parsed { spec, command, keys: spec.keys(request), bytes: bytes(request) })
}

/// Parses a request to be queued: what is wrong with its arguments is reported when it runs.
pub fn parse_later(request: &[Bytes]) -> Result<Parsed, Error> {
    let spec = look_up(request)?;
    match parse(request) {
        Err(error) if !spec.has_parts() => {
            Ok(Parsed { spec, command: Command::Wrong(error), keys: Vec::new(), bytes: 0 })
        }
        parsed => parsed,
    }
}

fn bytes(request: &[Bytes]) -> usize {
    request.iter().map(Bytes::len).fold(0, usize::saturating_add)
}
