//! What the environment and the command line say.

use clap::{Args, ValueEnum};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Which lock protects a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum LockType {
    /// A key with a lease, through Holdfast's Redis door or in a real Redis
    DistributedLock,
    /// An ephemeral sequential node, through Holdfast's ZooKeeper door or in a real ZooKeeper
    EphemeralNode,
    /// Holdfast's own protocol
    Native,
    /// A lease in a table of a PostgreSQL database
    Postgres,
    /// A lease in etcd
    Etcd,
    /// Conditional writes (lightweight transactions) in Cassandra
    Lwt,
    /// Lamport's bakery over plain reads and writes in Cassandra
    Bakery,
    /// A control: no lock at all, so that seats are sold twice
    None,
    /// A control: a mark in the row without an end, so that seats get stuck
    RowLock,
}

impl LockType {
    /// The schemes that LOCK_URL may have; none for the controls.
    pub(crate) fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::DistributedLock => &["redis", "rediss"],
            Self::EphemeralNode => &["zookeeper"],
            Self::Native => &["holdfast", "holdfasts"],
            Self::Postgres => &["postgres", "postgresql"],
            Self::Etcd => &["etcd", "etcds"],
            Self::Lwt | Self::Bakery => &["cassandra"],
            Self::None | Self::RowLock => &[],
        }
    }

    /// The door of Holdfast that speaks its protocol, by the name in Holdfast's list of doors.
    pub(crate) fn door(self) -> Option<&'static str> {
        match self {
            Self::DistributedLock => Some("redis"),
            Self::EphemeralNode => Some("zookeeper"),
            Self::Native => Some("http"),
            _ => None,
        }
    }

    /// The option of the URL that chooses the recipe.
    fn recipe(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("recipe=lease"),
            Self::Lwt => Some("recipe=lwt"),
            Self::Bakery => Some("recipe=bakery"),
            _ => None,
        }
    }

    /// LOCK_URL as `holdfast-locks` takes it.
    pub(crate) fn engine_url(self, url: &str) -> Result<String, String> {
        let scheme = url.split(':').next().unwrap_or_default();
        let schemes = self.schemes();
        if schemes.is_empty() {
            return Err(format!("LOCK_TYPE={self} has no lock: leave LOCK_URL out"));
        }
        if !schemes.contains(&scheme) {
            let expected = schemes[0];
            return Err(format!(
                "LOCK_TYPE={self} needs a LOCK_URL like {expected}://host, not {scheme}:..."
            ));
        }
        let Some(recipe) = self.recipe() else { return Ok(url.to_owned()) };
        let join = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{join}{recipe}"))
    }
}

impl fmt::Display for LockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Where the tickets and the locks are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Database {
    /// sqlite:FILE or postgres://user:password@host/database. Default: a SQLite file in DATA_DIR
    #[arg(
        long,
        env = "DATABASE_URL",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(crate) database_url: String,
    /// The folder of the SQLite file and of the embedded Holdfast
    #[arg(long, env = "DATA_DIR", default_value = "ticketing-data")]
    pub(crate) data_dir: PathBuf,
}

impl Database {
    pub(crate) fn url(&self) -> String {
        if !self.database_url.is_empty() {
            return self.database_url.clone();
        }
        format!("sqlite:{}", self.data_dir.join("ticketing.db").display())
    }

    /// Where the embedded Holdfast keeps its data: beside a SQLite file.
    pub(crate) fn holdfast_dir(&self) -> PathBuf {
        match self.url().strip_prefix("sqlite:") {
            Some(file) => PathBuf::from(format!("{file}.holdfast")),
            None => self.data_dir.join("holdfast"),
        }
    }
}

/// How the service runs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Which lock protects a ticket
    #[arg(long, env = "LOCK_TYPE", default_value = "distributed_lock", value_enum)]
    pub(crate) lock_type: LockType,
    /// The lock service, for example redis://127.0.0.1:6379. Default: an embedded Holdfast
    #[arg(
        long,
        env = "LOCK_URL",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(crate) lock_url: String,
    /// How many tickets an empty database gets
    #[arg(long, env = "TOTAL_TICKETS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) total_tickets: u32,
    /// How long a reservation lasts
    #[arg(long, env = "RESERVE_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) reserve_seconds: u64,
    /// The address to listen on
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1")]
    pub(crate) listen: IpAddr,
    /// The port of the page and the API; 0 for any free port
    #[arg(long, env = "PORT", default_value_t = 6005)]
    pub(crate) port: u16,
    /// How long the payment service takes to authorise a payment
    #[arg(long, env = "PAYMENT_DELAY_MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) payment_delay_ms: u64,
    /// The share of payments that are declined, from 0 to 1
    #[arg(long, env = "PAYMENT_FAILURE_RATE", default_value_t = 0.0, value_parser = rate)]
    pub(crate) payment_failure_rate: f64,
}

impl Serve {
    pub(crate) fn payment_delay(&self) -> Duration {
        Duration::from_millis(self.payment_delay_ms)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    rate.filter(|rate| (0.0..=1.0).contains(rate)).ok_or_else(|| "it is not between 0 and 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_type_has_its_own_url_scheme() {
        let url = |lock: LockType, url: &str| lock.engine_url(url);
        assert_eq!(url(LockType::DistributedLock, "redis://a").as_deref(), Ok("redis://a"));
        assert_eq!(
            url(LockType::Bakery, "cassandra://a/k?replication_factor=3").as_deref(),
            Ok("cassandra://a/k?replication_factor=3&recipe=bakery")
        );
        assert_eq!(
            url(LockType::Lwt, "cassandra://a/k").as_deref(),
            Ok("cassandra://a/k?recipe=lwt")
        );
        let wrong = url(LockType::Native, "redis://:hunter2@a").unwrap_err();
        assert!(wrong.contains("holdfast://host") && !wrong.contains("hunter2"), "{wrong}");
        assert!(url(LockType::None, "redis://a").unwrap_err().contains("leave LOCK_URL out"));
    }
}
