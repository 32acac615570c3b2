//! The client side of a connection, for both protocols.

use bytes::{BufMut, Bytes, BytesMut};
use holdfast_redis::resp::Reply;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(server: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(server).expect("the server listens");
        stream.set_nodelay(true).expect("an option can be set");
        Self(BufReader::new(stream))
    }

    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, request: &[T]) -> Reply {
        let mut out = BytesMut::new();
        out.put_slice(format!("*{}\r\n", request.len()).as_bytes());
        for word in request {
            out.put_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
            out.put_slice(word.as_ref());
            out.put_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&out).expect("the server went away");
        self.reply()
    }

    fn reply(&mut self) -> Reply {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("the server went away");
        let text = line.get(1..line.len().saturating_sub(2)).unwrap_or_default().to_vec();
        let words = String::from_utf8_lossy(&text).into_owned();
        let number = || words.parse::<i64>().expect("a number");
        match line.first() {
            Some(b'+') => Reply::Status(Bytes::from(text)),
            Some(b'-') => Reply::Error(holdfast_redis::Error::new(text)),
            Some(b':') => Reply::Integer(number()),
            Some(b'$') => usize::try_from(number()).map_or(Reply::Null, |len| self.bytes(len)),
            Some(b'*') if number() < 0 => Reply::NullArray,
            Some(b'*') => Reply::Array((0..number()).map(|_| self.reply()).collect()),
            Some(b'~') => Reply::Set((0..number()).map(|_| self.reply()).collect()),
            Some(b'>') => Reply::Push((0..number()).map(|_| self.reply()).collect()),
            Some(b'%') => Reply::Map((0..number()).map(|_| (self.reply(), self.reply())).collect()),
            Some(b'_') => Reply::Null,
            Some(b'#') => Reply::Boolean(words == "t"),
            Some(b',') => Reply::Double(words.parse().expect("a number")),
            Some(b'(') => Reply::BigNumber(Bytes::from(text)),
            other => panic!("what is this? {other:?}"),
        }
    }

    fn bytes(&mut self, len: usize) -> Reply {
        let mut bytes = vec![0; len + 2];
        self.0.read_exact(&mut bytes).expect("the server went away");
        bytes.truncate(len);
        Reply::Bulk(Bytes::from(bytes))
    }
}
