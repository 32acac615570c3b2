//! Who holds a lock, and who is waiting.

use super::line::sorted;
use super::session::{Sessions, refused, retry};
use crate::error::Error;
use crate::locks::Inspection;
use crate::token::Token;
use zookeeper_client::{Client, Error as ZkError, Stat};

/// The most labels read, as each is a request. The rest are shown by the names of their nodes.
const LABELS_MAX: usize = 1_000;

pub(super) async fn inspect(
    sessions: &Sessions,
    folder: String,
) -> Result<Option<Inspection>, Error> {
    let session = sessions.any().await?;
    let seen = session.limited(look(&session.client, &folder)).await?;
    seen.map_err(|error| refused(&error))
}

async fn look(client: &Client, folder: &str) -> Result<Option<Inspection>, ZkError> {
    let children = retry(|| {
        let (synced, children) = (client.sync(folder), client.list_children(folder));
        async move {
            synced.await?;
            children.await
        }
    });
    let children = match children.await {
        Err(ZkError::NoNode) => return Ok(None),
        children => sorted(children?),
    };
    let mut places = Vec::new();
    for child in children {
        if places.len() >= LABELS_MAX {
            places.push((child, None));
            continue;
        }
        let path = format!("{folder}/{child}");
        match retry(|| client.get_data(&path)).await {
            Ok((data, stat)) => places.push((label(&data).unwrap_or(child), Some(stat))),
            // It has left in the meantime.
            Err(ZkError::NoNode) => {}
            // It belongs to another user: its name is visible, its label is not.
            Err(ZkError::NoAuth) => places.push((child, None)),
            Err(error) => return Err(error),
        }
    }
    let mut places = places.into_iter();
    let Some((holder, stat)) = places.next() else { return Ok(None) };
    Ok(Some(Inspection {
        holder: Some(holder),
        token: stat.and_then(|stat: Stat| u64::try_from(stat.czxid).ok()).map(Token::new),
        line: Some(places.map(|(label, _)| label).collect()),
    }))
}

/// The label of a node's owner, if it wrote one. Curator writes its host's address.
pub(super) fn label(data: &[u8]) -> Option<String> {
    (!data.is_empty()).then(|| String::from_utf8_lossy(data).into_owned())
}
