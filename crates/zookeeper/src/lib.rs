//! The ZooKeeper door of Holdfast, without its sockets.
//!
//! Everything here is pure: bytes, the state, events and the clock are inputs; frames and commands
//! for the core are outputs. The owner of the sockets performs each [`Action`](connection::Action).
//!
//! The path of one request:
//!
//! 1. [`codec::Decoder`] splits its frame from the received bytes, and [`codec::Request`] parses
//!    it.
//! 2. [`connection::Connection`] keeps the client's state: its session, its proven identities and
//!    its outstanding requests. Requests that can be done together become a [`task::ClientTask`].
//! 3. The task runs on the loop's thread, as a task of the gateway. A change goes through the log
//!    as [`TreeCommand::Write`](holdfast_core::TreeCommand). A read uses this node's state, which
//!    is all that ZooKeeper promises; a `sync` before it makes that state current. A watch is
//!    registered in [`Clients`] in the same step as the read that sets it.
//! 4. The core returns what an entry did to znodes as effects, and [`Clients::effect`] says which
//!    clients to notify. The driver delivers these notices before it returns tasks that saw the new
//!    state. So a client is notified of a change before it sees it, and of its own changes before
//!    their replies.
//!
//! Sequential znodes with a lock recipe's marker are tickets. The core handles those: see
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
