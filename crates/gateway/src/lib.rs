//! The layer between the doors and the node, without any I/O, clock or randomness.
//!
//! The path of one acquire: a door turns a frame into a native request ([`request`]), which is
//! validated once, whatever the transport. The driver passes it to the [`Gateway`] as
//! [`Input::Submit`], with an address for the completion. The gateway records the call, submits the
//! command to the node, and receives the reply. If the ticket waits, the call becomes a wait, which
//! completes when the effects of a later entry include the grant; without a session, only after the
//! grant has been confirmed through the log. If the caller goes away, the driver sends
//! [`Input::Abandon`], whatever the state of the call, and the gateway withdraws the command, ends
//! the wait or releases the lock.
//!
//! - `io`: inputs and outputs
//! - `gateway`: the turn, deadlines, abandoned calls
//! - `ticket_ref`, `tickets`: gives up tickets that have no caller any more, confirms grants
//! - `calls`: what a node's reply means for each call; attach
//! - `waits`: which calls wait for which ticket
//! - `events`, `queue`: sessions' events, topics and subscriptions, the bounded queue of a connection
//! - `task`, `tasks`, `blocked`: work that doors do on the state, step by step
//! - `access`: who calls, and the one check of rights
//! - `freshness`, `pending_acquire`: whether a grant is still valid when it is delivered
//! - `request`, `error`: native requests, and the one error type
//!
//! Nothing here knows of a particular door, except the table of [`Code`], which has a column for each
//! protocol. A server drives it with sockets; a simulator can with virtual ones.

mod access;
mod audit;
mod blocked;
mod calls;
mod error;
mod events;
mod freshness;
mod gateway;
pub mod glob;
mod index;
mod io;
mod pending_acquire;
mod queue;
pub mod request;
mod task;
mod tasks;
mod ticket_ref;
mod tickets;
mod waits;

pub use access::{Caller, SharedAccounts, access_change};
pub use audit::audit_entry;
pub use error::{ApiError, Code, GrpcStatus, SubmitError};
pub use events::{Channels, Topic};
pub use freshness::lasts_of;
pub use gateway::{Gateway, HOLD_BACK_FOR, TIMEOUT};
pub use io::{
    Attached, CallId, CallOutcome, Completion, Driver, Input, Output, Published, SessionEvent,
    Sink, SinkId, submit_error,
};
pub use pending_acquire::{AcquireStep, PendingAcquire};
pub use queue::EventQueue;
pub use task::{Resume, Step, Task, View};
pub use ticket_ref::TicketRef;
