//! Requests to typed commands. One file a family: what its commands are called, how many
//! arguments they take, where their keys stand, and what they mean.

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
pub use strings::{Expire, Only, Strings, When};
pub use table::{KeyPlaces, Spec, all, find};
pub use transactions::Transactions;

use crate::error::Error;
use bytes::Bytes;

/// A command with its arguments understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Texts, which are locks.
    Strings(Strings),
    /// Whatever a key is.
    Keys(Keys),
    /// Hashes.
    Hashes(Hashes),
    /// Lists.
    Lists(Lists),
    /// Lua.
    Scripting(Scripting),
    /// MULTI and what belongs to it.
    Transactions(Transactions),
    /// Messages.
    PubSub(PubSub),
    /// About the connection itself.
    Connection(Connection),
    /// About the server.
    Server(Server),
    /// What Redis does not have.
    Holdfast(Holdfast),
    /// One that was gathered by a MULTI and whose arguments are wrong: Redis says so when its turn
    /// comes.
    Wrong(Error),
}

/// A command, and what the table says of it.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// Its line in the table.
    pub spec: &'static Spec,
    /// What it means.
    pub command: Command,
    /// Where it reads, as far as its arguments tell.
    pub keys: Vec<Bytes>,
    /// The bytes of all its arguments.
    pub bytes: usize,
}

/// Finds the command of a request, and checks how many words that has.
pub fn look_up(request: &[Bytes]) -> Result<&'static Spec, Error> {
    let Some((name, arguments)) = request.split_first() else { return Err(Error::SYNTAX) };
    let spec = find(name).ok_or_else(|| Error::unknown_command(name, arguments))?;
    if spec.takes(request.len()) { Ok(spec) } else { Err(Error::arity(spec.name)) }
}

/// Understands a request.
pub fn parse(request: &[Bytes]) -> Result<Parsed, Error> {
    let spec = look_up(request)?;
    let command = (spec.parse)(request.get(1..).unwrap_or_default())?;
    Ok(Parsed { spec, command, keys: spec.keys(request), bytes: bytes(request) })
}

/// Understands a request that is only gathered: what is wrong with its arguments is said later.
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
