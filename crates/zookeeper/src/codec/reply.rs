//! Replies to requests, and events of watches.

use super::jute::{Malformed, Reader, Writer};
use super::records::{read_acl, read_data, read_stat, write_acl, write_data, write_stat};
use super::request::{Request, op, xid};
use crate::Code;
use holdfast_core::{Acl, AuthId, NodeData, NodeOp, Stat};

/// The reply to a connect request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The session's timeout; 0 if there is no such session.
    pub timeout_ms: i32,
    /// The session; 0 if there is none.
    pub session: i64,
    /// The session's password, for reconnecting.
    pub password: [u8; 16],
    /// Whether this server is read-only, that is, without a majority. `None` if the client's
    /// connect request does not have the field.
    pub read_only: Option<bool>,
}

impl Connected {
    /// The reply if the session has ended or never existed, or the password is wrong.
    pub fn expired(read_only: Option<bool>) -> Self {
        Self { timeout_ms: 0, session: 0, password: [0; 16], read_only }
    }

    /// As a frame, with its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.int(0).int(self.timeout_ms).long(self.session).buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            writer.bool(read_only);
        }
        writer.frame()
    }

    /// Reads it from a frame.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        let (timeout_ms, session) = (reader.int()?, reader.long()?);
        let password = reader.buffer()?.unwrap_or_default();
        let password = password.try_into().map_err(|_| Malformed("a password has 16 bytes"))?;
        let read_only = if reader.is_empty() { None } else { Some(reader.bool()?) };
        Ok(Self { timeout_ms, session, password, read_only })
    }
}

/// A reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The client's number for the request.
    pub xid: i32,
    /// The zxid of the last change in the state that the reply shows. For one that shows no state,
    /// such as that to a ping, that of the reply before it.
    pub zxid: i64,
    /// The result.
    pub result: Result<ReplyBody, Code>,
}

/// The body of a reply to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    /// No body.
    Empty,
    /// The path of a znode that was created, or of a sync.
    Path(String),
    /// The path and the Stat of a znode that was created.
    PathStat(String, Stat),
    /// A Stat.
    Stat(Stat),
    /// Data and Stat.
    DataStat(Option<NodeData>, Stat),
    /// The access control list and the Stat.
    Acl(Vec<Acl>, Stat),
    /// Names, or paths.
    Texts(Vec<String>),
    /// The children's names, and the Stat of their parent.
    ChildrenStat(Vec<String>, Stat),
    /// The results of a `multi`.
    Multi(Vec<MultiResult>),
    /// The results of a `multiRead`.
    MultiRead(Vec<ReadResult>),
    /// Schemes and user names.
    WhoAmI(Vec<AuthId>),
    /// A count; 0 for a watch that was added.
    Number(i32),
}

/// The result of one change in a `multi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiResult {
    /// A znode was created.
    Created(String),
    /// A znode was created: the request's op code, the path and the Stat.
    CreatedStat(i32, String, Stat),
    /// A znode was deleted.
    Deleted,
    /// Data was set.
    Set(Stat),
    /// The version matched.
    Checked,
    /// The `multi` failed: this change's error code, or 0 if the change was valid.
    Error(i32),
}

/// The result of one read in a `multiRead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadResult {
    /// The children's names.
    Children(Vec<String>),
    /// Data and Stat.
    DataStat(Option<NodeData>, Stat),
    /// There is no such znode, it may not be read, or the reply would be too large.
    Error(Code),
}

fn write_multi<T>(writer: &mut Writer, results: &[T], mut one: impl FnMut(&mut Writer, &T)) {
    for result in results {
        one(writer, result);
    }
    writer.int(-1).bool(true).int(-1);
}

fn write_error(writer: &mut Writer, code: i32) {
    writer.int(op::ERROR).bool(false).int(code).int(code);
}

impl Reply {
    /// As a frame, with its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        let error = self.result.as_ref().err().map_or(0, |code| code.number());
        writer.int(self.xid).long(self.zxid).int(error);
        if let Ok(body) = &self.result {
            body.write(&mut writer);
        }
        writer.frame()
    }

    /// Reads it from a frame, as the answer to that request.
    pub fn decode(frame: &[u8], request: &Request) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let (xid, zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
        let result = match error {
            0 => Ok(ReplyBody::read(&mut reader, request)?),
            error => Err(Code::of(error).ok_or(Malformed("unknown error code"))?),
        };
        if !reader.is_empty() {
            return Err(Malformed("there are bytes after the reply"));
        }
        Ok(Self { xid, zxid, result })
    }
}

impl ReplyBody {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Empty => {}
            Self::Path(path) => {
                writer.text(path);
            }
            Self::PathStat(path, stat) => write_stat(writer.text(path), stat),
            Self::Stat(stat) => write_stat(writer, stat),
            Self::DataStat(data, stat) => {
                write_data(writer, data.as_ref());
                write_stat(writer, stat);
            }
            Self::Acl(acl, stat) => {
                write_acl(writer, acl);
                write_stat(writer, stat);
            }
            Self::Texts(texts) => {
                writer.texts(texts);
            }
            Self::ChildrenStat(names, stat) => write_stat(writer.texts(names), stat),
            Self::Multi(results) => write_multi(writer, results, |writer, result| match result {
                MultiResult::Created(path) => {
                    writer.int(op::CREATE).bool(false).int(0).text(path);
                }
                MultiResult::CreatedStat(op, path, stat) => {
                    write_stat(writer.int(*op).bool(false).int(0).text(path), stat);
                }
                MultiResult::Deleted => {
                    writer.int(op::DELETE).bool(false).int(0);
                }
                MultiResult::Set(stat) => {
                    write_stat(writer.int(op::SET_DATA).bool(false).int(0), stat);
                }
                MultiResult::Checked => {
                    writer.int(op::CHECK).bool(false).int(0);
                }
                MultiResult::Error(code) => write_error(writer, *code),
            }),
            Self::MultiRead(results) => {
                write_multi(writer, results, |writer, result| match result {
                    ReadResult::Children(names) => {
                        writer.int(op::GET_CHILDREN).bool(false).int(0).texts(names);
                    }
                    ReadResult::DataStat(data, stat) => {
                        writer.int(op::GET_DATA).bool(false).int(0);
                        write_data(writer, data.as_ref());
                        write_stat(writer, stat);
                    }
                    ReadResult::Error(code) => write_error(writer, code.number()),
                })
            }
            Self::WhoAmI(ids) => {
                writer.vector(ids, |writer, id| {
                    writer.text(&id.scheme).text(&id.id);
                });
            }
            Self::Number(number) => {
                writer.int(*number);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, request: &Request) -> Result<Self, Malformed> {
        Ok(match request {
            Request::Write { op: NodeOp::Create { .. }, stat: false } | Request::Sync { .. } => {
                Self::Path(reader.text()?)
            }
            Request::Write { op: NodeOp::Create { .. }, stat: true } => {
                Self::PathStat(reader.text()?, read_stat(reader)?)
            }
            Request::Write { op: NodeOp::SetData { .. } | NodeOp::SetAcl { .. }, .. }
            | Request::Exists { .. } => Self::Stat(read_stat(reader)?),
            Request::GetData { .. } => Self::DataStat(read_data(reader)?, read_stat(reader)?),
            Request::GetAcl { .. } => Self::Acl(read_acl(reader)?, read_stat(reader)?),
            Request::GetChildren { stat: false, .. } | Request::GetEphemerals { .. } => {
                Self::Texts(reader.texts()?)
            }
            Request::GetChildren { stat: true, .. } => {
                Self::ChildrenStat(reader.texts()?, read_stat(reader)?)
            }
            Request::Multi(_) => Self::Multi(read_multi(reader)?),
            Request::MultiRead(_) => Self::MultiRead(read_multi_read(reader)?),
            Request::WhoAmI => Self::WhoAmI(
                reader
                    .vector(|reader| Ok(AuthId { scheme: reader.text()?, id: reader.text()? }))?,
            ),
            Request::GetAllChildrenNumber { .. } | Request::AddWatch { .. } => {
                Self::Number(reader.int()?)
            }
            Request::Ping
            | Request::Write { .. }
            | Request::Auth(_)
            | Request::SetWatches(_)
            | Request::Watches { .. }
            | Request::CloseSession
            | Request::Unknown => Self::Empty,
        })
    }
}

fn read_multi(reader: &mut Reader<'_>) -> Result<Vec<MultiResult>, Malformed> {
    let mut results = Vec::new();
    loop {
        let (op, done, _error) = (reader.int()?, reader.bool()?, reader.int()?);
        if done {
            return Ok(results);
        }
        results.push(match op {
            op::CREATE => MultiResult::Created(reader.text()?),
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                MultiResult::CreatedStat(op, reader.text()?, read_stat(reader)?)
            }
            op::DELETE => MultiResult::Deleted,
            op::SET_DATA => MultiResult::Set(read_stat(reader)?),
            op::CHECK => MultiResult::Checked,
            op::ERROR => MultiResult::Error(reader.int()?),
            _ => return Err(Malformed("unknown result type")),
        });
    }
}

fn read_multi_read(reader: &mut Reader<'_>) -> Result<Vec<ReadResult>, Malformed> {
    let mut results = Vec::new();
    loop {
        let (op, done, _error) = (reader.int()?, reader.bool()?, reader.int()?);
        if done {
            return Ok(results);
        }
        results.push(match op {
            op::GET_CHILDREN => ReadResult::Children(reader.texts()?),
            op::GET_DATA => ReadResult::DataStat(read_data(reader)?, read_stat(reader)?),
            op::ERROR => {
                let code = Code::of(reader.int()?).ok_or(Malformed("unknown error code"))?;
                ReadResult::Error(code)
            }
            _ => return Err(Malformed("unknown result type")),
        });
    }
}

/// What happened to a watched znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchEventType {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchEvent {
    /// What happened.
    pub what: WatchEventType,
    /// The path of the znode.
    pub path: String,
}

impl WatchEvent {
    /// As a frame, with its length.
    pub fn encode(&self) -> Vec<u8> {
        /// ZooKeeper's state of a healthy connection.
        const SYNC_CONNECTED: i32 = 3;
        let mut writer = Writer::default();
        let what = match self.what {
            WatchEventType::Created => 1,
            WatchEventType::Deleted => 2,
            WatchEventType::DataChanged => 3,
            WatchEventType::ChildrenChanged => 4,
        };
        writer.int(xid::NOTIFICATION).long(-1).int(0);
        writer.int(what).int(SYNC_CONNECTED).text(&self.path);
        writer.frame()
    }

    /// Reads it from a frame.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let (_xid, _zxid, _error) = (reader.int()?, reader.long()?, reader.int()?);
        let what = match reader.int()? {
            1 => WatchEventType::Created,
            2 => WatchEventType::Deleted,
            3 => WatchEventType::DataChanged,
            4 => WatchEventType::ChildrenChanged,
            _ => return Err(Malformed("unknown event type")),
        };
        reader.int()?;
        Ok(Self { what, path: reader.text()? })
    }
}
