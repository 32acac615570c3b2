//! The cluster named by a URL: its session, keyspace and tables.

use super::errors::{connect_error, is_missing_table, prepare_error, statement_error};
use crate::driver::within;
use crate::drivers::failure::Failure;
use crate::drivers::tls::{Identity, verifying};
use crate::error::Error;
use crate::url::EngineUrl;
use rustls::ClientConfig;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency, Statement};
use scylla::value::Row;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PORT: u16 = 9042;

/// A node that has not answered a probe for this long counts as down: its requests fail, and the
/// next ones go to other nodes. The client's own default of half a minute would use up a release's
/// timeout even though a majority of the nodes is up.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause between two probes of an idle connection.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The pause before something is tried again that the schema was not ready for.
const SCHEMA_PAUSE: Duration = Duration::from_millis(300);

pub(super) struct Cluster {
    session: Session,
    /// Quoted.
    keyspace: String,
    /// Its name in errors.
    name: String,
    pub(super) timeout: Duration,
}

impl Cluster {
    pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Self, Error> {
        if url.hosts.is_empty() {
            let example = format!("cassandra://127.0.0.1:{PORT}/keyspace");
            return Err(Error::BadUrl(format!("the host is missing: write `{example}`")));
        }
        let keyspace = keyspace(url)?;
        let replication_factor = replication_factor(url)?;
        let hosts: Vec<_> = url.hosts.iter().map(|host| host.authority(PORT)).collect();
        let name = format!("Cassandra at {}", hosts.join(","));
        // Each statement is sent once: only the recipes know whether it may be retried.
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(timeout))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .speculative_execution_policy(None)
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&hosts)
            .connection_timeout(timeout)
            .keepalive_interval(PROBE_EVERY)
            .keepalive_timeout(PROBE_TIMEOUT)
            .fetch_schema_metadata(false)
            .default_execution_profile_handle(profile.into_handle());
        if let Some(user) = &url.user {
            builder = builder.user(user, url.password.as_deref().unwrap_or_default());
        }
        builder = builder.tls_context(tls(url)?.map(Arc::new));
        let session = within(timeout, &name, async {
            builder.build().await.map_err(|error| connect_error(&name, &error))
        });
        let cluster = Self { session: session.await?, keyspace, name, timeout };
        cluster.find_keyspace(url.path.trim_end_matches('/'), replication_factor).await?;
        Ok(cluster)
    }

    async fn find_keyspace(&self, plain: &str, replicas: Option<u16>) -> Result<(), Error> {
        const FIND: &str =
            "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        if !self.query(FIND, (plain,)).await?.is_empty() {
            return Ok(());
        }
        let create = |replicas: &str| {
            let class = "'class': 'SimpleStrategy'";
            let replication = format!("{{{class}, 'replication_factor': {replicas}}}");
            format!(
                "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {replication}",
                self.keyspace
            )
        };
        let Some(replicas) = replicas else {
            return Err(Error::Refused(format!(
                "{}: there is no keyspace `{plain}`; create it ({}) or add `?replication_factor=3` to the URL",
                self.name,
                create("3")
            )));
        };
        self.create(&create(&replicas.to_string())).await
    }

    /// Creates a table unless one of this name exists.
    pub(super) async fn create_table(&self, name: &str, definition: &str) -> Result<(), Error> {
        const FIND: &str = "SELECT table_name FROM system_schema.tables
            WHERE keyspace_name = ? AND table_name = ?";
        let keyspace = self.keyspace.trim_matches('"');
        if !self.query(FIND, (keyspace, name)).await?.is_empty() {
            // Another client may have created it a moment ago. A node that is down can't agree, and
            // keeps nobody from using the others.
            let agreed = async { Ok(self.session.await_schema_agreement().await) };
            let _ = within(self.timeout, &self.name, agreed).await;
            return Ok(());
        }
        let table = self.table(name);
        self.create(&format!("CREATE TABLE IF NOT EXISTS {table} {definition}")).await
    }

    /// Retries, because concurrent changes to the schema may conflict.
    async fn create(&self, cql: &str) -> Result<(), Error> {
        const ATTEMPTS: u32 = 5;
        for _ in 1..ATTEMPTS {
            match self.query(cql, ()).await {
                Err(Error::Unreachable(_)) => sleep(SCHEMA_PAUSE).await,
                // A keyspace is listed a moment before it can be used.
                Err(Error::Refused(why)) if why.contains("does not exist") => {
                    sleep(SCHEMA_PAUSE).await;
                }
                done => return done.map(drop),
            }
        }
        self.query(cql, ()).await.map(drop)
    }

    /// `keyspace.table`, quoted.
    pub(super) fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.keyspace)
    }

    /// For statements that run rarely.
    async fn query(&self, cql: &str, values: impl SerializeRow) -> Result<Vec<Row>, Error> {
        let mut statement = Statement::new(cql);
        statement.set_consistency(Consistency::LocalOne);
        let ran = self.session.query_unpaged(statement, values).await;
        self.rows(ran.map_err(|error| statement_error(&self.name, &error)))
            .map_err(Failure::into_error)
    }

    pub(super) async fn prepare(
        &self,
        cql: &str,
        consistency: Consistency,
    ) -> Result<PreparedStatement, Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.session.prepare(cql).await {
                Ok(mut prepared) => {
                    prepared.set_consistency(consistency);
                    return Ok(prepared);
                }
                // A table is listed a moment before it can be used.
                Err(error) if is_missing_table(&error) && Instant::now() < deadline => {
                    sleep(SCHEMA_PAUSE).await;
                }
                Err(error) => return Err(prepare_error(&self.name, &error)),
            }
        }
    }

    pub(super) async fn run(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<Row>, Failure> {
        let ran = self.session.execute_unpaged(statement, values).await;
        self.rows(ran.map_err(|error| statement_error(&self.name, &error)))
    }

    fn rows(&self, answer: Result<QueryResult, Failure>) -> Result<Vec<Row>, Failure> {
        let answer = answer?;
        if !answer.is_rows() {
            return Ok(Vec::new());
        }
        // The statement has run: an unreadable result is settled by reading back.
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::Ambiguous(Error::Unreachable(format!("{}: {error}", self.name)))
        };
        let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
        let rows = rows.rows::<Row>().map_err(|error| unreadable(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| unreadable(&error))
    }
}

/// The URL's keyspace, quoted.
fn keyspace(url: &EngineUrl) -> Result<String, Error> {
    let name = url.path.trim_end_matches('/');
    let plain = !name.is_empty()
        && name.len() <= 48
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain {
        return Ok(format!("\"{name}\""));
    }
    Err(Error::BadUrl(format!(
        "`{name}` is not a keyspace: write `cassandra://host:9042/keyspace` (letters, digits and `_`, at most 48)"
    )))
}

/// A node's certificate must name its IP address: nodes, and thus the client, find each other by
/// address.
fn tls(url: &EngineUrl) -> Result<Option<ClientConfig>, Error> {
    match url.option("ssl") {
        Some("true" | "1") => {}
        None | Some("false" | "0") => {
            return match ["certfile", "usercert", "userkey"].map(|key| url.option(key)) {
                [None, None, None] => Ok(None),
                _ => Err(Error::BadUrl("certificates go with `ssl=true`".to_owned())),
            };
        }
        Some(other) => {
            return Err(Error::BadUrl(format!("`ssl={other}` is neither `true` nor `false`")));
        }
    }
    let identity = match (url.option("usercert"), url.option("userkey")) {
        (Some(certificate), Some(key)) => {
            Some(Identity { options: ["usercert", "userkey"], certificate, key })
        }
        (None, None) => None,
        _ => return Err(Error::BadUrl("`usercert` and `userkey` go together".to_owned())),
    };
    verifying(("certfile", url.option("certfile")), identity).map(Some)
}

fn replication_factor(url: &EngineUrl) -> Result<Option<u16>, Error> {
    let Some(text) = url.option("replication_factor") else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number > 0);
    let bad = || Error::BadUrl(format!("`replication_factor={text}` is not a number of replicas"));
    number.map(Some).ok_or_else(bad)
}

/// A text column of a row; `None` if it is null or missing.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    let value = row.columns.get(column)?.as_ref()?;
    value.as_text().cloned()
}
