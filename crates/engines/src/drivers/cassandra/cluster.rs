//! The cluster that a URL names: its session, keyspace and tables.

use super::errors::{connect_error, prepare_error, statement_error};
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
use tokio::time::sleep;

const PORT: u16 = 9042;

/// A node that has not answered for this long after a probe is taken for gone: its requests fail, and
/// the next ones go to other nodes. The client's own default of half a minute would use up the timeout
/// of a release, although a majority of the nodes is there.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause between two probes of an idle connection.
const PROBE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Cluster {
    session: Session,
    /// Quoted.
    keyspace: String,
    /// How errors name it.
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
        // Each statement is sent once: whether it may be repeated, the recipes know.
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

    /// Creates a table unless there is one of this name.
    pub(super) async fn create_table(&self, name: &str, definition: &str) -> Result<(), Error> {
        const FIND: &str = "SELECT table_name FROM system_schema.tables
            WHERE keyspace_name = ? AND table_name = ?";
        let keyspace = self.keyspace.trim_matches('"');
        if !self.query(FIND, (keyspace, name)).await?.is_empty() {
            return Ok(());
        }
        let table = self.table(name);
        self.create(&format!("CREATE TABLE IF NOT EXISTS {table} {definition}")).await
    }

    /// Statements that change the schema may meet others that do the same.
    async fn create(&self, cql: &str) -> Result<(), Error> {
        const ATTEMPTS: u32 = 5;
        const PAUSE: Duration = Duration::from_millis(300);
        for _ in 1..ATTEMPTS {
            match self.query(cql, ()).await {
                Err(Error::Unreachable(_)) => sleep(PAUSE).await,
                done => return done.map(drop),
            }
        }
        self.query(cql, ()).await.map(drop)
    }

    /// `keyspace.table`, quoted.
    pub(super) fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.keyspace)
    }

    /// A statement that runs only now and then.
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
        let prepared = self.session.prepare(cql).await;
        let mut prepared = prepared.map_err(|error| prepare_error(&self.name, &error))?;
        prepared.set_consistency(consistency);
        Ok(prepared)
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
        // The statement has run: what can't be read is settled by reading back.
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::Ambiguous(Error::Unreachable(format!("{}: {error}", self.name)))
        };
        let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
        let rows = rows.rows::<Row>().map_err(|error| unreadable(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| unreadable(&error))
    }
}

/// The keyspace of the URL, quoted.
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

/// A node's certificate must name its IP address: nodes find each other by these, and so does the
/// client.
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

/// A text column of a row; `None` if it is null or not there.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    let value = row.columns.get(column)?.as_ref()?;
    value.as_text().cloned()
}
