//! What is specific to SQLite: commits that survive a power failure, one deadline per call, and a
//! table that accepts nothing but tokens.

use crate::rules::{exclusive, shared};
use holdfast_fence::sqlite::{self, Sqlite};
use holdfast_fence::{Error, Fence};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;

/// The table that the guide and the crate once had.
const OLD_TABLE: &str = "CREATE TABLE holdfast_fences (
    resource          TEXT PRIMARY KEY,
    highest_exclusive INTEGER NOT NULL,
    highest           INTEGER NOT NULL,
    value             BLOB
)";

fn show(connection: &mut Connection) -> Result<(), Error> {
    let transaction = connection.transaction().unwrap();
    sqlite::check(&transaction, "accounts/7", exclusive(35))?;
    transaction.commit().unwrap();
    Ok(())
}

/// An application's own connection committed at `FULL`, SQLite's default, or below. After a power
/// failure the journal was there again, and tokens that the fence had acknowledged were rolled
/// back.
#[test]
fn connection_without_durable_commits_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (journal, synchronous, passes) in [
        ("delete", "OFF", false),
        ("delete", "NORMAL", false),
        ("delete", "FULL", false),
        ("delete", "EXTRA", true),
        ("wal", "NORMAL", false),
        ("wal", "FULL", true),
        ("wal", "EXTRA", true),
    ] {
        let path = folder.path().join(format!("{journal}-{synchronous}.db"));
        let mut connection = Connection::open(path).unwrap();
        sqlite::create_table(&connection).unwrap();
        show(&mut connection).expect("create_table makes its connection durable");
        let pragma = format!("PRAGMA journal_mode = {journal}");
        connection.query_row(&pragma, [], |row| row.get::<_, String>(0)).unwrap();
        connection.execute_batch(&format!("PRAGMA synchronous = {synchronous}")).unwrap();
        let shown = show(&mut connection);
        assert_eq!(shown.is_ok(), passes, "{journal} {synchronous}: {shown:?}");
        if let Err(error) = shown {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("run PRAGMA synchronous = EXTRA"), "{error}");
        }
    }
}

/// Each call waited for its predecessor, and then for its own whole busy timeout: the twelfth gave
/// up after two minutes.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_time_out_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let fence = Arc::new(Sqlite::open(&path).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for token in 1..=12 {
        let fence = fence.clone();
        calls.spawn(async move { fence.raise("ledger", exclusive(token)).await });
    }
    let all = tokio::time::timeout(Duration::from_secs(90), calls.join_all()).await;
    for answer in all.expect("each has its own deadline") {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        assert!(error.to_string().contains("\"ledger\" is busy, nothing was written"), "{error}");
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(fence.read("ledger").await.unwrap().highest.any, 0);
    fence.raise("ledger", exclusive(1)).await.unwrap();
}

/// A reader in another process blocks the commit, not the statements before it.
#[tokio::test(flavor = "multi_thread")]
async fn commit_blocked_by_a_reader_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let fence = Sqlite::open(&path).unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = "SELECT count(*) FROM holdfast_fences";
    reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    let error = fence.write("ledger", exclusive(35), "70".into()).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    let there = fence.read("ledger").await.unwrap();
    assert_eq!((there.highest.any, there.value), (34, Some("100".into())));
    fence.write("ledger", exclusive(35), "70".into()).await.unwrap();
}

/// SQLite accepts NULL as a primary key, any number of times: every token passed. And it accepts
/// text as a number, higher than all others: no token passed any more.
#[test]
fn table_accepts_only_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join("fence.db")).unwrap();
    sqlite::create_table(&connection).unwrap();
    for (resource, token) in [
        ("NULL", "35"),
        ("'a'", "NULL"),
        ("'a'", "'ana'"),
        ("'a'", "35.5"),
        ("'a'", "-1"),
        ("'a'", "x'35'"),
    ] {
        let insert =
            format!("INSERT INTO holdfast_fences VALUES ({resource}, {token}, {token}, NULL)");
        let inserted = connection.execute_batch(&insert);
        assert!(inserted.is_err(), "{resource} with token {token} was accepted");
    }
    connection.execute_batch("INSERT INTO holdfast_fences VALUES ('a', 34, 35, NULL)").unwrap();
    let lower = "UPDATE holdfast_fences SET highest = 33";
    assert!(connection.execute_batch(lower).is_err(), "below the highest exclusive one");
}

/// A table made by an earlier version is replaced by one that accepts only tokens.
#[tokio::test]
async fn old_table_is_upgraded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(OLD_TABLE).unwrap();
    let rows = "INSERT INTO holdfast_fences VALUES ('a', 34, 36, x'00ff'), ('b', 0, 5, NULL)";
    connection.execute_batch(rows).unwrap();
    let (one, other) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    let a = one.read("a").await.unwrap();
    assert_eq!((a.highest.exclusive, a.highest.any), (34, 36));
    assert_eq!(a.value.as_deref(), Some(&[0, 255][..]));
    assert!(other.raise("a", exclusive(35)).await.unwrap_err().refused().is_some());
    other.raise("b", shared(3)).await.unwrap();
    let null = "INSERT INTO holdfast_fences VALUES (NULL, 1, 1, NULL)";
    assert!(connection.execute_batch(null).is_err());
}

/// One with rows that no fence has written is left as it is.
#[test]
fn old_table_with_foreign_rows_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (number, row) in
        ["NULL, 1, 1", "'a', 1, 'ana'", "'a', 2.5, 3", "'a', 2, 1"].iter().enumerate()
    {
        let path = folder.path().join(format!("{number}.db"));
        let mut connection = Connection::open(&path).unwrap();
        connection.execute_batch(OLD_TABLE).unwrap();
        let insert = format!("INSERT INTO holdfast_fences VALUES ({row}, NULL)");
        connection.execute_batch(&insert).unwrap();
        let error = Sqlite::open(&path).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{row}: {error}");
        assert!(error.to_string().contains("a row has resource = "), "{row}: {error}");
        let count = "SELECT count(*) FROM holdfast_fences";
        assert_eq!(connection.query_row(count, [], |row| row.get(0)), Ok(1), "{row}");
        // Inside a transaction, it can't be upgraded.
        let transaction = connection.transaction().unwrap();
        let error = sqlite::create_table(&transaction).unwrap_err();
        assert!(error.to_string().contains("outside of a transaction"), "{error}");
    }
}

/// The application's table still has the old form, and someone has put text into it.
#[test]
fn text_instead_of_a_token_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = Connection::open(folder.path().join("shop.db")).unwrap();
    connection.execute_batch(OLD_TABLE).unwrap();
    connection.execute_batch("PRAGMA synchronous = EXTRA").unwrap();
    let insert = "INSERT INTO holdfast_fences VALUES ('accounts/7', 1, 'ana', NULL)";
    connection.execute_batch(insert).unwrap();
    let error = show(&mut connection).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}
