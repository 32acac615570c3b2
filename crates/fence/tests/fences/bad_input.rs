//! Invalid tokens, and databases that can't be written: refused clearly, and nothing half-written.

use crate::rules::exclusive;
use crate::server::Node;
use holdfast_fence::register::Register;
use holdfast_fence::sqlite::{self, Sqlite};
use holdfast_fence::{Error, Fence, InvalidToken, Token};

#[tokio::test]
async fn permits_cannot_be_fenced() {
    let node = Node::start().await;
    let client = node.client().await;
    let permit = client.semaphore("printers", 3).acquire().await.unwrap();
    assert_eq!(Token::try_from(&permit), Err(InvalidToken::Permit));
    assert!(matches!(Register::new(&client, &permit), Err(InvalidToken::Permit)));
    let reader = client.lock("prices").shared().acquire().await.unwrap();
    assert_eq!(Token::try_from(&reader), Token::shared(reader.token().get()));
    drop((permit, reader, client));
    node.end().await;
}

/// A Holdfast cluster that was restored from a backup draws its tokens far above the old ones.
#[tokio::test]
async fn token_from_before_a_restore_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fence = Sqlite::open(folder.path().join("fence.db")).unwrap();
    fence.write("ledger", exclusive(1_000), "before".into()).await.unwrap();
    fence.raise("ledger", exclusive(1_000 + (1 << 40))).await.unwrap();
    let error = fence.write("ledger", exclusive(1_001), "late".into()).await.unwrap_err();
    assert!(error.refused().is_some(), "{error}");
}

/// Each connection to `:memory:` has its own database, so two holders never saw each other's
/// tokens; and a restart forgot them all.
#[test]
fn in_memory_database_is_refused() {
    for path in [":memory:", "", "file::memory:", "file:x?mode=memory&cache=shared"] {
        let error = Sqlite::open(path).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{path:?}: {error}");
        assert!(error.to_string().contains("in memory"), "{error}");
    }
}

/// A value larger than a server accepts ended the client's connection, over and over, and every
/// later call waited forever.
#[tokio::test]
async fn oversized_register_value_is_refused_and_the_client_continues() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("ledger").acquire().await.unwrap();
    let fence = Register::new(&client, &guard).unwrap();
    fence.write("ledger", fence.token(), "kept".into()).await.unwrap();
    for bytes in [65_537, 600_000, 900_001, 5 << 20] {
        let value = vec![b'x'; bytes].into();
        let error = fence.write("ledger", fence.token(), value).await.unwrap_err();
        assert!(error.to_string().contains("too large for Holdfast"), "{error}");
        let there = fence.read("ledger").await.unwrap();
        assert_eq!(there.value, Some("kept".into()));
    }
    // The largest that fits, and the client still works.
    let large = vec![b'x'; 65_536];
    fence.write("ledger", fence.token(), large.clone().into()).await.unwrap();
    assert_eq!(fence.raise("ledger", fence.token()).await.unwrap().value, Some(large.into()));
    guard.release().await.unwrap();
    drop(client);
    node.end().await;
}

#[tokio::test]
async fn file_that_is_not_a_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = Sqlite::open(folder.path().join("missing/fence.db")).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("missing/fence.db"), "it says which: {error}");
    let text = folder.path().join("fence.db");
    std::fs::write(&text, "this is not a database, but a text of some length").unwrap();
    let error = Sqlite::open(&text).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let fence = Sqlite::open(folder.path().join("other.db")).unwrap();
    let error = fence.raise("", exclusive(35)).await.unwrap_err();
    assert!(matches!(error, Error::InvalidResource { .. }), "{error}");
}

/// The application's own transaction finds its database full: neither the fence nor the account is
/// changed.
#[test]
fn full_database_is_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = rusqlite::Connection::open(folder.path().join("shop.db")).unwrap();
    sqlite::create_table(&connection).unwrap();
    connection
        .execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY, note INTEGER)")
        .unwrap();
    connection.execute("INSERT INTO accounts VALUES (7, 0)", []).unwrap();
    // Almost full: names of resources need pages.
    connection.execute_batch("PRAGMA max_page_count = 5").unwrap();
    let mut full = None;
    for number in 1..1_000 {
        let transaction = connection.transaction().unwrap();
        let resource = format!("{number}-{}", "x".repeat(400));
        match sqlite::check(&transaction, &resource, exclusive(35)) {
            Ok(_) => {
                transaction
                    .execute("UPDATE accounts SET note = ?1 WHERE id = 7", [number])
                    .unwrap();
                transaction.commit().unwrap();
            }
            Err(error) => {
                full = Some((number, error));
                break;
            }
        }
    }
    let (number, error) = full.expect("it gets full");
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.to_string().contains("is full, nothing was written"), "{error}");
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM holdfast_fences"), number - 1);
    assert_eq!(count("SELECT note FROM accounts WHERE id = 7"), number - 1);
}

/// 34's transaction has passed the fence, and is not committed. 35 gets in only after it, so it
/// sees what 34 wrote; and 34 no longer gets in.
#[test]
fn applications_update_is_fenced_in_its_own_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let open = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
        connection.pragma_update(None, "synchronous", "EXTRA").unwrap();
        connection
    };
    let mut old = open();
    sqlite::create_table(&old).unwrap();
    old.execute_batch(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER);
         INSERT INTO accounts VALUES (7, 100)",
    )
    .unwrap();
    let transaction = old.transaction().unwrap();
    sqlite::check(&transaction, "accounts/7", exclusive(34)).unwrap();
    let mut new = open();
    let waits = std::thread::spawn(move || {
        let transaction = new.transaction().unwrap();
        sqlite::check(&transaction, "accounts/7", exclusive(35)).unwrap();
        let sql = "SELECT balance FROM accounts WHERE id = 7";
        let balance = transaction.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        transaction.execute("UPDATE accounts SET balance = ?1", [balance - 30]).unwrap();
        transaction.commit().unwrap();
    });
    transaction.execute("UPDATE accounts SET balance = 50", []).unwrap();
    transaction.commit().unwrap();
    waits.join().unwrap();

    let transaction = old.transaction().unwrap();
    let error = sqlite::check(&transaction, "accounts/7", exclusive(34)).unwrap_err();
    assert_eq!(error.refused().expect("refused").later(), 35);
    drop(transaction);
    let sql = "SELECT balance FROM accounts WHERE id = 7";
    assert_eq!(old.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 20);
}
