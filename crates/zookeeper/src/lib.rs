//! The ZooKeeper door of Holdfast, without its sockets.
//!
//! Everything here is pure: bytes, the state, events and the clock come in; frames and commands for
//! the core go out. Whoever has the sockets does what an [`Action`](connection::Action) says.
//!
//! The story of one request:
//!
//! 1. [`codec::Decoder`] cuts its frame out of the bytes that came in, and [`codec::Request`] reads it.
//! 2. [`connection::Connection`] knows the client: its session, who it has shown to be, what it still
//!    waits for. Requests that can be done at one moment become a [`task::ClientTask`].
//! 3. The task runs beside the state, as a task of the gateway. A change goes through the log as
//!    [`TreeCommand::Write`](holdfast_core::TreeCommand); a read is done with the state as this node
//!    has it, which is what ZooKeeper promises, and a `sync` before it makes that current. A watch is
//!    registered in [`Clients`] in the same step as the read that sets it.
//! 4. What an entry did to znodes comes out of the core as effects, and [`Clients::effect`] says which
//!    clients must hear of it. The driver hands these on before it hands back tasks that saw the new
//!    state. So a client hears of a change before it sees it, and of its own before the reply.
//!
//! Sequential znodes with a lock recipe's marker are tickets: that is the core's business, see
//! `holdfast-core/src/stores/tree`.

mod auth;
mod clients;
mod code;
pub mod codec;
pub mod connection;
pub mod four_letter;
mod reads;
pub mod task;
mod watches;

pub use clients::{ClientId, Clients, Notice};
pub use code::Code;
