//! Equal stamps, equal answers: what a transaction relies on.

use super::player::lock_names;
use super::run::Wrong;
use holdfast_core::{Key, KeyKind, LockName, Stamp, State};

/// Every stamp that a key ever had, with what was read then.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    seen: Vec<(LockName, Stamp, Key)>,
    /// The last listing of all keys, and its number.
    listed: (u64, Vec<(LockName, KeyKind)>),
}

impl Stamps {
    pub(crate) fn check(&mut self, state: &State) -> Result<(), Wrong> {
        for name in lock_names() {
            let (stamp, key) = (state.stamp(&name), state.key(&name));
            let same =
                |(other, known, _): &&(LockName, Stamp, Key)| (other, known) == (&name, &stamp);
            match self.seen.iter().rev().find(same) {
                None => self.seen.push((name, stamp, key)),
                Some((_, _, before)) if *before == key => {}
                Some((_, _, before)) => {
                    let what = format!("{name} was {before:?}, is {key:?}, both with {stamp:?}");
                    return Err(Wrong { check: "stamps", what });
                }
            }
        }
        let now = (state.keys_changed(), state.keys(b"", None, usize::MAX).keys);
        let (number, keys) = &self.listed;
        if now.0 < *number || (now.0 == *number && now.1 != *keys) {
            let what = format!("{keys:?} had {number}, {:?} has {}", now.1, now.0);
            return Err(Wrong { check: "stamps", what });
        }
        self.listed = now;
        Ok(())
    }
}
