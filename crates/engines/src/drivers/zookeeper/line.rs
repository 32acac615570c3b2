//! A place in line: an ephemeral sequential node in the lock's folder.

use super::session::{ErrorClass, Session, meaning, retry};
use std::sync::Arc;
use zookeeper_client::{CreateMode, Error as ZkError};

/// What Curator's mutex puts before the number.
const MARKER: &str = "lock-";

/// The length of a sequence number.
const DIGITS: usize = 10;

/// The sequence number of a place in line; `None` if this child is something else.
pub(super) fn number(child: &str) -> Option<&str> {
    let (rest, digits) = child.split_at_checked(child.len().checked_sub(DIGITS)?)?;
    let is_place = rest.ends_with(MARKER) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_place.then_some(digits)
}

/// The places in a line, in order. Other children are locks whose names are below this one.
pub(super) fn sorted(mut children: Vec<String>) -> Vec<String> {
    children.retain(|child| number(child).is_some());
    children.sort_by(|a, b| number(a).cmp(&number(b)));
    children
}

/// A place in line.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) session: Arc<Session>,
    pub(super) folder: String,
    /// The node's name without its number: unique to the acquisition.
    prefix: String,
    pub(super) node: String,
    pub(super) czxid: i64,
    /// Whether the reply to a create was lost. Then a second node may appear, if a server reads the
    /// request late from the broken connection.
    pub(super) repeated: bool,
}

/// Who is ahead of a place.
pub(super) enum Ahead {
    /// Nobody: the lock is held.
    Nobody,
    Somebody {
        /// The node directly ahead.
        predecessor: String,
        /// The node that holds the lock.
        holder: String,
    },
    /// Our own node is gone.
    Gone,
}

impl Place {
    /// Gets in line. Finds out by itself whether a request whose reply was lost had an effect, so
    /// it takes as long as the connection is down, up to the end of the session.
    pub(super) async fn take(
        session: Arc<Session>,
        folder: String,
        nonce: String,
        label: String,
    ) -> Result<Self, ZkError> {
        let prefix = format!("_c_{}-{MARKER}", uuid(&nonce));
        let path = format!("{folder}/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(session.acls);
        let mut repeated = false;
        loop {
            let created = session.client.create(&path, label.as_bytes(), &options).await;
            let (node, czxid) = match created {
                Ok((stat, number)) => (format!("{prefix}{number}"), stat.czxid),
                Err(ZkError::NoNode) => {
                    make_folder(&session, &folder).await?;
                    continue;
                }
                Err(error) if meaning(&error) != ErrorClass::Unknown => return Err(error),
                Err(_) => {
                    repeated = true;
                    match find(&session, &folder, &prefix).await? {
                        Some(found) => found,
                        None => continue,
                    }
                }
            };
            return Ok(Self { session, folder, prefix, node, czxid, repeated });
        }
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.folder, self.node)
    }

    /// Finds out who is ahead. With `sync`, the result is at least as new as this request, and
    /// proves that the leader knows the session.
    pub(super) async fn front(&self, sync: bool) -> Result<Ahead, ZkError> {
        let client = &self.session.client;
        let children = retry(|| {
            // Both are sent before the first is awaited: one round trip.
            let synced = sync.then(|| client.sync(&self.folder));
            let children = client.list_children(&self.folder);
            async move {
                if let Some(synced) = synced {
                    synced.await?;
                }
                children.await
            }
        });
        let children = match children.await {
            Err(ZkError::NoNode) => return Ok(Ahead::Gone),
            children => sorted(children?),
        };
        let Some(own) = children.iter().position(|child| *child == self.node) else {
            return Ok(Ahead::Gone);
        };
        match children.get(..own).unwrap_or_default() {
            [] => Ok(Ahead::Nobody),
            [.., predecessor] if predecessor.starts_with(&self.prefix) => {
                // This one was created late: see `repeated`.
                self.delete(predecessor).await?;
                Box::pin(self.front(sync)).await
            }
            [holder, ..] => Ok(Ahead::Somebody {
                predecessor: children[own - 1].clone(),
                holder: holder.clone(),
            }),
        }
    }

    async fn delete(&self, node: &str) -> Result<(), ZkError> {
        let path = format!("{}/{node}", self.folder);
        match retry(|| self.session.client.delete(&path, None)).await {
            Err(ZkError::NoNode) => Ok(()),
            deleted => deleted,
        }
    }

    /// Leaves the line. Returns only when the node is gone or the session is over.
    pub(super) async fn leave(&self) {
        // An error means that the session is over, or that someone revoked the permission: either
        // way there is nothing left to do.
        let _ = self.delete(&self.node).await;
        if self.repeated {
            let _ = self.sweep().await;
        }
    }

    /// Deletes other nodes that a retried create has made.
    async fn sweep(&self) -> Result<(), ZkError> {
        while let Some((node, _)) = find(&self.session, &self.folder, &self.prefix).await? {
            self.delete(&node).await?;
        }
        Ok(())
    }
}

/// The node made by a create whose reply was lost, if there is one.
async fn find(
    session: &Session,
    folder: &str,
    prefix: &str,
) -> Result<Option<(String, i64)>, ZkError> {
    let client = &session.client;
    let children = retry(|| {
        // Synced with the leader: the create may have been committed by another server.
        let (synced, children) = (client.sync(folder), client.list_children(folder));
        async move {
            synced.await?;
            children.await
        }
    });
    let children = match children.await {
        Err(ZkError::NoNode) => return Ok(None),
        children => children?,
    };
    let Some(node) = sorted(children).into_iter().find(|child| child.starts_with(prefix)) else {
        return Ok(None);
    };
    let path = format!("{folder}/{node}");
    let stat = retry(|| client.check_stat(&path)).await?;
    Ok(stat.map(|stat| (node, stat.czxid)))
}

/// Creates the folder and its parents as containers, which the server removes some time after the
/// last lock in them is gone. Curator does the same.
async fn make_folder(session: &Session, folder: &str) -> Result<(), ZkError> {
    let container = CreateMode::Container.with_acls(session.acls);
    match retry(|| session.client.mkdir(folder, &container)).await {
        // Servers before 3.5.3.
        Err(ZkError::Unimplemented) => {
            let persistent = CreateMode::Persistent.with_acls(session.acls);
            retry(|| session.client.mkdir(folder, &persistent)).await
        }
        made => made,
    }
}

/// 32 hex digits formatted as a UUID, which is what Curator writes and looks for.
fn uuid(nonce: &str) -> String {
    let part = |from: usize, to: usize| nonce.get(from..to).unwrap_or_default();
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sorted_and_nested_locks_ignored() {
        let children = ["b", "_c_ff-lock-0000000010", "lock-0000000009", "lock-x", "n-0000000001"];
        let sorted = sorted(children.map(str::to_owned).to_vec());
        assert_eq!(sorted, ["lock-0000000009", "_c_ff-lock-0000000010"]);
        assert_eq!(number("äääää"), None);
    }

    #[test]
    fn nonce_is_formatted_as_a_uuid() {
        let nonce = "00112233445566778899aabbccddeeff";
        assert_eq!(uuid(nonce), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
