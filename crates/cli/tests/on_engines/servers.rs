//! Real servers, as the behaviour suite of `holdfast-locks` starts them.

#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/cassandra/mod.rs"]
pub(crate) mod cassandra;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/certificates.rs"]
pub(crate) mod certificates;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/etcd.rs"]
pub(crate) mod etcd;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/postgres.rs"]
pub(crate) mod postgres;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/process.rs"]
pub(crate) mod process;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/redis.rs"]
pub(crate) mod redis;
#[allow(dead_code, reason = "shared with the behaviour suite")]
#[path = "../../../engines/tests/behaviour/servers/zookeeper.rs"]
pub(crate) mod zookeeper;

pub(crate) trait Server: Send + Sync {
    /// Kills it, like a power failure.
    fn kill(&self);
    /// Restarts it with what it has on disk, and returns when it is ready.
    fn restart(&self);
}
