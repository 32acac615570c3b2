//! A read shows a znode as it was at the zxid of the reply, neither earlier nor later.

use super::ClientKey;
use super::history::History;
use crate::checks::Violation;
use holdfast_core::NodeEvent;

pub(super) fn read(
    client: ClientKey,
    path: &str,
    zxid: u64,
    mzxid: Option<u64>,
    history: &History,
) -> Result<(), Violation> {
    let last = history.last(path, zxid).filter(|(_, what)| *what != NodeEvent::Deleted);
    let expected = last.map(|(zxid, _)| zxid);
    if mzxid == expected {
        return Ok(());
    }
    Err(format!(
        "reads: at zxid {zxid}, client {client:?} was told that {path} was set at {mzxid:?}, but it was \
         {expected:?}"
    ))
}
