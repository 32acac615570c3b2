//! The socket loop:
//!
//! - `listen`: accepts connections
//! - `connection`: one client: its requests in order, pipelined commands together
//! - `wire`: its socket: bytes in, replies and messages out
//! - `work`: a job on the loop's thread, until it is applied
//! - `background`: what takes too long for that thread: Lua, listing all keys
//! - `waiting`: HOLDFAST.ACQUIRE
//! - `door`: the state that all connections share

mod background;
mod connection;
mod door;
mod listen;
mod waiting;
mod wire;
mod work;

use crate::doors::Opening;
use door::Door;
use std::io;
use std::sync::Arc;

/// Serves until the future is dropped.
pub(super) async fn serve(opening: Opening) -> io::Result<()> {
    let Opening { listener, limit, context, .. } = opening;
    let port = listener.port().unwrap_or(0);
    let commands = context.metrics.commands(super::DOOR.name);
    let door = Arc::new(Door::new(context.engine, commands, context.authenticator, port));
    listen::serve(listener, door, limit, listen::Timeouts::default()).await
}
