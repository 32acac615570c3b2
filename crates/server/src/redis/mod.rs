//! The Redis door: RESP on a port of its own. What is pure of it is in the crate `holdfast-redis`.
//!
//! - `listen`: connections come in
//! - `connection`: one client, its requests in order, what came together done together
//! - `wire`: its socket: bytes in, replies and messages out
//! - `work`: a job on the loop's thread, until it is applied
//! - `aside`: what takes too long for that thread: Lua, lists of all keys
//! - `waiting`: HOLDFAST.ACQUIRE
//! - `channels`: who hears what is published
//! - `memory`: what all connections keep together
//! - `door`: what all connections share
//! - `words`: what goes wrong, in Redis's words

mod aside;
mod channels;
mod connection;
mod door;
mod listen;
mod memory;
mod waiting;
mod wire;
mod words;
mod work;

pub(crate) use channels::Channels;

use crate::api::Api;
use crate::password::Password;
use door::Door;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves until the task is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    api: Api,
    channels: Arc<Channels>,
    password: Option<Password>,
) -> io::Result<()> {
    let port = listener.local_addr().map_or(0, |address| address.port());
    let door = Arc::new(Door::new(api, channels, password, port));
    listen::serve(listener, door, listen::Bounds::of_process()).await
}
