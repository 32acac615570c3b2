//! No cycle of waits in which every owner declared what it keeps.

use super::{Promises, must};
use crate::support::run::Wrong;
use holdfast_core::{Mode, Token};

impl Promises {
    /// Repeatedly removes tickets that wait for none of the rest: what remains are cycles.
    pub(super) fn check_no_deadlock(&self) -> Result<(), Wrong> {
        let mut left: Vec<Token> = self.tickets.keys().copied().collect();
        loop {
            let waits =
                |token: &Token| self.waits_for(*token).iter().any(|front| left.contains(front));
            let stuck: Vec<Token> = left.iter().copied().filter(waits).collect();
            if stuck.len() == left.len() {
                break;
            }
            left = stuck;
        }
        must(left.is_empty(), "deadlock", || format!("{left:?} wait for each other"))
    }

    /// The tickets that must end, or be served, before this one is served; or, if it is held,
    /// before its owner releases it.
    fn waits_for(&self, token: Token) -> Vec<Token> {
        let Some(seen) = self.tickets.get(&token) else { return Vec::new() };
        if seen.held {
            let others = self.tickets.iter();
            let keepers = others.filter(|(_, other)| !other.held && other.claims.contains(&token));
            return keepers.map(|(keeper, _)| *keeper).collect();
        }
        // Any holder of a permit may release one.
        if matches!(seen.mode, Mode::Permit { .. }) {
            return Vec::new();
        }
        let mut fronts = Vec::new();
        for line in seen.names.iter().filter_map(|name| self.lines.get(name)) {
            let until_here = line.waiters.iter().filter(|waiter| **waiter <= token);
            let until_here: Vec<Token> = until_here.copied().collect();
            for (holder, mode) in &line.holders {
                if until_here.iter().any(|waiter| self.conflicts(*waiter, *holder, *mode)) {
                    fronts.push(*holder);
                }
            }
            fronts.extend(until_here.into_iter().filter(|waiter| *waiter != token));
        }
        fronts
    }

    /// Whether a waiter can't be served at the same time as a holder.
    fn conflicts(&self, waiter: Token, holder: Token, mode: Mode) -> bool {
        let Some(seen) = self.tickets.get(&waiter) else { return false };
        let both_shared = seen.mode == Mode::Shared && mode == Mode::Shared;
        !both_shared && seen.upgrades != Some(holder)
    }
}
