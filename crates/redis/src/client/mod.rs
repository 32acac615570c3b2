//! The state of one connection: pure, and independent of the socket.

mod listening;

use crate::acquiring::Acquiring;
use crate::command::{
    ClientCommand, Command, Connection, Hello, Holdfast, Parsed, PubSub, Transactions, parse,
    parse_later,
};
use crate::error::Error;
use crate::resp::{Bounds, Protocol, Reply, Request};
use crate::run::{Database, Done, Job};
use bytes::Bytes;
use holdfast_core::{LockName, Stamp};
use std::collections::BTreeSet;

/// Commands in one MULTI, which are kept until EXEC.
const QUEUED_MAX: usize = 1_024;
/// Bytes of all of them together.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// What each of them costs in addition to its bytes.
const QUEUED_BYTES: usize = 256;
/// What a watched key or a channel costs in addition to its bytes.
const KEPT_NAME_BYTES: usize = 160;
/// The longest name of a connection, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Keys that one connection may watch: as many as a transaction may read.
const WATCHED_MAX: usize = 1_024;

/// What to do with a request.
#[derive(Debug)]
pub enum Plan {
    /// Send these replies; nothing else.
    Reply(Vec<Reply>),
    /// Send this reply and close the connection.
    Close(Reply),
    /// Run this with the keys it wants, and pass the result to [`Client::ran`].
    Run(Job),
    /// Read the stamps of these keys from current state and pass them to [`Client::watch`].
    Watch(Vec<LockName>),
    /// Wait in line.
    Acquire(Acquiring),
    /// Check a password, pass the result to [`Client::passed`], and send its reply.
    Password {
        /// The user name; `None` means `default`.
        user: Option<Bytes>,
        /// The password to check.
        password: Bytes,
        /// What else a HELLO requests.
        hello: Option<Hello>,
    },
    /// List all connections of this door.
    ListClients,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    /// Its number on this node.
    pub id: u64,
    /// The protocol it uses.
    pub protocol: Protocol,
    /// The database it has selected.
    pub database: Database,
    /// The name it has set.
    pub name: Bytes,
    /// Channels it is subscribed to.
    pub channels: BTreeSet<Bytes>,
    /// Patterns it is subscribed to.
    pub patterns: BTreeSet<Bytes>,
    needs_password: bool,
    passed: bool,
    queue: Option<Queue>,
    watched: Vec<(LockName, Stamp)>,
}

/// The commands queued since MULTI.
#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Parsed>,
    bytes: usize,
    /// Whether a command could not be queued: then EXEC does nothing.
    spoilt: bool,
}

impl Client {
    /// A new connection.
    pub fn new(id: u64, needs_password: bool) -> Self {
        Self {
            id,
            protocol: Protocol::Resp2,
            database: Database(0),
            name: Bytes::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            needs_password,
            passed: false,
            queue: None,
            watched: Vec::new(),
        }
    }

    /// How large its requests may be at this point.
    pub fn bounds(&self) -> Bounds {
        if self.may_ask() { Bounds::DEFAULT } else { Bounds::BEFORE_PASSWORD }
    }

    /// Whether it has authenticated, or does not need to.
    pub fn may_ask(&self) -> bool {
        self.passed || !self.needs_password
    }

    /// Bytes kept for it from one request to the next.
    pub fn kept_bytes(&self) -> usize {
        let queue = self.queue.as_ref().map_or(0, |queue| {
            queue.bytes.saturating_add(queue.commands.len().saturating_mul(QUEUED_BYTES))
        });
        let watched = self.watched.iter().map(|(name, _)| name.as_bytes().len());
        // The node's table of subscriptions has them too.
        let listens = self.channels.iter().chain(&self.patterns).map(|name| name.len() * 2);
        let all = watched.chain(listens).map(|bytes| bytes.saturating_add(KEPT_NAME_BYTES));
        all.fold(queue.saturating_add(self.name.len()), usize::saturating_add)
    }

    fn listens(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Decides what to do with a request.
    pub fn take(&mut self, request: &Request) -> Plan {
        if speaks_http(request) {
            return Plan::Close(Reply::Error(Error::fixed(
                "ERR this is the port of the Redis protocol: HTTP has another port",
            )));
        }
        match self.plan(request) {
            Ok(plan) => plan,
            Err(error) => {
                if let Some(queue) = &mut self.queue {
                    queue.spoilt = true;
                }
                Plan::Reply(vec![Reply::Error(error)])
            }
        }
    }

    fn plan(&mut self, request: &Request) -> Result<Plan, Error> {
        // What is kept until EXEC must not hold on to the buffers it arrived in.
        let copied: Request;
        let request = if self.queue.is_some() {
            copied = request.iter().map(|word| Bytes::copy_from_slice(word)).collect();
            &copied
        } else {
            request
        };
        let parsed = if self.queue.is_some() { parse_later(request) } else { parse(request) };
        let parsed = parsed.map_err(|error| self.exec_abandoned(request, error))?;
        if !self.may_ask() && !parsed.spec.is("no_auth") {
            return Err(Error::NO_AUTH);
        }
        if self.protocol == Protocol::Resp2 && self.listens() && !may_listen(&parsed.command) {
            return Err(Error::err(format_args!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                parsed.spec.name
            )));
        }
        let ends_queue = matches!(
            parsed.command,
            Command::Transactions(
                Transactions::Exec
                    | Transactions::Discard
                    | Transactions::Multi
                    | Transactions::Watch(_)
            ) | Command::Connection(Connection::Quit | Connection::Reset)
        );
        if self.queue.is_some() && !ends_queue {
            return self.gather(parsed, request);
        }
        self.now(parsed)
    }

    /// A malformed EXEC discards the transaction, and its error says so.
    fn exec_abandoned(&mut self, request: &Request, error: Error) -> Error {
        if !request.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec")) {
            return error;
        }
        self.queue = None;
        self.watched.clear();
        let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
        text.extend_from_slice(error.as_bytes().strip_prefix(b"ERR ").unwrap_or_default());
        Error::new(text)
    }

    fn gather(&mut self, parsed: Parsed, request: &Request) -> Result<Plan, Error> {
        let later = match &parsed.command {
            Command::PubSub(
                PubSub::Subscribe(_)
                | PubSub::PSubscribe(_)
                | PubSub::Unsubscribe(_)
                | PubSub::PUnsubscribe(_),
            )
            | Command::Holdfast(Holdfast::Acquire { .. }) => false,
            Command::Connection(connection) => matches!(
                connection,
                Connection::Ping(_) | Connection::Echo(_) | Connection::Select(_)
            ),
            Command::Transactions(transactions) => *transactions == Transactions::Unwatch,
            _ => true,
        };
        if !later {
            let name = parsed.spec.name.to_uppercase();
            return Err(Error::err(format_args!("{name} inside MULTI is not allowed")));
        }
        let queue = self.queue.get_or_insert_default();
        queue.bytes = queue.bytes.saturating_add(request.iter().map(Bytes::len).sum());
        if queue.commands.len() >= QUEUED_MAX || queue.bytes > QUEUED_BYTES_MAX {
            return Err(Error::fixed("ERR too many commands in one MULTI: split the work"));
        }
        queue.commands.push(parsed);
        Ok(Plan::Reply(vec![Reply::status("QUEUED")]))
    }

    fn now(&mut self, parsed: Parsed) -> Result<Plan, Error> {
        let ok = || Ok(Plan::Reply(vec![Reply::OK]));
        match &parsed.command {
            Command::Transactions(command) => match command {
                Transactions::Multi if self.queue.is_some() => Ok(Plan::Reply(vec![Reply::Error(
                    Error::fixed("ERR MULTI calls can not be nested"),
                )])),
                Transactions::Multi => {
                    self.queue = Some(Queue::default());
                    ok()
                }
                Transactions::Exec => self.exec(),
                Transactions::Discard => {
                    self.queue.take().ok_or(Error::fixed("ERR DISCARD without MULTI"))?;
                    self.watched.clear();
                    ok()
                }
                Transactions::Watch(_) if self.queue.is_some() => {
                    // Redis continues the transaction.
                    let error = Error::fixed("ERR WATCH inside MULTI is not allowed");
                    Ok(Plan::Reply(vec![Reply::Error(error)]))
                }
                Transactions::Watch(keys) => {
                    if self.watched.len().saturating_add(keys.len()) > WATCHED_MAX {
                        return Err(Error::fixed("ERR too many keys watched: UNWATCH some first"));
                    }
                    let names = keys.iter().map(|key| self.database.name(key));
                    Ok(Plan::Watch(names.collect::<Result<_, Error>>()?))
                }
                Transactions::Unwatch => {
                    self.watched.clear();
                    ok()
                }
            },
            Command::PubSub(PubSub::Subscribe(channels)) => self.subscribe(channels, false),
            Command::PubSub(PubSub::PSubscribe(patterns)) => self.subscribe(patterns, true),
            Command::PubSub(PubSub::Unsubscribe(channels)) => {
                Ok(Plan::Reply(self.unsubscribe(channels, false)))
            }
            Command::PubSub(PubSub::PUnsubscribe(patterns)) => {
                Ok(Plan::Reply(self.unsubscribe(patterns, true)))
            }
            Command::Holdfast(Holdfast::Acquire { name, owner, ttl_ms, wait_ms, retry }) => {
                let name = self.database.name(name)?;
                Ok(Plan::Acquire(Acquiring::new(name, owner, *ttl_ms, *wait_ms, *retry)?))
            }
            Command::Connection(command) => self.connection(command),
            _ => Ok(Plan::Run(Job::one(parsed, self.database))),
        }
    }

    fn exec(&mut self) -> Result<Plan, Error> {
        let queue = self.queue.take().ok_or(Error::fixed("ERR EXEC without MULTI"))?;
        let watched = std::mem::take(&mut self.watched);
        if queue.spoilt {
            return Err(Error::fixed(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        Ok(Plan::Run(Job::exec(queue.commands, watched, self.database)))
    }

    fn connection(&mut self, command: &Connection) -> Result<Plan, Error> {
        let reply = match command {
            Connection::Ping(text) if self.listens() && self.protocol == Protocol::Resp2 => {
                let text = text.clone().unwrap_or_default();
                Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(text)])
            }
            Connection::Ping(None) => Reply::status("PONG"),
            Connection::Ping(Some(text)) | Connection::Echo(text) => Reply::Bulk(text.clone()),
            Connection::Select(number) => {
                self.database = Database(*number);
                Reply::OK
            }
            Connection::Auth(user, password) => {
                if user.is_none() && !self.needs_password {
                    return Err(Error::fixed(
                        "ERR AUTH <password> called without any password configured for the \
                         default user. Are you sure your configuration is correct?",
                    ));
                }
                let (user, password) = (user.clone(), password.clone());
                return Ok(Plan::Password { user, password, hello: None });
            }
            Connection::Hello(hello) => match &hello.auth {
                Some((user, password)) => {
                    let (user, password) = (Some(user.clone()), password.clone());
                    return Ok(Plan::Password { user, password, hello: Some(hello.clone()) });
                }
                None if !self.may_ask() => {
                    return Err(Error::fixed(
                        "NOAUTH HELLO must be called with the client already authenticated, \
                         otherwise the HELLO AUTH <user> <pass> option can be used to \
                         authenticate the client and select the RESP protocol version at the \
                         same time",
                    ));
                }
                None => self.hello(hello),
            },
            Connection::Client(command) => match command {
                ClientCommand::Id => Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX)),
                ClientCommand::GetName if self.name.is_empty() => Reply::Null,
                ClientCommand::GetName => Reply::Bulk(self.name.clone()),
                ClientCommand::SetName(name) => {
                    self.call_itself(name)?;
                    Reply::OK
                }
                ClientCommand::SetInfo | ClientCommand::Nothing => Reply::OK,
                ClientCommand::Info => Reply::Verbatim(*b"txt", Bytes::from(self.line())),
                ClientCommand::List => return Ok(Plan::ListClients),
            },
            Connection::Quit => return Ok(Plan::Close(Reply::OK)),
            Connection::Reset => {
                *self = Self::new(self.id, self.needs_password);
                Reply::status("RESET")
            }
        };
        Ok(Plan::Reply(vec![reply]))
    }

    /// Its line in `CLIENT LIST`.
    pub fn line(&self) -> String {
        let name = String::from_utf8_lossy(&self.name);
        let queued =
            self.queue.as_ref().map_or("-1".to_owned(), |queue| queue.commands.len().to_string());
        let resp = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
        format!(
            "id={} name={name} db={} sub={} psub={} multi={queued} user=default resp={resp}\n",
            self.id,
            self.database.0,
            self.channels.len(),
            self.patterns.len(),
        )
    }

    fn call_itself(&mut self, name: &Bytes) -> Result<(), Error> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::fixed("ERR Client names cannot be longer than 512 bytes."));
        }
        self.name = Bytes::copy_from_slice(name);
        Ok(())
    }

    fn hello(&mut self, hello: &Hello) -> Reply {
        if let Some(Err(error)) = hello.name.as_ref().map(|name| self.call_itself(name)) {
            return Reply::Error(error);
        }
        self.protocol = hello.protocol.unwrap_or(self.protocol);
        let id = i64::try_from(self.id).unwrap_or(i64::MAX);
        let proto = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
        let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
        Reply::Map(vec![
            pair("server", Reply::bulk("redis")),
            pair("version", Reply::bulk(crate::run::REDIS_VERSION)),
            pair("proto", Reply::Integer(proto)),
            pair("id", Reply::Integer(id)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk("master")),
            pair("modules", Reply::Array(Vec::new())),
        ])
    }

    /// A password was checked: returns the reply.
    pub fn passed(&mut self, right: bool, hello: Option<&Hello>) -> Reply {
        if !right {
            return Reply::Error(Error::WRONG_PASSWORD);
        }
        self.passed = true;
        hello.map_or(Reply::OK, |hello| self.hello(hello))
    }

    /// Watches these keys, which have these stamps: returns the reply.
    pub fn watch(&mut self, keys: impl IntoIterator<Item = (LockName, Stamp)>) -> Reply {
        for (name, stamp) in keys {
            if !self.watched.iter().any(|(watched, _)| *watched == name) {
                self.watched.push((name, stamp));
            }
        }
        Reply::OK
    }

    /// A job is done and applied: returns the replies, one for each joined command.
    pub fn ran(&mut self, done: Done) -> Vec<Reply> {
        self.database = done.database.unwrap_or(self.database);
        done.replies
    }
}

/// Whether a request is a line of HTTP. A browser lets any web page send one, with commands in its
/// body: the connection must be closed before these are read.
fn speaks_http(request: &Request) -> bool {
    let first = request.first().map_or(&[][..], |word| word);
    first.eq_ignore_ascii_case(b"post") || first.eq_ignore_ascii_case(b"host:")
}

fn may_listen(command: &Command) -> bool {
    matches!(
        command,
        Command::PubSub(
            PubSub::Subscribe(_)
                | PubSub::PSubscribe(_)
                | PubSub::Unsubscribe(_)
                | PubSub::PUnsubscribe(_)
        ) | Command::Connection(Connection::Ping(_) | Connection::Quit | Connection::Reset)
    )
}
