//! Damage is found: a node does not start on a disk with a flipped bit that the log or a snapshot
//! vouches for, and no disk is called damaged that is not.

use super::Violation;
use holdfast_node::NodeId;
use holdfast_storage::Fault;

/// Judges a start, or why there was none; `flipped` says where a bit was flipped since the last one.
pub(crate) fn started(
    node: NodeId,
    fault: Option<&Fault>,
    flipped: Option<&str>,
) -> Result<(), Violation> {
    match (fault, flipped) {
        (None, Some(place)) => {
            Err(format!("damage: node {node} started with a flipped bit in {place}"))
        }
        (Some(fault), None) if fault.is_damage() => {
            Err(format!("damage: node {node} takes a sound disk for a damaged one: {fault}"))
        }
        _ => Ok(()),
    }
}
