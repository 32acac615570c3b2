//! Lua at the edge: real Lua 5.1 in a sandbox, never in the replicated core.
//!
//! Every run has a machine of its own: nothing is left over from one to the next, and its memory
//! and steps are counted. What a script reads and writes goes through the same overlay as every
//! other command, so a script is one transaction.
//!
//! - `scripts`: those that were sent, by their SHA-1
//! - `known`: scripts that every lock client has, done without Lua
//! - `sandbox`: what a script finds there
//! - `library`: `redis.call` and its like
//! - `convert`: replies to values and back
//! - `patterns`: matching takes no more time than a script may
//! - `readonly`: tables that a script can't change
//! - `json`, `bits`, `random`: what Redis gives to scripts beside Lua's own

mod bits;
mod convert;
mod errors;
mod json;
mod known;
mod library;
mod normal;
mod patterns;
mod random;
mod readonly;
mod sandbox;
mod scripts;

pub use known::Known;
pub(crate) use sandbox::{check, run};
pub(crate) use scripts::sha1_hex;
pub use scripts::{Script, Scripts};
