//! Znodes, and the command that changes them: what ZooKeeper's door reads and writes.
//!
//! A znode has a path, data, an access control list and a [`Stat`]. Versions, sequence numbers and
//! errors are ZooKeeper's own; the zxid of a change is a number from the counter that tickets are
//! drawn from, so that the `czxid` of a znode that stands for a ticket is its token.

use crate::command::SessionRef;
use crate::ids::Token;
use crate::text::NodeData;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Everything that may be done with a znode: the permissions of `world:anyone:cdrwa`.
pub const PERMS_ALL: u32 = 31;

/// Permissions of an access control list, as bits.
pub mod perms {
    /// To read the data and to list the children.
    pub const READ: u32 = 1;
    /// To set the data.
    pub const WRITE: u32 = 2;
    /// To create children.
    pub const CREATE: u32 = 4;
    /// To delete children.
    pub const DELETE: u32 = 8;
    /// To set the access control list.
    pub const ADMIN: u32 = 16;
}

/// Who somebody is, as far as access control lists go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AuthId {
    /// `world`, `auth`, `digest` or `ip`.
    pub scheme: String,
    /// What it means depends on the scheme.
    pub id: String,
}

/// One entry of an access control list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// Bits of [`perms`].
    pub perms: u32,
    /// Who has them.
    pub id: AuthId,
}

impl Acl {
    /// Everybody may do everything.
    pub fn open() -> Self {
        let id = AuthId { scheme: "world".to_owned(), id: "anyone".to_owned() };
        Self { perms: PERMS_ALL, id }
    }
}

/// What is asked of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeCommand {
    /// Another connection goes on with a session: what came through earlier ones is refused from now
    /// on.
    Attach(SessionRef),
    /// Changes znodes: all that is asked for, or nothing.
    Write(TreeWrite),
}

/// Changes to znodes, by one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeWrite {
    /// Whose znodes ephemeral ones will be.
    pub session: SessionRef,
    /// Which attachment of the session asks: what [`TreeCommand::Attach`] answered, or 0 on the
    /// connection that opened it.
    pub attachment: u64,
    /// Who the client has shown to be.
    pub ids: Vec<AuthId>,
    /// What to do, in order.
    pub ops: Vec<NodeOp>,
}

/// One change, or a condition for the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOp {
    /// Creates a znode.
    Create {
        /// Its path; of a sequential one, without the number.
        path: String,
        /// Its data; none is ZooKeeper's null.
        data: Option<NodeData>,
        /// Who may do what with it.
        acl: Vec<Acl>,
        /// How long it stays.
        kind: NodeKind,
        /// Whether the number of creates in its parent is added to its name.
        sequential: bool,
    },
    /// Deletes a znode without children.
    Delete {
        /// Which.
        path: String,
        /// The version that it must have; none for any.
        version: Option<i32>,
    },
    /// Replaces the data of a znode.
    SetData {
        /// Which.
        path: String,
        /// The new data.
        data: Option<NodeData>,
        /// The version that it must have; none for any.
        version: Option<i32>,
    },
    /// Replaces the access control list of a znode.
    SetAcl {
        /// Which.
        path: String,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list must have; none for any.
        version: Option<i32>,
    },
    /// Does nothing if the znode has that version.
    Check {
        /// Which.
        path: String,
        /// The version that it must have; none for any.
        version: Option<i32>,
    },
}

impl NodeOp {
    /// The path that it is about.
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
    /// Until its last child has been gone for a while.
    Container,
    /// Until it has had no child and no change for so long.
    Ttl {
        /// How long, in logical time.
        ms: u64,
    },
}

/// What ZooKeeper tells about a znode beside its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The zxid of its creation. Of a ticket, its token.
    pub czxid: u64,
    /// The zxid of the last change of its data.
    pub mzxid: u64,
    /// The wall clock at its creation, in milliseconds.
    pub ctime_ms: u64,
    /// The wall clock at the last change of its data.
    pub mtime_ms: u64,
    /// How often its data was changed.
    pub version: i32,
    /// How often its children came or went.
    pub cversion: i32,
    /// How often its access control list was changed.
    pub aversion: i32,
    /// The session of an ephemeral one; 0 for all others.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The zxid of the last coming or going of a child.
    pub pzxid: u64,
}

/// What came of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeResult {
    /// The znode is there.
    Created {
        /// Its whole path.
        path: Arc<str>,
        /// How it is now.
        stat: Stat,
    },
    /// It is gone.
    Deleted,
    /// Its data or its access control list is set.
    Set(Stat),
    /// It has that version.
    Checked,
}

/// What happened to a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvent {
    /// It came.
    Created,
    /// It went.
    Deleted,
    /// Its data was set.
    DataChanged,
}

/// Why znodes were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRefusal {
    /// There is no such znode, or no parent for it.
    NoNode,
    /// There is one already.
    NodeExists,
    /// It has another version.
    BadVersion,
    /// It has children.
    NotEmpty,
    /// Its parent is ephemeral.
    ParentIsEphemeral,
    /// The access control list does not allow it.
    NoAuth,
    /// The access control list names nobody, or in a way that is not known.
    InvalidAcl,
    /// The path is not one, or belongs to ZooKeeper itself.
    BadPath(BadPath),
    /// A time to live of zero, or beyond what ZooKeeper has room for.
    BadTtl,
    /// More changes than one command may make.
    TooManyOps,
    /// More bytes than one command may have.
    TooLarge,
    /// Another recipe's lock is in use in the directory, and would not exclude this one.
    OtherRecipe {
        /// The one in use there.
        recipe: Recipe,
    },
    /// The znode stands for a ticket that was drawn through another door.
    OtherDoor(Token),
    /// The directory has counted as far as it can, so that a lock in it would not keep its order.
    NumbersUsedUp,
    /// The lock that the znode would be a ticket of can't be waited for.
    Lock(Box<crate::Refusal>),
    /// More tickets wait for the lock than can be shown in the directory in one step.
    LineTooLong,
    /// The session has as many ephemeral znodes as it may.
    TooManyEphemerals,
    /// There are as many znodes as there may be, or they take as much memory.
    Full,
}

/// How a client library makes a lock of sequential znodes. Its marker stands before the number in
/// the name of each: a znode with one is a ticket of the lock that its directory is.
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
    /// Locks that call their znodes just `n-`.
    Plain,
}

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BadPath {
    /// It is empty.
    Empty,
    /// It does not begin with `/`.
    Relative,
    /// It ends in `/`.
    TrailingSlash,
    /// It has `//` in it.
    EmptyName,
    /// It has `.` or `..` for a name.
    Dots,
    /// A character is not allowed.
    Character(char),
    /// It is longer than paths may be.
    TooLong,
    /// ZooKeeper itself keeps it.
    Reserved,
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
        }
    }
}

/// Bytes of a path. ZooKeeper has no bound of its own; this is as much as a file system allows.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Whether a path is one that a znode may have, by the rules of ZooKeeper's `PathUtils`.
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
    // As ZooKeeper does, from left to right: the first thing that is wrong is told.
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

/// ZooKeeper looks at UTF-16: whatever takes two units there is refused.
fn is_allowed(char: char) -> bool {
    !matches!(
        char,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{10ffff}'
    )
}

/// The path of the znode above; none for the root.
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

/// The longest time to live that ZooKeeper has room for.
pub const TTL_MS_MAX: u64 = (1 << 40) - 1;

impl Recipe {
    /// What stands in the names of its contenders.
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
