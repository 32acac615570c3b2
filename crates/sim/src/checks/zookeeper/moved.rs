//! Once a client has gone on with its session over another connection, nothing that it sent over an
//! earlier one is done. What clients write says who wrote it, over which of its connections.

use super::ClientKey;
use crate::checks::{Applied, Violation};
use holdfast_core::{Effect, NodeEvent};
use std::collections::BTreeMap;

/// How the names of znodes begin that show tickets of other doors.
const FOREIGN: &str = "holdfast-ticket-";

#[derive(Debug, Default)]
pub(super) struct Moved {
    connections: BTreeMap<ClientKey, u64>,
}

impl Moved {
    pub(super) fn connected(&mut self, client: ClientKey, connection: u64) {
        self.connections.insert(client, connection);
    }

    pub(super) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            let Effect::NodeChanged { path, what, .. } = effect else { continue };
            // The znode of another door's ticket is written by the server, with the ticket's label.
            let of_other_door =
                path.rsplit('/').next().is_some_and(|name| name.starts_with(FOREIGN));
            if *what == NodeEvent::Deleted || of_other_door {
                continue;
            }
            let data = applied.state.node(path).and_then(|node| node.data);
            let Some((client, over)) = data.and_then(|data| writer(data.as_bytes())) else {
                continue;
            };
            if let Some(now) = self.connections.get(&client).filter(|now| over < **now) {
                return Err(format!(
                    "moved: client {client:?} wrote {path} over connection {over}, after it has gone \
                     on over {now}"
                ));
            }
        }
        Ok(())
    }
}

/// `number.life.connection.xid`.
fn writer(data: &[u8]) -> Option<(ClientKey, u64)> {
    let mut parts = std::str::from_utf8(data).ok()?.split('.');
    let mut part = || parts.next()?.parse::<u64>().ok();
    Some(((part()? as usize, part()?), part()?))
}
