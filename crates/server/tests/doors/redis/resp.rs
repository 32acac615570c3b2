//! A tiny Redis client: sends words, and shows replies as short texts.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Nothing here takes this long unless it is broken.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection.
pub(crate) struct Redis {
    stream: BufReader<TcpStream>,
}

/// A reply. Shown as: `OK`, `-ERR ...`, `1`, `nil`, `[a b]`, `>[message c m]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RedisReply {
    Status(String),
    Error(String),
    Number(i64),
    Nil,
    List(Vec<RedisReply>),
    Push(Vec<RedisReply>),
}

impl fmt::Display for RedisReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[RedisReply]| {
            let items: Vec<String> = items.iter().map(RedisReply::to_string).collect();
            write!(f, "[{}]", items.join(" "))
        };
        match self {
            Self::Status(word) => f.write_str(word),
            Self::Error(error) => write!(f, "-{error}"),
            Self::Number(number) => number.fmt(f),
            Self::Nil => f.write_str("nil"),
            Self::List(items) => list(f, items),
            Self::Push(items) => {
                f.write_str(">")?;
                list(f, items)
            }
        }
    }
}

#[allow(dead_code, reason = "some tests need less")]
impl Redis {
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn try_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The reply that has already arrived; `WouldBlock` if there is none.
    pub(crate) fn receive_now(&mut self) -> io::Result<RedisReply> {
        self.stream.get_mut().set_nonblocking(true)?;
        let reply = self.try_receive();
        self.stream.get_mut().set_nonblocking(false)?;
        reply
    }

    /// Sends several requests at once, each a line of words.
    pub(crate) fn send(&mut self, lines: &[&str]) {
        let words = |line: &&str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let all: Vec<u8> = lines.iter().flat_map(|line| frame(&words(line))).collect();
        self.raw(&all);
    }

    /// Sends one request with these words.
    pub(crate) fn send_words(&mut self, words: &[&str]) {
        let frame = frame(words);
        self.raw(&frame);
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> String {
        self.try_receive().unwrap().to_string()
    }

    /// Whether the other side has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(&[line]);
        self.receive()
    }

    pub(crate) fn ask_words(&mut self, words: &[&str]) -> String {
        self.send_words(words);
        self.receive()
    }

    /// The reply, or why there is none.
    pub(crate) fn try_ask(&mut self, words: &[&str]) -> io::Result<RedisReply> {
        self.stream.get_mut().write_all(&frame(words))?;
        self.try_receive()
    }

    pub(crate) fn try_receive(&mut self) -> io::Result<RedisReply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.split_at(1);
        let rest = rest.trim_end_matches(['\r', '\n']).to_owned();
        let count = || rest.parse::<i64>().unwrap_or_else(|_| panic!("no number: {line:?}"));
        Ok(match kind {
            "+" => RedisReply::Status(rest),
            "-" => RedisReply::Error(rest),
            ":" => RedisReply::Number(count()),
            "_" => RedisReply::Nil,
            "$" | "=" => match usize::try_from(count()) {
                Err(_) => RedisReply::Nil,
                Ok(len) => {
                    let mut text = vec![0; len + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(len);
                    RedisReply::Status(String::from_utf8_lossy(&text).into_owned())
                }
            },
            "*" | "%" | "~" | ">" => match usize::try_from(count()) {
                Err(_) => RedisReply::Nil,
                Ok(len) => {
                    let len = if kind == "%" { len * 2 } else { len };
                    let items = (0..len).map(|_| self.try_receive()).collect::<Result<_, _>>()?;
                    if kind == ">" { RedisReply::Push(items) } else { RedisReply::List(items) }
                }
            },
            _ => panic!("no reply: {line:?}"),
        })
    }
}

fn frame<T: AsRef<str>>(words: &[T]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        frame.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    frame
}
