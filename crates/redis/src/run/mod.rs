//! Runs commands against keys as they were read; the result is one transaction.
//!
//! - `read_set`: the keys that were read, and what else is wanted
//! - `overlay`: what the job has written, and what that becomes in the core
//! - `job`: one command, or a whole MULTI
//! - `size`: size limits
//! - `strings`, `keys`, `hashes`, `lists`, `script`, `server`: one file per family

mod database;
mod hashes;
mod job;
mod keys;
mod lists;
mod local;
mod overlay;
mod read_set;
mod script;
mod server;
mod size;
mod strings;

pub use database::Database;
pub use job::{Answered, Block, Done, Job, Run};
pub use local::{Local, NodeFacts};
pub(crate) use overlay::{Overlay, Stop};
pub use read_set::{Listed, Listing, ReadRequest, ReadSet};
pub(crate) use server::REDIS_VERSION;

use crate::acquiring::OwnerId;
use crate::command::{Command, Connection, Holdfast, PubSub, Transactions};
use crate::error::Error;
use crate::resp::Reply;
use holdfast_core::{Expiry, LockName};

/// A command's reply, or why it could not continue.
pub(crate) type RunResult<T> = Result<T, Stop>;

/// Runs one command. Those about the connection are handled elsewhere.
pub(crate) fn run(command: &Command, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Command::Strings(command) => strings::run(command, overlay),
        Command::Keys(command) => keys::run(command, overlay),
        Command::Hashes(command) => hashes::run(command, overlay),
        Command::Lists(command) => lists::run(command, overlay),
        Command::Scripting(command) => script::run(command, overlay),
        Command::Server(command) => server::run(command, overlay),
        Command::PubSub(PubSub::Publish(channel, message)) => {
            overlay.publish(channel, message)?;
            Ok(Reply::count(overlay.local.subscribers(channel)))
        }
        Command::PubSub(command) => Ok(server::listeners(command, overlay)),
        Command::Holdfast(command) => holdfast(command, overlay),
        Command::Connection(Connection::Ping(None)) => Ok(Reply::status("PONG")),
        Command::Connection(Connection::Ping(Some(text)) | Connection::Echo(text)) => {
            Ok(Reply::Bulk(text.clone()))
        }
        Command::Connection(Connection::Select(number)) => {
            overlay.database = Database(*number);
            Ok(Reply::OK)
        }
        // Nothing is watched any more once EXEC has begun.
        Command::Transactions(Transactions::Unwatch) => Ok(Reply::OK),
        Command::Wrong(error) => Err(error.clone().into()),
        Command::Connection(_) | Command::Transactions(_) => Err(not_here().into()),
    }
}

fn not_here() -> Error {
    Error::fixed("ERR this command can't be used inside MULTI or a script")
}

fn holdfast(command: &Holdfast, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Holdfast::Acquire { .. } => Err(not_here().into()),
        Holdfast::OwnerId => {
            let random = [overlay.local.random(), overlay.local.random()];
            Ok(Reply::bulk(OwnerId::draw(random)))
        }
        Holdfast::Token(name) => {
            let name = overlay.name(name)?;
            let token = overlay.token(&name)?;
            Ok(token.map_or(Reply::Null, |token| {
                Reply::Integer(i64::try_from(token.0).unwrap_or(i64::MAX))
            }))
        }
        Holdfast::Release { name, owner, token } => {
            let name = overlay.name(name)?;
            let is_it = holds(overlay, &name, owner, *token)?;
            if is_it {
                overlay.delete(&name)?;
            }
            Ok(is_it.into())
        }
        Holdfast::Renew { name, owner, token, ttl_ms } => {
            let name = overlay.name(name)?;
            let is_it = holds(overlay, &name, owner, *token)?;
            if is_it {
                overlay.expire(&name, Expiry::AfterMs(*ttl_ms))?;
            }
            Ok(is_it.into())
        }
    }
}

fn holds(overlay: &mut Overlay<'_>, name: &LockName, owner: &[u8], token: u64) -> RunResult<bool> {
    Ok(overlay.token(name)?.is_some_and(|has| has.0 == token)
        && overlay.text(name)?.is_some_and(|has| has.as_bytes() == owner))
}
