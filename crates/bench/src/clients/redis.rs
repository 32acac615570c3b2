//! Redis with the usual recipe: `SET name value NX PX ttl`, and a script that deletes the key if it
//! still has this client's value. A client that does not get the lock polls.

use super::{Client, SESSION_TTL, Step};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The pause between two attempts. Redis notifies nobody when a lock is free.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The longest reply accepted: the replies here are short.
const ANSWER_MAX: usize = 4096;

/// Deletes the key if it still has this client's value.
pub(crate) const DELETE_OWN: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

pub(crate) struct Redis {
    connection: Connection,
    value: String,
    delete_own: String,
    held: Option<String>,
}

impl Redis {
    pub(crate) async fn connect(ports: &[u16], number: usize) -> Result<Self, String> {
        let port = ports.first().copied().ok_or("no server was named")?;
        let mut connection = Connection::open(port).await?;
        let delete_own = connection.call(&["SCRIPT", "LOAD", DELETE_OWN]).await?;
        let delete_own = delete_own.ok_or("redis: SCRIPT LOAD: no answer")?;
        Ok(Self { connection, value: format!("client-{number}"), delete_own, held: None })
    }
}

impl Client for Redis {
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a> {
        Box::pin(async move {
            let ttl = SESSION_TTL.as_millis().to_string();
            // The caller ends this loop by dropping the future.
            while self
                .connection
                .call(&["SET", name, &self.value, "NX", "PX", &ttl])
                .await?
                .is_none()
            {
                sleep(POLL_EVERY).await;
            }
            self.held = Some(name.to_owned());
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_> {
        Box::pin(async move {
            let name = self.held.take().ok_or("nothing is held")?;
            let call = ["EVALSHA", &self.delete_own, "1", &name, &self.value];
            match self.connection.call(&call).await?.as_deref() {
                Some("1") => Ok(()),
                other => Err(format!("redis: the lock was not held any more: {other:?}")),
            }
        })
    }
}

/// A connection that carries one command at a time.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        let stream = stream.map_err(|error| format!("redis: {error}"))?;
        stream.set_nodelay(true).map_err(|error| format!("redis: {error}"))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The reply to a command as text; `None` for nil.
    pub(crate) async fn call(&mut self, words: &[&str]) -> Result<Option<String>, String> {
        let asked = self.stream.get_mut().write_all(&encode(words)).await;
        asked.map_err(|error| format!("redis: {error}"))?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        let read = (&mut self.stream).take(ANSWER_MAX as u64).read_line(&mut line).await;
        read.map_err(|error| format!("redis: {error}"))?;
        match read_line(&line)? {
            Answer::Text(text) => Ok(text),
            Answer::Follows(length) => {
                let mut text = vec![0; length + 2];
                let read = self.stream.read_exact(&mut text).await;
                read.map_err(|error| format!("redis: {error}"))?;
                text.truncate(length);
                Ok(Some(String::from_utf8_lossy(&text).into_owned()))
            }
        }
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

/// The first line of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Text(Option<String>),
    /// This many bytes follow.
    Follows(usize),
}

fn read_line(line: &str) -> Result<Answer, String> {
    let line = line.strip_suffix("\r\n").ok_or("redis: the connection has ended")?;
    let odd = || format!("redis: unexpected reply: {line}");
    let (kind, rest) = line.split_at_checked(1).ok_or_else(odd)?;
    match kind {
        "+" | ":" => Ok(Answer::Text(Some(rest.to_owned()))),
        "-" => Err(format!("redis: {rest}")),
        "$" if rest == "-1" => Ok(Answer::Text(None)),
        "$" => {
            let length = rest.parse().ok().filter(|length| *length <= ANSWER_MAX);
            length.map(Answer::Follows).ok_or_else(odd)
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_strings() {
        assert_eq!(encode(&["SET", "a", ""]), b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_are_parsed_by_type() {
        assert_eq!(read_line("+OK\r\n"), Ok(Answer::Text(Some("OK".to_owned()))));
        assert_eq!(read_line(":1\r\n"), Ok(Answer::Text(Some("1".to_owned()))));
        assert_eq!(read_line("$-1\r\n"), Ok(Answer::Text(None)));
        assert_eq!(read_line("$40\r\n"), Ok(Answer::Follows(40)));
        assert_eq!(read_line("-ERR no\r\n"), Err("redis: ERR no".to_owned()));
        assert!(read_line("$99999999\r\n").is_err());
        assert!(read_line("").is_err());
    }
}
