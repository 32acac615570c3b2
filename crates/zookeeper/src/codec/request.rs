//! Requests of clients.

use super::jute::{Malformed, Reader, Writer};
use super::records::{read_acl, read_data, write_acl, write_data};
use holdfast_core::{NodeKind, NodeOp};

/// Op codes.
#[allow(missing_docs, reason = "the names say everything")]
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const CLOSE_SESSION: i32 = -11;
    pub const ERROR: i32 = -1;
}

/// Special xids, for frames outside the order of requests and replies.
#[allow(missing_docs, reason = "the names say everything")]
pub mod xid {
    pub const NOTIFICATION: i32 = -1;
    pub const PING: i32 = -2;
    pub const AUTH: i32 = -4;
    pub const SET_WATCHES: i32 = -8;
}

/// A connect request, which is a client's first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Always 0.
    pub protocol_version: i32,
    /// The last zxid that the client has seen. It must not be shown an older state.
    pub last_zxid: i64,
    /// The session timeout that it asks for.
    pub timeout_ms: i32,
    /// The session to attach; 0 for a new one.
    pub session: i64,
    /// The password of that session.
    pub password: Vec<u8>,
    /// Whether the client accepts a read-only server. Older clients don't send this.
    pub read_only: Option<bool>,
}

impl Connect {
    /// Reads it from a frame.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        Ok(Self {
            protocol_version: reader.int()?,
            last_zxid: reader.long()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
            read_only: if reader.is_empty() { None } else { Some(reader.bool()?) },
        })
    }

    /// As a frame, with its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.int(self.protocol_version).long(self.last_zxid).int(self.timeout_ms);
        writer.long(self.session).buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            writer.bool(read_only);
        }
        writer.frame()
    }
}

/// The header of every later frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number for the request, which the reply repeats.
    pub xid: i32,
    /// The op code: see [`op`].
    pub op: i32,
}

impl RequestHeader {
    /// Reads it from a frame. [`Request::decode`] reads the rest.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { xid: reader.int()?, op: reader.int()? })
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A heartbeat.
    Ping,
    /// One change.
    Write {
        /// The change.
        op: NodeOp,
        /// Whether the reply to a create includes the Stat: it does for `create2`,
        /// `createContainer` and `createTTL`, and does not for `create`.
        stat: bool,
    },
    /// Several changes, all or nothing; each as in `Write`.
    Multi(Vec<(NodeOp, bool)>),
    /// Several reads.
    MultiRead(Vec<ReadOp>),
    /// Whether a znode exists, and its Stat.
    Exists {
        /// The path of the znode.
        path: String,
        /// Whether to watch for changes.
        watch: bool,
    },
    /// The data and the Stat of a znode.
    GetData {
        /// The path of the znode.
        path: String,
        /// Whether to watch for changes.
        watch: bool,
    },
    /// The names of a znode's children.
    GetChildren {
        /// The path of the znode.
        path: String,
        /// Whether to watch for changes.
        watch: bool,
        /// Whether to return the znode's Stat too.
        stat: bool,
    },
    /// The access control list of a znode.
    GetAcl {
        /// The path of the znode.
        path: String,
    },
    /// Makes the state of this node current for the reads that follow.
    Sync {
        /// Returned in the reply.
        path: String,
    },
    /// Authenticates the client.
    Auth(AuthPacket),
    /// Restores watches that the client had on another connection.
    SetWatches(SetWatches),
    /// Adds a persistent watch.
    AddWatch {
        /// The watched znode.
        path: String,
        /// Whether the watch includes all znodes below it.
        mode: AddWatchMode,
    },
    /// Removes watches, or only checks whether there are any.
    Watches {
        /// The watched znode.
        path: String,
        /// The kind of watches.
        kind: WatcherType,
        /// Whether to remove them.
        remove: bool,
    },
    /// The identities that the client has proven.
    WhoAmI,
    /// The paths of the session's ephemeral znodes.
    GetEphemerals {
        /// Only paths that start with this.
        prefix: String,
    },
    /// How many znodes are below a znode, at any depth.
    GetAllChildrenNumber {
        /// The path of the znode.
        path: String,
    },
    /// Closes the session.
    CloseSession,
    /// A request that is not supported.
    Unknown,
}

/// One read in a `multiRead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOp {
    /// The names of a znode's children.
    GetChildren {
        /// The path of the znode.
        path: String,
    },
    /// The data and the Stat of a znode.
    GetData {
        /// The path of the znode.
        path: String,
    },
}

/// A client's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthPacket {
    /// `digest`, for instance.
    pub scheme: String,
    /// `user:password`, for instance.
    pub auth: Vec<u8>,
}

/// The watches that a client had on another connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetWatches {
    /// The last zxid that it has seen.
    pub zxid: i64,
    /// Znodes with watches on their data.
    pub data: Vec<String>,
    /// Paths with watches, at which there was no znode.
    pub exist: Vec<String>,
    /// Znodes with watches on their children.
    pub child: Vec<String>,
    /// Znodes with persistent watches, and with recursive ones. `None` in the older form of the
    /// request, `setWatches`.
    pub persistent: Option<(Vec<String>, Vec<String>)>,
}

/// The scope of a persistent watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddWatchMode {
    /// One znode, and the creation and deletion of its children.
    Persistent,
    /// The znode and everything below it.
    PersistentRecursive,
}

/// A kind of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatcherType {
    /// On children.
    Children,
    /// On data.
    Data,
    /// Any kind.
    Any,
}

/// The version that a change requires; `None` for any, which ZooKeeper writes as -1.
fn version(number: i32) -> Option<i32> {
    (number != -1).then_some(number)
}

fn read_path_and_watch(reader: &mut Reader<'_>) -> Result<(String, bool), Malformed> {
    Ok((reader.text()?, reader.bool()?))
}

fn read_create(op: i32, reader: &mut Reader<'_>) -> Result<NodeOp, Malformed> {
    let (path, data, acl) = (reader.text()?, read_data(reader)?, read_acl(reader)?);
    let flags = reader.int()?;
    let ttl = if op == op::CREATE_TTL { reader.long()? } else { 0 };
    // A negative TTL becomes 0, which is refused as in ZooKeeper.
    let ttl = || NodeKind::Ttl { ms: u64::try_from(ttl).unwrap_or(0) };
    let (kind, sequential) = match flags {
        0 => (NodeKind::Persistent, false),
        1 => (NodeKind::Ephemeral, false),
        2 => (NodeKind::Persistent, true),
        3 => (NodeKind::Ephemeral, true),
        4 => (NodeKind::Container, false),
        5 => (ttl(), false),
        6 => (ttl(), true),
        _ => return Err(Malformed::NO_SUCH_KIND),
    };
    let kind = match (op, &kind) {
        (op::CREATE_CONTAINER, _) => NodeKind::Container,
        (op::CREATE_TTL, NodeKind::Ttl { .. }) => kind,
        (op::CREATE_TTL, _) => NodeKind::Ttl { ms: 0 },
        _ => kind,
    };
    Ok(NodeOp::Create { path, data, acl, kind, sequential })
}

fn read_op(op: i32, reader: &mut Reader<'_>) -> Result<NodeOp, Malformed> {
    Ok(match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            read_create(op, reader)?
        }
        op::DELETE => NodeOp::Delete { path: reader.text()?, version: version(reader.int()?) },
        op::SET_DATA => NodeOp::SetData {
            path: reader.text()?,
            data: read_data(reader)?,
            version: version(reader.int()?),
        },
        op::SET_ACL => NodeOp::SetAcl {
            path: reader.text()?,
            acl: read_acl(reader)?,
            version: version(reader.int()?),
        },
        op::CHECK => NodeOp::Check { path: reader.text()?, version: version(reader.int()?) },
        _ => return Err(Malformed("unknown change")),
    })
}

fn replies_with_stat(op: i32) -> bool {
    matches!(op, op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL)
}

/// Reads the operations of a multi up to the end marker.
fn read_multi<T>(
    reader: &mut Reader<'_>,
    mut one: impl FnMut(i32, &mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut ops = Vec::new();
    loop {
        let (op, done, _error) = (reader.int()?, reader.bool()?, reader.int()?);
        if done {
            return Ok(ops);
        }
        ops.push(one(op, reader)?);
    }
}

impl Request {
    /// Reads the rest of a frame. An error is sent to the client, and its connection stays open.
    pub fn decode(op: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            op::PING => Self::Ping,
            op::CREATE
            | op::DELETE
            | op::SET_DATA
            | op::SET_ACL
            | op::CHECK
            | op::CREATE2
            | op::CREATE_CONTAINER
            | op::CREATE_TTL => {
                Self::Write { op: read_op(op, reader)?, stat: replies_with_stat(op) }
            }
            op::MULTI => Self::Multi(read_multi(reader, |op, reader| {
                if op == op::SET_ACL {
                    return Err(Malformed("a multi can't set an access control list"));
                }
                Ok((read_op(op, reader)?, replies_with_stat(op)))
            })?),
            op::MULTI_READ => Self::MultiRead(read_multi(reader, |op, reader| {
                let (path, _) = read_path_and_watch(reader)?;
                match op {
                    op::GET_CHILDREN => Ok(ReadOp::GetChildren { path }),
                    op::GET_DATA => Ok(ReadOp::GetData { path }),
                    _ => Err(Malformed("unknown read")),
                }
            })?),
            op::EXISTS => {
                let (path, watch) = read_path_and_watch(reader)?;
                Self::Exists { path, watch }
            }
            op::GET_DATA => {
                let (path, watch) = read_path_and_watch(reader)?;
                Self::GetData { path, watch }
            }
            op::GET_CHILDREN | op::GET_CHILDREN2 => {
                let (path, watch) = read_path_and_watch(reader)?;
                Self::GetChildren { path, watch, stat: op == op::GET_CHILDREN2 }
            }
            op::GET_ACL => Self::GetAcl { path: reader.text()? },
            op::SYNC => Self::Sync { path: reader.text()? },
            op::AUTH => {
                reader.int()?;
                let scheme = reader.text()?;
                let auth = reader.buffer()?.unwrap_or_default().to_vec();
                Self::Auth(AuthPacket { scheme, auth })
            }
            op::SET_WATCHES | op::SET_WATCHES2 => {
                let (zxid, data) = (reader.long()?, reader.texts()?);
                let (exist, child) = (reader.texts()?, reader.texts()?);
                let persistent = if op == op::SET_WATCHES2 {
                    Some((reader.texts()?, reader.texts()?))
                } else {
                    None
                };
                Self::SetWatches(SetWatches { zxid, data, exist, child, persistent })
            }
            op::ADD_WATCH => {
                let path = reader.text()?;
                let mode = match reader.int()? {
                    0 => AddWatchMode::Persistent,
                    1 => AddWatchMode::PersistentRecursive,
                    _ => return Err(Malformed("unknown kind of watch")),
                };
                Self::AddWatch { path, mode }
            }
            op::CHECK_WATCHES | op::REMOVE_WATCHES => {
                let path = reader.text()?;
                let kind = match reader.int()? {
                    1 => WatcherType::Children,
                    2 => WatcherType::Data,
                    3 => WatcherType::Any,
                    _ => return Err(Malformed("unknown kind of watch")),
                };
                Self::Watches { path, kind, remove: op == op::REMOVE_WATCHES }
            }
            op::WHO_AM_I => Self::WhoAmI,
            op::GET_EPHEMERALS => Self::GetEphemerals { prefix: reader.text()? },
            op::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path: reader.text()? },
            op::CLOSE_SESSION => Self::CloseSession,
            _ => Self::Unknown,
        })
    }

    /// Its op code: see [`op`].
    pub fn op(&self) -> i32 {
        match self {
            Self::Ping => op::PING,
            Self::Write { op, stat } => op_of(op, *stat),
            Self::Multi(_) => op::MULTI,
            Self::MultiRead(_) => op::MULTI_READ,
            Self::Exists { .. } => op::EXISTS,
            Self::GetData { .. } => op::GET_DATA,
            Self::GetChildren { stat: false, .. } => op::GET_CHILDREN,
            Self::GetChildren { stat: true, .. } => op::GET_CHILDREN2,
            Self::GetAcl { .. } => op::GET_ACL,
            Self::Sync { .. } => op::SYNC,
            Self::Auth(_) => op::AUTH,
            Self::SetWatches(SetWatches { persistent: None, .. }) => op::SET_WATCHES,
            Self::SetWatches(_) => op::SET_WATCHES2,
            Self::AddWatch { .. } => op::ADD_WATCH,
            Self::Watches { remove: false, .. } => op::CHECK_WATCHES,
            Self::Watches { remove: true, .. } => op::REMOVE_WATCHES,
            Self::WhoAmI => op::WHO_AM_I,
            Self::GetEphemerals { .. } => op::GET_EPHEMERALS,
            Self::GetAllChildrenNumber { .. } => op::GET_ALL_CHILDREN_NUMBER,
            Self::CloseSession => op::CLOSE_SESSION,
            Self::Unknown => op::ERROR,
        }
    }

    /// As a frame, with its length.
    pub fn encode(&self, xid: i32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.int(xid).int(self.op());
        match self {
            Self::Ping | Self::WhoAmI | Self::CloseSession | Self::Unknown => {}
            Self::Write { op, .. } => write_op(&mut writer, op),
            Self::Multi(ops) => {
                for (op, stat) in ops {
                    writer.int(op_of(op, *stat)).bool(false).int(-1);
                    write_op(&mut writer, op);
                }
                writer.int(-1).bool(true).int(-1);
            }
            Self::MultiRead(ops) => {
                for op in ops {
                    let (op, path) = match op {
                        ReadOp::GetChildren { path } => (op::GET_CHILDREN, path),
                        ReadOp::GetData { path } => (op::GET_DATA, path),
                    };
                    writer.int(op).bool(false).int(-1).text(path).bool(false);
                }
                writer.int(-1).bool(true).int(-1);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => {
                writer.text(path).bool(*watch);
            }
            Self::GetAcl { path } | Self::Sync { path } | Self::GetAllChildrenNumber { path } => {
                writer.text(path);
            }
            Self::Auth(AuthPacket { scheme, auth }) => {
                writer.int(0).text(scheme).buffer(Some(auth));
            }
            Self::SetWatches(SetWatches { zxid, data, exist, child, persistent }) => {
                writer.long(*zxid).texts(data).texts(exist).texts(child);
                if let Some((persistent, recursive)) = persistent {
                    writer.texts(persistent).texts(recursive);
                }
            }
            Self::AddWatch { path, mode } => {
                writer.text(path).int(i32::from(*mode == AddWatchMode::PersistentRecursive));
            }
            Self::Watches { path, kind, .. } => {
                let kind = match kind {
                    WatcherType::Children => 1,
                    WatcherType::Data => 2,
                    WatcherType::Any => 3,
                };
                writer.text(path).int(kind);
            }
            Self::GetEphemerals { prefix } => {
                writer.text(prefix);
            }
        }
        writer.frame()
    }
}

fn op_of(op: &NodeOp, stat: bool) -> i32 {
    match op {
        NodeOp::Create { kind: NodeKind::Container, .. } => op::CREATE_CONTAINER,
        NodeOp::Create { kind: NodeKind::Ttl { .. }, .. } => op::CREATE_TTL,
        NodeOp::Create { .. } if stat => op::CREATE2,
        NodeOp::Create { .. } => op::CREATE,
        NodeOp::Delete { .. } => op::DELETE,
        NodeOp::SetData { .. } => op::SET_DATA,
        NodeOp::SetAcl { .. } => op::SET_ACL,
        NodeOp::Check { .. } => op::CHECK,
    }
}

fn write_op(writer: &mut Writer, op: &NodeOp) {
    let any = |version: &Option<i32>| version.unwrap_or(-1);
    match op {
        NodeOp::Create { path, data, acl, kind, sequential } => {
            writer.text(path);
            write_data(writer, data.as_ref());
            write_acl(writer, acl);
            let flags = match kind {
                NodeKind::Persistent => 0,
                NodeKind::Ephemeral => 1,
                NodeKind::Container => 4,
                NodeKind::Ttl { .. } => 5,
            };
            let more = match kind {
                NodeKind::Persistent | NodeKind::Ephemeral => 2,
                NodeKind::Container => 0,
                NodeKind::Ttl { .. } => 1,
            };
            writer.int(if *sequential { flags + more } else { flags });
            if let NodeKind::Ttl { ms } = kind {
                writer.unsigned(*ms);
            }
        }
        NodeOp::Delete { path, version } | NodeOp::Check { path, version } => {
            writer.text(path).int(any(version));
        }
        NodeOp::SetData { path, data, version } => {
            writer.text(path);
            write_data(writer, data.as_ref());
            writer.int(any(version));
        }
        NodeOp::SetAcl { path, acl, version } => {
            writer.text(path);
            write_acl(writer, acl);
            writer.int(any(version));
        }
    }
}
