//! docs/fencing.md: its code, its SQL and its commands, run as they are written.

use crate::rules::exclusive;
use crate::server::Node;
use crate::support::postgres::Server;
use crate::support::s3::S3;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::routing::put;
use holdfast_client::Client;
use holdfast_fence::http::{FenceLayer, insert_token};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::sqlite::{self, Sqlite};
use holdfast_fence::{Fence, Token, postgres};
use holdfast_locks::Locks;
use object_store::aws::AmazonS3Builder;
use std::process::Command;
use std::sync::{Arc, Mutex};

const GUIDE: &str = include_str!("../../../../docs/fencing.md");
const HERE: &str = include_str!("guide.rs");

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The blocks of one language, each with the text that follows it if there is one.
fn blocks(language: &str) -> Vec<(String, Option<String>)> {
    let begins = format!("\n```{language}\n");
    let block = |rest: &str| {
        let (code, rest) = rest.split_once("\n```").unwrap();
        let text = rest.trim_start().strip_prefix("```text\n");
        let text = text.and_then(|text| text.split_once("\n```")).map(|(text, _)| text);
        (code.to_owned(), text.map(str::to_owned))
    };
    GUIDE.split(&begins).skip(1).map(block).collect()
}

/// The refusal and the missing token are quoted in the text.
#[tokio::test]
async fn guide_shows_the_real_messages() {
    let flat = GUIDE.split_whitespace().collect::<Vec<_>>().join(" ");
    let folder = tempfile::tempdir().unwrap();
    let fence = Sqlite::open(folder.path().join("accounts.db")).unwrap();
    fence.raise("accounts/7", exclusive(35)).await.unwrap();
    let refused = fence.raise("accounts/7", exclusive(34)).await.unwrap_err();
    assert!(flat.contains(&refused.to_string()), "{refused}");
    let missing = Token::exclusive(None).unwrap_err();
    assert!(flat.contains(&missing.to_string()), "{missing}");
}

/// Would fail if the guide showed code that is not run here, or if the code here changed alone.
#[test]
fn guide_shows_the_code_tested_here() {
    let flat = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let here = flat(HERE);
    let blocks = blocks("rust");
    assert!(blocks.len() > 6, "the guide has lost its code");
    for (block, _) in blocks {
        let block = flat(&block);
        assert!(here.contains(&block), "shown in docs/fencing.md, but not run here:\n{block}");
    }
}

#[test]
fn guide_statements_work_in_sqlite() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let blocks = blocks("sql sqlite");
    assert_eq!(blocks.len(), 2);
    for (block, expected) in &blocks {
        assert_eq!(shell(&connection, block), expected.clone().unwrap_or_default(), "{block}");
    }
    // "With token 34, the `INSERT` returns no row."
    let late = blocks[1].0.replace("35", "34");
    let insert = late.split_inclusive(";\n").nth(1).unwrap();
    assert_eq!(shell(&connection, insert), "");
    // They are the ones that the crate uses.
    for statement in [sqlite_table(), holdfast_fence::sql::RAISE_EXCLUSIVE.into()] {
        let words = |text: &str| {
            text.replace("IF NOT EXISTS ", "")
                .replace("$1, $2, $2", "'accounts/7', 35, 35")
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let returning = words(&statement);
        let returning = returning.split(" RETURNING").next().unwrap().to_owned();
        assert!(
            words(&blocks[0].0).contains(&returning) || words(&blocks[1].0).contains(&returning)
        );
    }
}

fn sqlite_table() -> String {
    holdfast_fence::sql::SQLITE_TABLE.into()
}

/// What the `sqlite3` shell prints.
fn shell(connection: &rusqlite::Connection, sql: &str) -> String {
    let mut printed = Vec::new();
    for sql in sql.split_inclusive(";\n") {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let column = |index| row.get::<_, i64>(index).unwrap().to_string();
            printed.push((0..columns).map(column).collect::<Vec<_>>().join("|"));
        }
    }
    printed.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn guide_statements_work_in_postgresql() {
    let server = Server::start().await;
    let blocks = blocks("sql postgres");
    assert_eq!(blocks.len(), 6);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shared = holdfast_fence::sql::RAISE_SHARED.replace("$1, 0, $2", "'accounts/7', 0, 36");
    let decides = shared.split("RETURNING").next().unwrap();
    assert!(words(&blocks[5].0).starts_with(&words(decides)), "not what the crate uses");
    for (number, (block, expected)) in blocks.iter().enumerate() {
        if number == 4 {
            // The call from Rust comes before this block.
            let (mut connection, task) =
                tokio_postgres::connect(&server.config(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(task);
            own_transaction(&mut connection, exclusive(35)).await.unwrap();
        }
        let mut psql = server.psql();
        psql.arg("-v").arg("ON_ERROR_STOP=1");
        let transcript = piped(psql, block);
        if let Some(expected) = expected {
            assert_eq!(transcript.trim_end(), expected.trim_end(), "{block}");
        }
    }
}

fn piped(mut command: Command, input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{input}");
    String::from_utf8(done.stdout).unwrap()
}

async fn own_transaction(connection: &mut tokio_postgres::Client, token: Token) -> Outcome {
    let transaction = connection.transaction().await?;
    postgres::check(&transaction, "accounts/7", token).await?;
    transaction.execute("UPDATE accounts SET balance = 40 WHERE id = 7", &[]).await?;
    transaction.commit().await?;
    Ok(())
}

#[tokio::test]
async fn guide_code_works() {
    let node = Node::start().await;
    let client = node.client().await;
    let token = token_of_a_guard(&client).await.unwrap();
    let locks = Locks::connect("memory:").await.unwrap();
    assert_eq!(token_of_an_engine(&locks).await.unwrap(), exclusive(1));
    let folder = tempfile::tempdir().unwrap();

    let fence = Sqlite::open(folder.path().join("accounts.db")).unwrap();
    fence.write("accounts/7", token, "100".into()).await.unwrap();
    withdraw(&fence, token, 30).await.unwrap();
    assert_eq!(fence.read("accounts/7").await.unwrap().value, Some("70".into()));

    let mut connection = rusqlite::Connection::open(folder.path().join("own.db")).unwrap();
    shell(&connection, &blocks("sql sqlite")[0].0);
    own_sqlite_transaction(&mut connection, token).unwrap();

    in_a_file(folder.path(), token).await.unwrap();
    drop(client);
    node.end().await;
}

async fn withdraw(
    fence: &dyn Fence,
    token: Token,
    amount: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    let found = fence.raise("accounts/7", token).await?;
    let balance: i64 = String::from_utf8(found.value.unwrap_or_default().to_vec())?.parse()?;
    let left = balance - amount;
    fence.write("accounts/7", token, left.to_string().into()).await?;
    Ok(())
}

async fn token_of_an_engine(locks: &Locks) -> Result<Token, Box<dyn std::error::Error>> {
    let guard = locks.lock("accounts/7").acquire().await?;
    let token = Token::exclusive(guard.token().map(u64::from))?;
    guard.release().await?;
    Ok(token)
}

async fn token_of_a_guard(client: &Client) -> Result<Token, Box<dyn std::error::Error>> {
    let guard = client.lock("accounts/7").acquire().await?;
    let token = Token::try_from(&guard)?;
    guard.release().await?;
    Ok(token)
}

fn own_sqlite_transaction(connection: &mut rusqlite::Connection, token: Token) -> Outcome {
    let transaction = connection.transaction()?;
    sqlite::check(&transaction, "accounts/7", token)?;
    transaction.execute("UPDATE accounts SET balance = 40 WHERE id = 7", [])?;
    transaction.commit()?;
    Ok(())
}

async fn in_a_file(folder: &std::path::Path, token: Token) -> Outcome {
    let fence = ObjectFence::local(folder).await?;
    fence.raise("reports/7", token).await?;
    fence.write("reports/7", token, "total 40".into()).await?;
    let report = fence.read("reports/7").await?.value;
    assert_eq!(report, Some("total 40".into()));
    Ok(())
}

/// In a process of its own, because the settings are in the environment.
#[tokio::test(flavor = "multi_thread")]
async fn guide_code_for_s3_works() {
    let s3 = S3::start().await;
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guide::in_a_bucket_process", "--ignored", "--nocapture"])
        .env("AWS_ENDPOINT", &s3.url)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "tests")
        .env("AWS_SECRET_ACCESS_KEY", "tests")
        .env("AWS_ALLOW_HTTP", "true")
        .output();
    let ran = child.await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(s3.keys(), ["/shop/prices.csv"]);
}

#[tokio::test]
#[ignore = "run in a process of its own by guide_code_for_s3_works"]
async fn in_a_bucket_process() {
    // Without settings, the client would look for credentials on the network.
    std::env::var("AWS_ENDPOINT").expect("run by guide_code_for_s3_works");
    crate::support::s3::choose_tls();
    in_a_bucket(exclusive(35)).await.unwrap();
}

async fn in_a_bucket(token: Token) -> Outcome {
    let bucket = AmazonS3Builder::from_env().with_bucket_name("shop").build()?;
    let fence = ObjectFence::open(Arc::new(bucket)).await?;
    let found = fence.raise("prices.csv", token).await?;
    let mut prices = found.value.unwrap_or_default().to_vec();
    prices.extend_from_slice(b"tea,3\n");
    fence.write("prices.csv", token, prices.into()).await?;
    Ok(())
}

type Report = Arc<Mutex<String>>;

async fn save_report(State(report): State<Report>, Path(_): Path<u32>, body: String) -> String {
    *report.lock().unwrap() = body;
    "saved\n".into()
}

async fn show_report(State(report): State<Report>, Path(_): Path<u32>) -> String {
    format!("{}\n", report.lock().unwrap())
}

fn service(database: &std::path::Path) -> Result<Router, Box<dyn std::error::Error>> {
    let numbers = Arc::new(Sqlite::open(database)?);
    let app = Router::new()
        .route("/reports/{number}", put(save_report).get(show_report))
        .layer(FenceLayer::new(numbers));
    Ok(app.with_state(Report::default()))
}

fn request(token: Token) -> Result<Request<Body>, Box<dyn std::error::Error>> {
    let mut request = Request::put("/reports/7").body(Body::from("total 40"))?;
    insert_token(request.headers_mut(), token);
    Ok(request)
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_service_responds_as_shown() {
    let sent = request(exclusive(35)).unwrap();
    assert_eq!(sent.headers()["fencing-token"], "35");

    let folder = tempfile::tempdir().unwrap();
    let app = service(&folder.path().join("numbers.db")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let blocks = blocks("sh");
    let (commands, expected) = &blocks[0];
    // The layer's own answers end without a line feed, as curl leaves them.
    let mut transcript = String::new();
    for command in commands.lines() {
        let command = command.replace("127.0.0.1:8080", &address);
        let ran = tokio::process::Command::new("sh").args(["-c", &command]).output().await.unwrap();
        assert!(ran.status.success(), "{command}");
        transcript.push_str(String::from_utf8(ran.stdout).unwrap().trim_end());
        transcript.push('\n');
    }
    assert_eq!(transcript.trim_end(), expected.as_deref().unwrap());
    task.abort();
}
