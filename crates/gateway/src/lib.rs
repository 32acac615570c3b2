//! What stands between the doors and the node, without any I/O, clock or randomness.
//!
//! The story of one acquire. A door turns a frame into a native request ([`request`]), which is
//! validated once, whatever transport it came over. Its driver hands it to the [`Gateway`] as
//! [`Input::Submit`], with an address for the completion. The gateway keeps the call, gives the node
//! its command, and takes the node's reply. If the ticket waits, the call becomes a wait, and is
//! completed when the grant is among the effects of a later entry: of a wait without a session only
//! after the grant was confirmed through the log. If the caller goes away, the driver says
//! [`Input::Abandon`], whatever has become of the call by then, and the gateway withdraws the command,
//! ends the wait or releases the lock.
//!
//! - `io`: what goes in, what comes out
//! - `gateway`: the turn, deadlines, abandoned calls
//! - `ticket_ref`, `tickets`: tickets that nobody knows of are given up, grants are confirmed
//! - `calls`: what a node's reply means for each call; attach
//! - `waits`: who waits for which ticket
//! - `events`, `queue`: sessions' events, topics and subscriptions, the bounded queue of a connection
//! - `task`, `tasks`, `blocked`: what doors do beside the state, step by step
//! - `freshness`, `pending_acquire`: whether a grant is still good when its caller is told
//! - `request`, `error`: native requests, and the one error
//!
//! Nothing here knows of a particular door, except the table of [`Code`], which has a column for each
//! protocol. A server drives it with sockets; a simulator can with virtual ones.

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
