//! Damage is found: a node does not start on a disk with a flipped bit that the log or a snapshot
//! vouches for, and no disk is called damaged that is not.

use super::Violation;
use holdfast_node::NodeId;
use holdfast_storage::Fault;

/// Judges a start; `flipped` says where a bit was flipped since the last one.
pub(crate) fn started(
    node: NodeId,
    started: Result<(), &Fault>,
    flipped: Option<&str>,
) -> Result<(), Violation> {
    match (started, flipped) {
        (Ok(()), Some(place)) => {
            Err(format!("damage: node {node} started with a flipped bit in {place}"))
        }
        (Err(fault), None) if fault.is_damage() => {
            Err(format!("damage: node {node} takes a sound disk for a damaged one: {fault}"))
        }
        _ => Ok(()),
    }
}
