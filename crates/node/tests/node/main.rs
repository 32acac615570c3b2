//! Nodes without a driver: the tests pass them their inputs and carry their messages.

mod by_hand;
mod confirmations;
mod digests;
mod full_disk;
mod large_snapshots;
mod members;
mod snapshots;
mod turns;
mod withdrawn;
