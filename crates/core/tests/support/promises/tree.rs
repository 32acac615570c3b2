//! What changes to znodes promise: the numbers of contenders rise, and their czxid is the token.

use super::{Promises, Seen, must};
use crate::support::run::Wrong;
use holdfast_core::{Door, Lease, LockName, Mode, NodeKind, NodeOp, NodeResult, Token, TreeWrite};

impl Promises {
    pub(super) fn check_written(
        &mut self,
        write: &TreeWrite,
        results: &[NodeResult],
    ) -> Result<(), Wrong> {
        let right = results.len() == write.ops.len();
        must(right, "all or none", || format!("{results:?} for {:?}", write.ops))?;
        for (op, result) in write.ops.iter().zip(results) {
            let NodeOp::Create { path, kind, sequential: true, .. } = op else { continue };
            let NodeResult::Created { stat, .. } = result else { continue };
            let ephemeral = match kind {
                NodeKind::Ephemeral => true,
                NodeKind::Persistent => false,
                _ => continue,
            };
            let Some((directory, name)) = path[1..].rsplit_once('/') else { continue };
            let mode = match name {
                "m__rlock__" => Mode::Shared,
                "m__lock__" | "lock-" | "n-" | "m__WRIT__" => Mode::Exclusive,
                _ => continue,
            };
            let (token, name) = (Token(stat.czxid), LockName::parse(directory).expect("short"));
            must(token.0 > self.counter, "numbers rise", || {
                format!("{token} was drawn after {}", self.counter)
            })?;
            self.counter = token.0;
            self.lines.entry(name.clone()).or_default().waiters.push(token);
            let seen = Seen {
                names: vec![name],
                session: ephemeral.then_some(write.session.id),
                secret: None,
                lease: if ephemeral { Lease::Session } else { Lease::Permanent },
                door: Door::ZooKeeper,
                held: false,
                not_before_ms: u64::MAX,
                mode,
                claims: Vec::new(),
                upgrades: None,
            };
            self.tickets.insert(token, seen);
        }
        Ok(())
    }
}
