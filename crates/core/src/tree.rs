//! Znodes, and the command that changes them: what the ZooKeeper door reads and writes.
//!
//! A znode has a path, data, an access control list and a [`Stat`]. Versions, sequence numbers and
//! errors are ZooKeeper's own; the zxid of a change comes from the counter that tickets are drawn
//! from, so that the `czxid` of a znode that represents a ticket is its token.

use crate::command::SessionRef;
use crate::ids::Token;
use crate::text::NodeData;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// All permissions, as in `world:anyone:cdrwa`.
pub const PERMS_ALL: u32 = 31;

/// Permissions of an access control list, as bits.
pub mod perms {
    /// Read the data and list the children.
    pub const READ: u32 = 1;
    /// Set the data.
    pub const WRITE: u32 = 2;
    /// Create children.
    pub const CREATE: u32 = 4;
    /// Delete children.
    pub const DELETE: u32 = 8;
    /// Set the access control list.
    pub const ADMIN: u32 = 16;
}

/// An identity, for access control lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AuthId {
    /// `world`, `auth`, `digest` or `ip`.
    pub scheme: String,
    /// Its meaning depends on the scheme.
    pub id: String,
}

/// One entry of an access control list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// Bits of [`perms`].
    pub perms: u32,
    /// The identity that they apply to.
    pub id: AuthId,
}

impl Acl {
    /// Allows everything to everybody.
    pub fn open() -> Self {
        let id = AuthId { scheme: "world".to_owned(), id: "anyone".to_owned() };
        Self { perms: PERMS_ALL, id }
    }
}

/// A command to the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeCommand {
    /// Attaches another connection to a session: changes from earlier ones are refused from now on.
    Attach(SessionRef),
    /// Changes znodes, all or nothing.
    Write(TreeWrite),
}

/// Changes to znodes by one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeWrite {
    /// The session, which owns the ephemeral znodes created here.
    pub session: SessionRef,
    /// The attachment of the session that makes the changes: the answer to [`TreeCommand::Attach`],
    /// or 0 for the connection that opened the session.
    pub attachment: u64,
    /// The identities that the client has proved.
    pub ids: Vec<AuthId>,
    /// The changes, in order.
    pub ops: Vec<NodeOp>,
}

/// One change, or a condition for the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOp {
    /// Creates a znode.
    Create {
        /// Its path; for a sequential one, without the number.
        path: String,
        /// Its data; `None` is ZooKeeper's null.
        data: Option<NodeData>,
        /// Its access control list.
        acl: Vec<Acl>,
        /// How long it stays.
        kind: NodeKind,
        /// Whether the number of creates in its parent is appended to its name.
        sequential: bool,
    },
    /// Deletes a znode without children.
    Delete {
        /// Its path.
        path: String,
        /// The version that it must have; `None` for any.
        version: Option<i32>,
    },
    /// Replaces the data of a znode.
    SetData {
        /// Its path.
        path: String,
        /// The new data; `None` is ZooKeeper's null.
        data: Option<NodeData>,
        /// The version that it must have; `None` for any.
        version: Option<i32>,
    },
    /// Replaces the access control list of a znode.
    SetAcl {
        /// Its path.
        path: String,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list must have; `None` for any.
        version: Option<i32>,
    },
    /// Changes nothing, but requires that the znode has this version.
    Check {
        /// Its path.
        path: String,
        /// The version that it must have; `None` for any.
        version: Option<i32>,
    },
}

impl NodeOp {
    /// The path of the znode.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// The bytes of all texts in it.
    pub(crate) fn bytes(&self) -> usize {
        let rest = match self {
            Self::Create { data, acl, .. } => {
                data_bytes(data.as_ref()).saturating_add(acl_bytes(acl))
            }
            Self::SetData { data, .. } => data_bytes(data.as_ref()),
            Self::SetAcl { acl, .. } => acl_bytes(acl),
            Self::Delete { .. } | Self::Check { .. } => 0,
        };
        self.path().len().saturating_add(rest)
    }
}

pub(crate) fn data_bytes(data: Option<&NodeData>) -> usize {
    data.map_or(0, |data| data.as_bytes().len())
}

pub(crate) fn acl_bytes(acl: &[Acl]) -> usize {
    let bytes = acl.iter().map(|acl| acl.id.scheme.len().saturating_add(acl.id.id.len()));
    bytes.fold(0, usize::saturating_add)
}

/// How long a znode stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// Until it is deleted.
    Persistent,
    /// As long as the session that created it.
    Ephemeral,
    /// Until its last child has been gone for a minute.
    Container,
    /// Until it has had no children and no change for this long.
    Ttl {
        /// How long, in logical time.
        ms: u64,
    },
}

/// The properties of a znode, as in ZooKeeper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The zxid of its creation. For a ticket, its token.
    pub czxid: u64,
    /// The zxid of the last change to its data.
    pub mzxid: u64,
    /// The wall clock at its creation, in milliseconds.
    pub ctime_ms: u64,
    /// The wall clock at the last change to its data, in milliseconds.
    pub mtime_ms: u64,
    /// How many times its data was changed.
    pub version: i32,
    /// How many times a child was created or deleted.
    pub cversion: i32,
    /// How many times its access control list was changed.
    pub aversion: i32,
    /// The session of an ephemeral znode; 0 for all others.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The zxid of the last creation or deletion of a child.
    pub pzxid: u64,
}

/// The result of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeResult {
    /// The znode was created.
    Created {
        /// Its full path.
        path: Arc<str>,
        /// Its properties.
        stat: Stat,
    },
    /// It was deleted.
    Deleted,
    /// Its data or its access control list was set.
    Set(Stat),
    /// It has the required version.
    Checked,
}

/// What happened to a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvent {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
}

/// Why znodes were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRefusal {
    /// There is no such znode, or no parent for it.
    NoNode,
    /// The znode already exists.
    NodeExists,
    /// It has a different version.
    BadVersion,
    /// It has children.
    NotEmpty,
    /// Its parent is ephemeral, or a place in the line of a lock.
    ParentIsEphemeral,
    /// The access control list does not allow it.
    NoAuth,
    /// The access control list is empty, or has an unknown scheme or an invalid id.
    InvalidAcl,
    /// The path is invalid, or belongs to ZooKeeper itself.
    BadPath(BadPath),
    /// A TTL of zero, or longer than ZooKeeper supports.
    BadTtl,
    /// More changes than one command may make.
    TooManyOps,
    /// More bytes than one command may have.
    TooLarge,
    /// Another recipe's lock is in use in the directory, which would not exclude this one.
    OtherRecipe {
        /// The recipe in use there.
        recipe: Recipe,
    },
    /// The znode represents a ticket from another door.
    OtherDoor(Token),
    /// The directory's counter is full, so that a lock in it would not keep its order.
    NumbersUsedUp,
    /// The lock refused the ticket that the znode would represent.
    Lock(Box<crate::Refusal>),
    /// More tickets wait for the lock than can be shown in the directory in one step.
    LineTooLong,
    /// The session has reached its limit of ephemeral znodes.
    TooManyEphemerals,
    /// The limit of znodes, or of their memory, is reached.
    Full,
    /// A place in the line of a lock can't have a TTL.
    TicketWithTtl,
}

/// How a client library implements a lock with sequential znodes. Its marker precedes the number in
/// the name of each: a znode with a marker is a ticket of the lock that its directory represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipe {
    /// kazoo's locks, and its read and write locks: `...__lock__`, `...__rlock__`.
    Kazoo,
    /// Curator's `InterProcessMutex`, go-zk and others: `lock-`, `_c_...-lock-`.
    Mutex,
    /// Curator's `InterProcessReadWriteLock`: `...__READ__`, `...__WRIT__`.
    ReadWrite,
    /// Curator's `LeaderLatch`: `latch-`, `_c_...-latch-`.
    Latch,
    /// Locks whose znodes are named just `n-`.
    Plain,
}

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BadPath {
    /// It is empty.
    Empty,
    /// It does not start with `/`.
    Relative,
    /// It ends in `/`.
    TrailingSlash,
    /// It contains `//`.
    EmptyName,
    /// A name in it is `.` or `..`.
    Dots,
    /// It contains a character that is not allowed.
    Character(char),
    /// It is longer than [`PATH_BYTES_MAX`].
    TooLong,
    /// It belongs to ZooKeeper itself.
    Reserved,
    /// Its last name is reserved for tickets from other doors.
    Ticket,
    /// It is a place in the line of a lock, whose name would be too long.
    LockTooLong,
}

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Relative => f.write_str("it does not begin with /"),
            Self::TrailingSlash => f.write_str("it ends in /"),
            Self::EmptyName => f.write_str("it has an empty name in it"),
            Self::Dots => f.write_str("relative names are not allowed"),
            Self::Character(char) => write!(f, "the character {char:?} is not allowed"),
            Self::TooLong => write!(f, "it is longer than {PATH_BYTES_MAX} bytes"),
            Self::Reserved => f.write_str("it is reserved by ZooKeeper"),
            Self::Ticket => {
                f.write_str("names that begin with holdfast-ticket- are reserved for Holdfast")
            }
            Self::LockTooLong => write!(
                f,
                "its directory would be a lock, and is longer than {} bytes",
                crate::LockName::BYTES_MAX + 1
            ),
        }
    }
}

/// The longest path in bytes. ZooKeeper has no limit of its own; this is what file systems allow.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Checks a path by the rules of ZooKeeper's `PathUtils`.
pub fn validate_path(path: &str) -> Result<(), BadPath> {
    if path.len() > PATH_BYTES_MAX {
        return Err(BadPath::TooLong);
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err(if path.is_empty() { BadPath::Empty } else { BadPath::Relative });
    };
    if rest.is_empty() {
        return Ok(());
    }
    if rest.ends_with('/') {
        return Err(BadPath::TrailingSlash);
    }
    // From left to right, as in ZooKeeper: the first violation is reported.
    for name in rest.split('/') {
        if name.is_empty() {
            return Err(BadPath::EmptyName);
        }
        if name == "." || name == ".." {
            return Err(BadPath::Dots);
        }
        if let Some(bad) = name.chars().find(|char| !is_allowed(*char)) {
            return Err(BadPath::Character(bad));
        }
    }
    Ok(())
}

/// ZooKeeper looks at UTF-16: characters that take two units there are refused.
fn is_allowed(char: char) -> bool {
    !matches!(
        char,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{10ffff}'
    )
}

/// The path of the parent; `None` for the root.
pub fn parent_of(path: &str) -> Option<&str> {
    let (parent, name) = path.rsplit_once('/')?;
    if name.is_empty() {
        return None;
    }
    Some(if parent.is_empty() { "/" } else { parent })
}

/// The last name of a path.
pub fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The longest TTL that ZooKeeper supports.
pub const TTL_MS_MAX: u64 = (1 << 40) - 1;

impl Recipe {
    /// The marker in the names of its contenders.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Kazoo => "__lock__",
            Self::Mutex => "lock-",
            Self::ReadWrite => "__WRIT__",
            Self::Latch => "latch-",
            Self::Plain => "n-",
        }
    }
}
