//! The socket loop:
//!
//! - `listen`: accepts connections, and how long they may take
//! - `connection`: one client: drives `holdfast_zookeeper::connection`, and does what it says
//! - `wire`: its socket: bytes in, frames out
//! - `work`: its requests on the loop's thread, as a task
//! - `registry`: all clients, and who receives what happens on the loop's thread
//! - `door`: the state that all connections share; four-letter words

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
    let Opening { listener, limit, context, password, .. } = opening;
    let commands = context.metrics.commands(super::DOOR.name);
    let door = Arc::new(Door::new(context.engine, commands, password));
    listen::serve(listener, door, limit, listen::Timeouts::default()).await
}
