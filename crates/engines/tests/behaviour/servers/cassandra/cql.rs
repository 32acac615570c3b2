//! A minimal CQL client, for what a driver hides: which node coordinates a statement, at which
//! consistency level, and a reply that nobody reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than Cassandra takes to reply that a statement timed out.
const TIMEOUT: Duration = Duration::from_secs(30);

/// With the protocol's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consistency {
    One = 1,
    Quorum = 4,
    All = 5,
    Serial = 8,
}

/// The server's error: its code and message.
#[derive(Debug)]
pub(crate) struct CqlError {
    pub(crate) code: i32,
    #[allow(dead_code, reason = "shown by tests that fail")]
    pub(crate) message: String,
}

/// A coordinator waited in vain for replicas: the statement may have taken effect on some of them.
pub(crate) const WRITE_TIMEOUT: i32 = 0x1100;

/// A connection to the node that will coordinate what is sent over it.
pub(crate) struct Cql {
    stream: TcpStream,
}

const STARTUP: u8 = 1;
const QUERY: u8 = 7;
const ERROR: u8 = 0;
const RESULT: u8 = 8;

impl Cql {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut cql = Self { stream };
        let mut options = vec![0, 1];
        for text in ["CQL_VERSION", "3.0.0"] {
            options.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
            options.extend(text.as_bytes());
        }
        cql.send(STARTUP, &options);
        let (answer, _) = cql.receive();
        assert_eq!(answer, 2, "it is not ready");
        cql
    }

    /// Runs a statement without variables. Returns the rows, with all columns as text.
    pub(crate) fn run(
        &mut self,
        statement: &str,
        consistency: Consistency,
    ) -> Result<Vec<Vec<Option<String>>>, CqlError> {
        self.start(statement, consistency);
        self.answer()
    }

    /// The reply to a statement that was sent.
    pub(crate) fn answer(&mut self) -> Result<Vec<Vec<Option<String>>>, CqlError> {
        let (answer, body) = self.receive();
        let mut body = Body(&body);
        match answer {
            ERROR => Err(CqlError { code: body.int(), message: body.string() }),
            RESULT if body.int() == 2 => Ok(rows(&mut body)),
            RESULT => Ok(Vec::new()),
            other => panic!("answered with a frame of kind {other}"),
        }
    }

    /// Sends a statement without waiting for the reply.
    pub(crate) fn start(&mut self, statement: &str, consistency: Consistency) {
        let mut body = u32::try_from(statement.len()).unwrap().to_be_bytes().to_vec();
        body.extend(statement.as_bytes());
        body.extend((consistency as u16).to_be_bytes());
        body.push(0);
        self.send(QUERY, &body);
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut frame = vec![4, 0, 0, 0, kind];
        frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        (head[4], body)
    }
}

fn rows(body: &mut Body<'_>) -> Vec<Vec<Option<String>>> {
    const ONE_TABLE: i32 = 1;
    const BIGINT: u16 = 2;
    const BOOLEAN: u16 = 4;
    let (flags, columns) = (body.int(), body.int());
    if flags & ONE_TABLE != 0 {
        body.skip_table();
    }
    let mut types = Vec::new();
    for _ in 0..columns {
        if flags & ONE_TABLE == 0 {
            body.skip_table();
        }
        body.string();
        types.push(body.short());
    }
    let row = |body: &mut Body<'_>| {
        let column = |kind: &u16| {
            let length = usize::try_from(body.int()).ok()?;
            let value = body.take(length);
            let text = || String::from_utf8_lossy(value).into_owned();
            Some(match *kind {
                BIGINT => i64::from_be_bytes(value.try_into().unwrap()).to_string(),
                BOOLEAN => (value == [1]).to_string(),
                _ => text(),
            })
        };
        types.iter().map(column).collect()
    };
    (0..body.int()).map(|_| row(body)).collect()
}

/// The unread rest of a reply.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn skip_table(&mut self) {
        let (_keyspace, _table) = (self.string(), self.string());
    }

    fn string(&mut self) -> String {
        let length = usize::from(self.short());
        String::from_utf8_lossy(self.take(length)).into_owned()
    }
}
