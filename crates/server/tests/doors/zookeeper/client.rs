//! A tiny ZooKeeper client: one request at a time, events in the order in which they come.
#![allow(dead_code, reason = "some tests need less")]

use holdfast_core::{Acl, NodeData, NodeKind, NodeOp, Stat};
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{
    AuthPacket, Connect, Connected, Reply, ReplyBody, Request, WatchEvent, WatchEventType, xid,
};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Nothing here takes this long unless it is broken.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An event, as tests compare it.
pub(crate) type Event = (WatchEventType, String);

/// A connection with a session.
pub(crate) struct Zk {
    pub(crate) stream: TcpStream,
    pub(crate) session: i64,
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: i32,
    /// The zxid of the last reply.
    pub(crate) zxid: i64,
    xid: i32,
    events: VecDeque<Event>,
}

/// The connect request for a new session.
pub(crate) fn new_session(timeout_ms: i32) -> Connect {
    Connect {
        protocol_version: 0,
        last_zxid: 0,
        timeout_ms,
        session: 0,
        password: vec![0; 16],
        read_only: Some(false),
    }
}

fn stream(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// What a server says to a connect request. If it is not one for a session, the session is gone.
pub(crate) fn connect(port: u16, request: &Connect) -> io::Result<(TcpStream, Connected)> {
    let mut stream = stream(port)?;
    stream.write_all(&request.encode())?;
    let frame = read_frame(&mut stream)?;
    let connected = Connected::decode(&frame).expect("a connect reply");
    Ok((stream, connected))
}

/// The answer to a four-letter word.
pub(crate) fn word(port: u16, word: &str) -> String {
    let mut stream = stream(port).expect("a connection");
    stream.write_all(word.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[allow(dead_code, reason = "some tests need less")]
impl Zk {
    /// A client with a new session.
    pub(crate) fn open(port: u16, timeout_ms: i32) -> io::Result<Self> {
        let (stream, connected) = connect(port, &new_session(timeout_ms))?;
        Ok(Self::new(stream, &connected))
    }

    fn new(stream: TcpStream, connected: &Connected) -> Self {
        Self {
            stream,
            session: connected.session,
            password: connected.password,
            timeout_ms: connected.timeout_ms,
            zxid: 0,
            xid: 0,
            events: VecDeque::new(),
        }
    }

    /// The connect request by which this session goes on.
    pub(crate) fn again(&self) -> Connect {
        Connect {
            last_zxid: self.zxid,
            session: self.session,
            password: self.password.to_vec(),
            ..new_session(self.timeout_ms)
        }
    }

    /// Goes on with this session through another connection; false if it has ended.
    pub(crate) fn attach(&mut self, port: u16) -> io::Result<bool> {
        let (stream, connected) = connect(port, &self.again())?;
        if connected.session == 0 {
            assert_eq!((connected.timeout_ms, connected.password), (0, [0; 16]));
            return Ok(false);
        }
        assert_eq!((connected.session, connected.password), (self.session, self.password));
        self.stream = stream;
        self.events.clear();
        Ok(true)
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<i32> {
        let number = match request {
            Request::Ping => xid::PING,
            Request::Auth(_) => xid::AUTH,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        self.stream.write_all(&request.encode(number))?;
        Ok(number)
    }

    /// The reply to the request with this number; events before it are kept, and pings skipped.
    pub(crate) fn reply(
        &mut self,
        number: i32,
        request: &Request,
    ) -> io::Result<Result<ReplyBody, Code>> {
        loop {
            let frame = read_frame(&mut self.stream)?;
            let came = frame.first_chunk().copied().map_or(0, i32::from_be_bytes);
            if came == xid::NOTIFICATION {
                let event = WatchEvent::decode(&frame).expect("an event");
                self.events.push_back((event.what, event.path));
                continue;
            }
            if came == xid::PING && number != xid::PING {
                continue;
            }
            assert_eq!(came, number, "a reply out of order");
            let reply = Reply::decode(&frame, request).expect("a reply");
            self.zxid = self.zxid.max(reply.zxid);
            return Ok(reply.result);
        }
    }

    pub(crate) fn try_ask(&mut self, request: &Request) -> io::Result<Result<ReplyBody, Code>> {
        let number = self.send(request)?;
        self.reply(number, request)
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<ReplyBody, Code> {
        self.try_ask(request).expect("a reply")
    }

    /// Events that came before the last reply.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        loop {
            let frame = read_frame(&mut self.stream).expect("an event");
            if frame.starts_with(&xid::NOTIFICATION.to_be_bytes()) {
                let event = WatchEvent::decode(&frame).expect("an event");
                return (event.what, event.path);
            }
            assert!(frame.starts_with(&xid::PING.to_be_bytes()), "a reply that nobody asked for");
        }
    }

    /// Whether the server closes the connection, after whatever it still has to say.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Ends the connection without a word.
    pub(crate) fn hang_up(&self) {
        self.stream.shutdown(Shutdown::Both).expect("an open connection");
    }

    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.try_ask(&Request::Ping).map(|_| ())
    }

    /// Proves a user's password.
    pub(crate) fn auth(&mut self, user_and_password: &str) -> Result<ReplyBody, Code> {
        let (scheme, auth) = ("digest".to_owned(), user_and_password.as_bytes().to_vec());
        self.ask(&Request::Auth(AuthPacket { scheme, auth }))
    }

    /// Creates a znode; its path and Stat.
    pub(crate) fn create(
        &mut self,
        path: &str,
        kind: NodeKind,
        sequential: bool,
    ) -> Result<(String, Stat), Code> {
        match self.ask(&create(path, kind, sequential))? {
            ReplyBody::PathStat(path, stat) => Ok((path, stat)),
            other => panic!("{other:?}"),
        }
    }

    /// Creates directories.
    pub(crate) fn make(&mut self, path: &str) {
        let ends = path.char_indices().filter(|(at, char)| *at > 0 && *char == '/');
        for end in ends.map(|(at, _)| at).chain([path.len()]) {
            match self.create(&path[..end], NodeKind::Persistent, false) {
                Ok(_) | Err(Code::NodeExists) => {}
                Err(code) => panic!("{path}: {code:?}"),
            }
        }
    }

    /// Gets into the line of a directory, as a recipe does; the path of the znode and its czxid.
    pub(crate) fn contend(&mut self, directory: &str, marker: &str) -> Result<(String, u64), Code> {
        let path = format!("{directory}/{marker}");
        let (path, stat) = self.create(&path, NodeKind::Ephemeral, true)?;
        Ok((path, stat.czxid))
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<(), Code> {
        let op = NodeOp::Delete { path: path.to_owned(), version: None };
        self.ask(&Request::Write { op, stat: false }).map(|_| ())
    }

    pub(crate) fn set(&mut self, path: &str, data: &[u8]) -> Result<Stat, Code> {
        match self.ask(&set(path, data))? {
            ReplyBody::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn get(&mut self, path: &str, watch: bool) -> Result<(Vec<u8>, Stat), Code> {
        match self.ask(&get(path, watch))? {
            ReplyBody::DataStat(data, stat) => {
                Ok((data.map_or(Vec::new(), |data| data.as_bytes().to_vec()), stat))
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn exists(&mut self, path: &str, watch: bool) -> bool {
        match self.ask(&Request::Exists { path: path.to_owned(), watch }) {
            Ok(_) => true,
            Err(Code::NoNode) => false,
            Err(code) => panic!("{path}: {code:?}"),
        }
    }

    /// The names of a znode's children, by the numbers at their ends.
    pub(crate) fn children(&mut self, path: &str, watch: bool) -> Vec<String> {
        let request = Request::GetChildren { path: path.to_owned(), watch, stat: false };
        match self.ask(&request) {
            Ok(ReplyBody::Texts(mut names)) => {
                names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
                names
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sync(&mut self) {
        self.ask(&Request::Sync { path: "/".to_owned() }).expect("it is current");
    }
}

/// A request that creates a znode, and replies with its Stat.
pub(crate) fn create(path: &str, kind: NodeKind, sequential: bool) -> Request {
    let (path, data) = (path.to_owned(), NodeData::parse("me").ok());
    let op = NodeOp::Create { path, data, acl: vec![Acl::open()], kind, sequential };
    Request::Write { op, stat: true }
}

pub(crate) fn set(path: &str, data: &[u8]) -> Request {
    let (path, data) = (path.to_owned(), NodeData::parse(data).ok());
    Request::Write { op: NodeOp::SetData { path, data, version: None }, stat: false }
}

pub(crate) fn get(path: &str, watch: bool) -> Request {
    Request::GetData { path: path.to_owned(), watch }
}
