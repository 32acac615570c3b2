//! The node's identity: written once, before it sends anything to anyone.

use crate::bytes::Reader;
use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::small_file::{FileKind, read_file, write_file};

const FILE: &str = "identity";

const KIND: FileKind = FileKind { magic: *b"HOLDFIDN", version: 1 };

/// The cluster and the node that a folder belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id.
    pub cluster: u128,
    /// The node's id within that cluster.
    pub node: u64,
}

impl Identity {
    /// Loads the folder's identity; `None` if it was never stored.
    pub fn load<D: Disk>(disk: &D) -> Result<Option<Self>, Fault> {
        let Some((_, content)) = read_file(disk, FILE, KIND)? else { return Ok(None) };
        let identity = Self::parse(&content);
        identity.map(Some).ok_or_else(|| Fault::damaged_file(FILE, "its content is invalid"))
    }

    /// Stores the identity, once and for all: another identity needs another folder.
    pub fn store<D: Disk>(self, disk: &D) -> Result<(), WriteError> {
        if let Some(there) = Self::load(disk)? {
            let text = format!("the folder belongs to node {} already", there.node);
            return Err(WriteError::Misuse(text));
        }
        let mut content = self.cluster.to_le_bytes().to_vec();
        content.extend_from_slice(&self.node.to_le_bytes());
        write_file(disk, FILE, KIND, &content)
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader(content);
        let identity = Self { cluster: reader.u128()?, node: reader.u64()? };
        reader.end().map(|()| identity)
    }
}
