//! Nodes without a driver: a test hands them their inputs and carries their messages.

mod by_hand;
mod confirmations;
mod digests;
mod full_disk;
mod large_snapshots;
mod members;
mod snapshots;
mod turns;
mod withdrawn;
