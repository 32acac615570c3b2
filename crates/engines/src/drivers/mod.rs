//! One folder per engine, all with the same parts: `mod.rs` (connect, promises, names),
//! `acquire.rs` (take and wait), `hold.rs` (extend, release, check), `inspect.rs`.

#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "cassandra", feature = "postgres"))]
mod failure;
#[cfg(any(feature = "etcd", feature = "holdfast"))]
mod grpc_tls;
#[cfg(feature = "holdfast")]
mod holdfast;
#[cfg(any(feature = "cassandra", feature = "postgres"))]
mod local_queue;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "cassandra", feature = "postgres"))]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use crate::driver::{Driver, Step};
use crate::error::Error;
use crate::promises::Promises;
use crate::url::EngineUrl;
use std::sync::Arc;
use std::time::Duration;

/// Connects to the engine named by the URL. Boxed, so that the drivers are compiled here and not
/// again in every program that connects.
pub(crate) fn connect(url: &EngineUrl, timeout: Duration) -> Step<'_, Arc<dyn Driver>> {
    Box::pin(connect_driver(url, timeout))
}

async fn connect_driver(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    let _ = timeout;
    match url.scheme.as_str() {
        "memory" => memory::connect(url),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => etcd::connect(url, timeout).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" => zookeeper::connect(url, timeout).await,
        #[cfg(not(feature = "etcd"))]
        scheme @ ("etcd" | "etcds") => Err(not_built_in(scheme, "etcd")),
        #[cfg(not(feature = "zookeeper"))]
        scheme @ "zookeeper" => Err(not_built_in(scheme, "zookeeper")),
        #[cfg(feature = "cassandra")]
        "cassandra" => cassandra::connect(url, timeout).await,
        #[cfg(not(feature = "cassandra"))]
        scheme @ "cassandra" => Err(not_built_in(scheme, "cassandra")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::connect(url, timeout).await,
        #[cfg(not(feature = "postgres"))]
        scheme @ ("postgres" | "postgresql") => Err(not_built_in(scheme, "postgres")),
        #[cfg(feature = "holdfast")]
        "holdfast" | "holdfasts" | "http" | "https" => holdfast::connect(url, timeout).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" => redis::connect(url, timeout).await,
        #[cfg(not(feature = "holdfast"))]
        scheme @ ("holdfast" | "holdfasts" | "http" | "https") => {
            Err(not_built_in(scheme, "holdfast"))
        }
        #[cfg(not(feature = "redis"))]
        scheme @ ("redis" | "rediss") => Err(not_built_in(scheme, "redis")),
        scheme => {
            Err(Error::BadUrl(format!("unknown scheme `{scheme}` (known: {})", SCHEMES.join(", "))))
        }
    }
}

/// The promises of each engine and recipe in this build, Holdfast first.
pub(crate) fn promises() -> Vec<&'static Promises> {
    vec![
        #[cfg(feature = "holdfast")]
        &holdfast::PROMISES,
        #[cfg(feature = "etcd")]
        &etcd::PROMISES,
        #[cfg(feature = "zookeeper")]
        &zookeeper::PROMISES,
        #[cfg(feature = "postgres")]
        &postgres::lease::PROMISES,
        #[cfg(feature = "postgres")]
        &postgres::advisory::PROMISES,
        #[cfg(feature = "cassandra")]
        &cassandra::lwt::PROMISES,
        #[cfg(feature = "cassandra")]
        &cassandra::lwt::PLAIN,
        #[cfg(feature = "cassandra")]
        &cassandra::bakery::PROMISES,
        #[cfg(feature = "redis")]
        &redis::PROMISES,
        #[cfg(feature = "redis")]
        &redis::PROMISES_REDLOCK,
        &memory::PROMISES,
    ]
}

/// All schemes, for the error message.
const SCHEMES: &[&str] = &[
    "cassandra://",
    "etcd://",
    "etcds://",
    "holdfast://",
    "holdfasts://",
    "memory:",
    "postgres://",
    "redis://",
    "rediss://",
    "zookeeper://",
];

/// The error for a scheme whose driver was left out of this build.
#[allow(dead_code, reason = "used where a driver's feature is off")]
fn not_built_in(scheme: &str, feature: &str) -> Error {
    Error::BadUrl(format!(
        "{scheme}:// is not in this build: enable the cargo feature `{feature}` of holdfast-locks"
    ))
}
