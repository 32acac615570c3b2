//! Lua at the edge: real Lua 5.1 in a sandbox, never in the replicated core.
//!
//! Every run has its own Lua state: nothing is left over from one to the next, and its memory and
//! instructions are limited. What a script reads and writes goes through the same overlay as every
//! other command, so a script is one transaction.
//!
//! - `scripts`: the scripts that were sent, by their SHA-1
//! - `known_scripts`: well-known scripts of lock clients, run without Lua
//! - `sandbox`: the environment of a script
//! - `library`: `redis.call` and the other functions of `redis`
//! - `convert`: replies to Lua values and back
//! - `patterns`: bounds the time of pattern matching
//! - `readonly`: tables that a script can't change
//! - `json`, `bits`, `random`: the libraries that Redis adds to Lua's own

mod bits;
mod convert;
mod errors;
mod json;
mod known_scripts;
mod library;
mod normal;
mod patterns;
mod random;
mod readonly;
mod sandbox;
mod scripts;

pub use known_scripts::KnownScript;
pub(crate) use sandbox::{check, run};
pub(crate) use scripts::sha1_hex;
pub use scripts::{Script, Scripts};
