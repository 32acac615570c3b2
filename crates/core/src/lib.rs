//! The lock semantics of Holdfast, pure and deterministic.
//!
//! **A lock is a line of numbered tickets. The lowest ticket is being served: it holds the lock.
//! Its number is the fencing token.**
//!
//! This crate has no clock, no I/O, no async, no randomness and no hash order. [`Command`]s go in,
//! an [`Answer`] or a [`Refusal`] goes back to the client that asked, and [`Effect`]s notify
//! everyone else. Every replica applies the same commands in the same order and arrives at the same
//! state.
//!
//! The story of one acquire:
//!
//! 1. [`State::apply`] receives the [`Proposal`]: a node's numbered proposal is applied once and in
//!    order, a client's retried request is answered from memory.
//! 2. `decide`, one `match`, passes the [`Acquire`] to `lines/acquire.rs`, which checks it: names,
//!    lease, session, kind of line, claims. What can't be done is a [`Refusal`].
//! 3. The ticket draws its number from the one counter and enters the line of each name.
//! 4. `lines/serve.rs` checks each line: is it the next ticket's turn? If so it is granted: an
//!    [`Effect::Granted`] with the number as token, and how the last holder ended.
//! 5. Otherwise it waits until `lines/end.rs` ends a ticket in front of it (a release, an expiry in
//!    `lines/time.rs`, the death of a session) and `serve` checks again.
//!
//! ```
//! use holdfast_play::Play;
//!
//! let mut play = Play::default();
//! assert_eq!(play.line("ana: acquire seat-12A ttl=5s"), ["ana: granted seat-12A token=1"]);
//! assert_eq!(play.line("bo: acquire seat-12A"), ["bo: waiting seat-12A token=2 place=1"]);
//! ```

// A panic in apply would kill every node, and again after each restart.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

mod access;
mod command;
mod containers;
mod display;
mod effect;
mod ids;
mod level;
mod limits;
mod lines;
mod refusal;
mod state;
mod stores;
mod text;
mod transaction;
mod tree;
mod watch;
mod weight;

pub use access::{
    ADMIN_ROLE, AccessBound, AccessChange, AccessRefusal, Actor, AuditAction, AuditEntry,
    AuditRecord, BadAccountName, BearerToken, Operation, PasswordHash, Right, Rights, RoleName,
    Rule, SHARED_USER, TokenHash, User, UserName,
};
pub use command::{
    Acquire, Command, Door, Lease, Mode, Numbered, OpenSession, Proof, Proposal, RequestRef,
    Revoke, SessionKind, SessionRef, Target, Tick, Wait,
};
pub use effect::{
    Answer, Effect, EndReason, Ended, Ending, Fence, Forced, Grant, Names, PriorEndings,
    ProposalOutcome, TicketStatus,
};
pub use ids::{RequestId, Secret, SessionId, Term, Token};
pub use limits::Limits;
pub use lines::history::{Event, EventKind};
pub use lines::{
    CannotRestore, Counts, Cycle, LockPage, LockView, Restored, SessionView, TicketView, Why,
    WhyLink,
};
pub use refusal::{Bound, CycleStep, InvalidField, Refusal, Untouched};
pub use state::{BadSnapshot, NotEncoded, Snapshot, SnapshotCheck, State};
pub use stores::access::Accounts;
pub use stores::keys::{Key, KeyPage, ObjectKey, TextKey};
pub use stores::tree::{NodeView, is_allowed, shown_acl};
pub use text::{
    BadText, Channel, Element, Label, LockName, Message, NodeData, Note, Reason, RequestKey, Value,
};
pub use transaction::{Expiry, KeyKind, Object, Stamp, Transaction, Write, WriteOp};
pub use tree::{
    Acl, AuthId, BadPath, NodeEvent, NodeKind, NodeOp, NodeRefusal, NodeResult, PATH_BYTES_MAX,
    PERMS_ALL, Recipe, Stat, TTL_MS_MAX, TreeCommand, TreeWrite, name_of, parent_of, perms,
    validate_path,
};
pub use watch::{Scope, WATCHES_MAX, Watches};
