//! The log, the snapshots and the small files of a node, on real and simulated disks.

#[macro_use]
mod support;
mod format;
mod log_crash;
mod log_faults;
mod log_flips;
mod log_life;
mod model;
mod sim_disk;
mod small_files;
mod snapshots;
