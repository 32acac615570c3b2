//! The engines: started on free ports in temporary folders, shared by all cases of a run, and
//! stopped at its end.

#[cfg(feature = "cassandra")]
pub(crate) mod cassandra;
#[cfg(any(feature = "cassandra", feature = "zookeeper"))]
pub(crate) mod certificates;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(any(feature = "holdfast", feature = "redis"))]
pub(crate) mod holdfast;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[allow(dead_code, reason = "used where a driver with a server of its own is built in")]
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use crate::engine::{Engine, Exception, unique};
use std::time::Duration;

/// A running engine that a case may kill and restart.
pub(crate) trait Server: Send + Sync {
    /// Kills it, like a power failure.
    fn kill(&self);
    /// Restarts it with what it has on disk, and returns when it is ready.
    fn restart(&self);
}

pub(crate) fn memory() -> Engine {
    Engine {
        url: format!("memory://{}", unique("space")),
        hosts: Vec::new(),
        tasks: 32,
        ttl: Duration::from_millis(500),
        late: Duration::from_millis(500),
        exceptions: &[Exception::OneProcess],
        server: None,
        end_connection: None,
    }
}
