//! The cases: what a lock must do on every engine.

mod contention;
mod endings;
mod faults;
mod handover;
#[cfg(feature = "redis")]
mod redis;

pub(crate) use contention::*;
pub(crate) use endings::*;
pub(crate) use faults::*;
pub(crate) use handover::*;
