//! Commands about the connection itself.

use super::Command;
use super::args::{exactly, integer, is};
use super::table::{NOWHERE, Spec, spec};
use crate::error::Error;
use crate::resp::Protocol;
use bytes::Bytes;

/// Commands that change or show the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// `PING`.
    Ping(Option<Bytes>),
    /// `ECHO`.
    Echo(Bytes),
    /// `SELECT`.
    Select(u8),
    /// `AUTH`: the user, if one was named, and the password.
    Auth(Option<Bytes>, Bytes),
    /// `HELLO`.
    Hello(Hello),
    /// `CLIENT ...`.
    Client(ClientCommand),
    /// `QUIT`.
    Quit,
    /// `RESET`.
    Reset,
}

/// The arguments of `HELLO`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The requested protocol; `None` keeps the current one.
    pub protocol: Option<Protocol>,
    /// User and password.
    pub auth: Option<(Bytes, Bytes)>,
    /// The name to set.
    pub name: Option<Bytes>,
}

/// The subcommands of `CLIENT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCommand {
    /// `CLIENT ID`.
    Id,
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT SETNAME`.
    SetName(Bytes),
    /// `CLIENT SETINFO`: accepted and ignored.
    SetInfo,
    /// `CLIENT INFO`.
    Info,
    /// `CLIENT LIST`.
    List,
    /// A subcommand that has no effect here.
    Nothing,
}

/// The number of databases, as in Redis.
const DATABASES: i64 = 16;

pub(super) const TABLE: &[Spec] = &[
    spec("ping", -1, "fast", NOWHERE, "connection", "Check that the server answers", |a| match a {
        [] => Ok(Command::Connection(Connection::Ping(None))),
        [text] => Ok(Command::Connection(Connection::Ping(Some(text.clone())))),
        _ => Err(Error::arity("ping")),
    }),
    spec("echo", 2, "loading stale fast", NOWHERE, "connection", "Return the message", |a| {
        let [text] = exactly(a, "echo")?;
        Ok(Command::Connection(Connection::Echo(text.clone())))
    }),
    spec("select", 2, "loading stale fast", NOWHERE, "connection", "Use another database", |a| {
        let [number] = exactly(a, "select")?;
        let number = integer(number)?;
        let number = u8::try_from(number).ok().filter(|number| i64::from(*number) < DATABASES);
        let number = number.ok_or(Error::fixed("ERR DB index is out of range"))?;
        Ok(Command::Connection(Connection::Select(number)))
    }),
    spec(
        "auth",
        -2,
        "noscript loading stale fast no_auth allow_busy",
        NOWHERE,
        "connection",
        "Authenticate the connection",
        |a| match a {
            [password] => Ok(Command::Connection(Connection::Auth(None, password.clone()))),
            [user, password] => {
                Ok(Command::Connection(Connection::Auth(Some(user.clone()), password.clone())))
            }
            _ => Err(Error::SYNTAX),
        },
    ),
    spec(
        "hello",
        -1,
        "noscript loading stale fast no_auth allow_busy",
        NOWHERE,
        "connection",
        "Choose the protocol version",
        hello,
    ),
    spec(
        "client",
        -2,
        "noscript loading stale",
        NOWHERE,
        "connection",
        "About connections",
        client,
    ),
    spec(
        "quit",
        -1,
        "noscript loading stale fast no_auth allow_busy",
        NOWHERE,
        "connection",
        "Close the connection",
        |_| Ok(Command::Connection(Connection::Quit)),
    ),
    spec(
        "reset",
        1,
        "noscript loading stale fast no_auth allow_busy",
        NOWHERE,
        "connection",
        "Reset the connection",
        |_| Ok(Command::Connection(Connection::Reset)),
    ),
];

fn hello(a: &[Bytes]) -> Result<Command, Error> {
    let mut hello = Hello::default();
    let mut rest = a;
    if let [version, more @ ..] = a {
        let version = crate::number::integer(version);
        let not_a_number = "ERR Protocol version is not an integer or out of range";
        hello.protocol = Some(match version.ok_or(Error::fixed(not_a_number))? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Error::fixed("NOPROTO unsupported protocol version")),
        });
        rest = more;
    }
    loop {
        rest = match rest {
            [] => return Ok(Command::Connection(Connection::Hello(hello))),
            [option, user, password, more @ ..] if is(option, "auth") => {
                hello.auth = Some((user.clone(), password.clone()));
                more
            }
            [option, name, more @ ..] if is(option, "setname") => {
                hello.name = Some(client_name(name)?);
                more
            }
            [option, ..] => {
                let shown = String::from_utf8_lossy(option).into_owned();
                return Err(Error::err(format_args!("Syntax error in HELLO option '{shown}'")));
            }
        }
    }
}

fn client_name(name: &Bytes) -> Result<Bytes, Error> {
    const NAME_BYTES_MAX: usize = 256;
    let plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if plain && name.len() <= NAME_BYTES_MAX {
        Ok(Bytes::copy_from_slice(name))
    } else {
        Err(Error::fixed("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

fn client(a: &[Bytes]) -> Result<Command, Error> {
    let [what, rest @ ..] = a else { return Err(Error::arity("client")) };
    let name = String::from_utf8_lossy(what).to_ascii_lowercase();
    let arity = || Error::arity(format_args!("client|{name}"));
    let command = match (name.as_str(), rest) {
        ("id", []) => ClientCommand::Id,
        ("getname", []) => ClientCommand::GetName,
        ("setname", [name]) => ClientCommand::SetName(client_name(name)?),
        ("setinfo", [option, value]) => {
            if !is(option, "lib-name") && !is(option, "lib-ver") {
                let shown = String::from_utf8_lossy(option).into_owned();
                return Err(Error::err(format_args!("Unrecognized option '{shown}'")));
            }
            let plain = value.iter().all(|byte| (b'!'..=b'~').contains(byte));
            if !plain {
                return Err(Error::err(format_args!(
                    "{} cannot contain spaces, newlines or special characters.",
                    String::from_utf8_lossy(option).to_ascii_lowercase()
                )));
            }
            ClientCommand::SetInfo
        }
        ("info", []) => ClientCommand::Info,
        ("list", _) => ClientCommand::List,
        ("no-evict" | "no-touch", [how]) if is(how, "on") || is(how, "off") => {
            ClientCommand::Nothing
        }
        ("no-evict" | "no-touch", [_]) => return Err(Error::SYNTAX),
        ("reply", [how]) if is(how, "on") => ClientCommand::Nothing,
        ("unpause", []) => ClientCommand::Nothing,
        ("id" | "getname" | "setname" | "setinfo" | "info", _) => return Err(arity()),
        _ => return Err(Error::unknown_subcommand("client", what)),
    };
    Ok(Command::Connection(Connection::Client(command)))
}
