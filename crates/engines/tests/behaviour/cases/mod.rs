//! The cases: what a lock must do on every engine.

#[cfg(feature = "cassandra")]
mod cassandra;
mod chaos;
mod contention;
mod endings;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod handover;
#[cfg(feature = "holdfast")]
mod holdfast;
mod late;
#[cfg(feature = "postgres")]
mod postgres;
mod races;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub(crate) use chaos::*;
pub(crate) use contention::*;
pub(crate) use endings::*;
pub(crate) use faults::*;
pub(crate) use handover::*;
pub(crate) use late::*;
pub(crate) use races::*;
