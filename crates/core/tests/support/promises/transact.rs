//! What transactions promise: all or none, and only if what was read has not changed.

use super::{Promises, Seen, must};
use crate::support::run::Wrong;
use holdfast_core::{
    Command, Expiry, KeyKind, Lease, LockName, Mode, Proposal, Stamp, Token, Transaction, Write,
    WriteOp,
};

/// An object as a watcher sees it.
#[derive(Debug)]
pub(super) struct SeenObject {
    version: u64,
    /// Only a write may end it before this time.
    not_before_ms: u64,
}

impl Promises {
    /// Judges what was written by what was there before.
    pub(super) fn check_transacted(
        &mut self,
        transaction: &Transaction,
        tokens: &[Option<Token>],
    ) -> Result<(), Wrong> {
        for (name, stamp) in &transaction.seen {
            must(self.stands(name, stamp), "what was read", || {
                format!("{name} is not {stamp:?} any more")
            })?;
        }
        let right = tokens.len() == transaction.writes.len();
        must(right, "all or none", || format!("{tokens:?} for {:?}", transaction.writes))?;
        for (write, token) in transaction.writes.iter().zip(tokens) {
            let Some(token) = *token else { continue };
            match self.tickets.get_mut(&token) {
                None => self.drawn(transaction, write, token)?,
                Some(seen) => {
                    let (own, now_ms) = (seen.door == transaction.door, self.now_ms);
                    match expiry_of(&write.to) {
                        None | Some(Expiry::Keep) => {}
                        Some(Expiry::Never) => {
                            (seen.lease, seen.not_before_ms) = (Lease::Permanent, u64::MAX);
                        }
                        Some(Expiry::AfterMs(ttl_ms)) => {
                            seen.lease = Lease::Deadline { ttl_ms };
                            seen.not_before_ms = now_ms.saturating_add(ttl_ms);
                        }
                    }
                    must(own, "doors", || format!("{token} is another door's"))?;
                }
            }
        }
        Ok(())
    }

    fn stands(&self, name: &LockName, stamp: &Stamp) -> bool {
        let object = self.objects.get(name).map(|object| object.version);
        let line = self.lines.get(name);
        let (holders, waiters) = line
            .map_or((&[][..], &[][..]), |line| (line.holders.as_slice(), line.waiters.as_slice()));
        match *stamp {
            Stamp::Absent => holders.is_empty() && object.is_none(),
            Stamp::Object { version } => object == Some(version),
            Stamp::Text { token, holders: holding, waiting, .. } => {
                holders.first().is_some_and(|(first, _)| *first == token)
                    && holders.len() == holding as usize
                    && waiters.len() == waiting as usize
            }
        }
    }

    fn drawn(
        &mut self,
        transaction: &Transaction,
        write: &Write,
        token: Token,
    ) -> Result<(), Wrong> {
        must(token.0 > self.counter, "numbers rise", || {
            format!("{token} was drawn after {}", self.counter)
        })?;
        self.counter = token.0;
        let line = self.lines.entry(write.name.clone()).or_default();
        let old = line.holders.first().and_then(|(old, _)| self.tickets.get(old));
        line.waiters.push(token);
        let lease = match &write.to {
            WriteOp::Text { expiry: Expiry::AfterMs(ttl_ms), .. } => {
                Lease::Deadline { ttl_ms: *ttl_ms }
            }
            WriteOp::Text { expiry: Expiry::Keep, fresh: false, .. } => {
                let due_ms = old.map_or(u64::MAX, |old| old.not_before_ms);
                match due_ms {
                    u64::MAX => Lease::Permanent,
                    due_ms => Lease::Deadline { ttl_ms: due_ms.saturating_sub(self.now_ms) },
                }
            }
            _ => Lease::Permanent,
        };
        let seen = Seen {
            names: vec![write.name.clone()],
            session: None,
            secret: None,
            lease,
            door: transaction.door,
            held: false,
            not_before_ms: u64::MAX,
            mode: Mode::Exclusive,
            claims: Vec::new(),
            upgrades: None,
        };
        self.tickets.insert(token, seen);
        Ok(())
    }

    pub(super) fn check_object(
        &mut self,
        proposal: &Proposal,
        name: &LockName,
        now: Option<KeyKind>,
        version: u64,
    ) -> Result<(), Wrong> {
        must(version > self.versions, "versions rise", || {
            format!("{name}: version {version} after {}", self.versions)
        })?;
        self.versions = version;
        let before = self.objects.remove(name);
        let before_ms = before.as_ref().map_or(u64::MAX, |before| before.not_before_ms);
        let write = match &proposal.command {
            Command::Transact(transaction) => {
                transaction.writes.iter().find(|write| write.name == *name)
            }
            _ => None,
        };
        if now.is_none() {
            let right = before.is_some() && (write.is_some() || self.now_ms >= before_ms);
            return must(right, "leases", || format!("{name} must not be gone now: {before:?}"));
        }
        let free = self.lines.get(name).is_none_or(|line| {
            line.holders.is_empty()
                && line.waiters.is_empty()
                && line.delayed_until_ms <= self.now_ms
        });
        must(free, "one at a time", || format!("{name} is an object and a lock"))?;
        let Some(write) = write else {
            return must(false, "one effect", || format!("{name} was written by nobody"));
        };
        let fresh = matches!(write.to, WriteOp::Object { fresh: true, .. });
        let not_before_ms = match expiry_of(&write.to) {
            Some(Expiry::Keep) if !fresh => before_ms,
            Some(Expiry::AfterMs(ms)) => self.now_ms.saturating_add(ms),
            _ => u64::MAX,
        };
        self.objects.insert(name.clone(), SeenObject { version, not_before_ms });
        Ok(())
    }
}

fn expiry_of(to: &WriteOp) -> Option<Expiry> {
    match to {
        WriteOp::Text { expiry, .. }
        | WriteOp::Relabel { expiry, .. }
        | WriteOp::Object { expiry, .. }
        | WriteOp::Expiring(expiry) => Some(*expiry),
        WriteOp::Gone { .. } => None,
    }
}
