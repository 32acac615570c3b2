//! The socket loop:
//!
//! - `listen`: accepts connections; the connection limit and timeouts
//! - `connection`: one client: drives `holdfast_zookeeper::connection`, and performs its actions
//! - `wire`: its socket: bytes in, frames out
//! - `work`: its requests, as a task on the loop's thread
//! - `registry`: all clients; routes events of the loop's thread to their connections
//! - `door`: the state that all connections share; answers four-letter words

mod connection;
mod door;
mod listen;
mod registry;
mod wire;
mod work;

use crate::doors::Opening;
use door::Door;
use std::io;
use std::sync::Arc;

/// Serves until the future is dropped.
pub(super) async fn serve(opening: Opening) -> io::Result<()> {
    let Opening { listener, limit, context, .. } = opening;
    let commands = context.metrics.commands(super::DOOR.name);
    let door = Arc::new(Door::new(context.engine, commands, context.authenticator));
    listen::serve(listener, door, limit, listen::Timeouts::default()).await
}
