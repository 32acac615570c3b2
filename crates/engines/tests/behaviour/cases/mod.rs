//! The cases: what a lock must do on every engine.

mod contention;
mod endings;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod handover;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub(crate) use contention::*;
pub(crate) use endings::*;
pub(crate) use faults::*;
pub(crate) use handover::*;
