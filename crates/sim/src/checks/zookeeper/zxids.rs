//! A client never sees an older state than it has seen before, whichever nodes it is connected to.

use super::ClientKey;
use crate::checks::Violation;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Zxids(BTreeMap<ClientKey, u64>);

impl Zxids {
    pub(super) fn saw(&mut self, client: ClientKey, zxid: u64) -> Result<(), Violation> {
        let last = self.0.entry(client).or_default();
        if zxid < *last {
            return Err(format!("zxids: client {client:?} saw {zxid} after {last}"));
        }
        *last = zxid;
        Ok(())
    }
}
