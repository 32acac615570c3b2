//! Requests to a server's HTTP port.

use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout for one request to a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The reply to a GET; an error unless its status is 200.
pub(super) async fn get(port: u16, path: &str) -> Result<Value, String> {
    call(port, "GET", path, "").await
}

/// The reply to a POST; an error unless its status is 200.
pub(super) async fn post(port: u16, path: &str, body: &str) -> Result<Value, String> {
    call(port, "POST", path, body).await
}

async fn call(port: u16, verb: &str, path: &str, body: &str) -> Result<Value, String> {
    let length = body.len();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let asked = timeout(ANSWER_TIMEOUT, ask(port, &request)).await;
    let answer = asked.map_err(|_| format!("{path}: no answer"))?;
    let answer = answer.map_err(|error| format!("{path}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path}: {body}"));
    }
    serde_json::from_str(body).map_err(|error| format!("{path}: {error}: {body}"))
}

async fn ask(port: u16, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
