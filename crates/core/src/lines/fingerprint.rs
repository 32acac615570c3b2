//! What a request asked for, as one number: distinguishes a retry from another request under the
//! same id.
//!
//! A retry may differ from the first attempt in things that don't affect the answer:
//!
//! - proofs: secrets (a new one is drawn for each attempt) and labels used as proofs;
//! - how long to wait: a client that retries has less time left, and the first wait counts;
//! - the label and the note of a new ticket: the process that retries may have another id;
//! - the order of names and of claims.
//!
//! Fingerprints are replicated state. Anything that changes the fingerprint of a command, such as a
//! new field in [`Command`] or a change to what is left out here, needs a new behaviour level.

use crate::command::{Command, Proof, SessionRef, Wait};
use crate::ids::Secret;
use serde::{Deserialize, Serialize};

/// 64 bits: enough to tell apart what a client sends under one id by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint(u64);

const NO_SECRET: Secret = Secret([0; 16]);

impl Fingerprint {
    /// `None` if the command can't be encoded: then it is not distinguished from any other.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        let mut command = command.clone();
        leave_out(&mut command);
        postcard::to_allocvec(&command).ok().map(|bytes| Self(hash(&bytes)))
    }
}

/// Removes what may differ in a retry.
fn leave_out(command: &mut Command) {
    match command {
        Command::Acquire(acquire) => {
            acquire.names.sort_unstable();
            acquire.claims.sort_unstable();
            acquire.wait = Wait::Try;
            (acquire.label, acquire.note, acquire.secret) = (None, None, None);
            if let Some(SessionRef { secret, .. }) = &mut acquire.session {
                *secret = NO_SECRET;
            }
        }
        Command::Upgrade { proof, wait, claims, .. } => {
            claims.sort_unstable();
            (*proof, *wait) = (Proof::Secret(NO_SECRET), Wait::Try);
        }
        Command::Downgrade { proof, .. }
        | Command::Cancel { proof, .. }
        | Command::Release { proof, .. }
        | Command::Renew { proof, .. }
        | Command::Persist { proof, .. }
        | Command::Note { proof, .. }
        | Command::Recovered { proof, .. } => *proof = Proof::Secret(NO_SECRET),
        // The last seven take no request id.
        Command::Revoke(_)
        | Command::Force { .. }
        | Command::Put { .. }
        | Command::Raise { .. }
        | Command::Tick(_)
        | Command::OpenSession(_)
        | Command::CloseSession(_)
        | Command::ExpireSession { .. }
        | Command::Outcome(_)
        | Command::Transact(_)
        | Command::Tree(_)
        | Command::Operate { .. } => {}
    }
}

/// The same on every machine and in every version of the program.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |last, byte| (last << 8) | u64::from(*byte));
    mix(mix(hash, last), bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Acquire, Door, Lease, Mode, Target};
    use crate::ids::{SessionId, Token};
    use crate::text::{Label, LockName, Note};
    use std::num::NonZeroU64;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    fn acquire() -> Acquire {
        Acquire {
            names: vec![name("a"), name("b")],
            mode: Mode::Exclusive,
            session: Some(SessionRef { id: SessionId(NonZeroU64::MIN), secret: Secret([1; 16]) }),
            lease: Lease::Deadline { ttl_ms: 5_000 },
            wait: Wait::For { ms: 1_000 },
            label: None,
            note: None,
            secret: Some(Secret([2; 16])),
            claims: vec![Token(3), Token(4)],
            lock_delay_ms: 0,
            door: Door::Native,
        }
    }

    fn of(acquire: Acquire) -> Fingerprint {
        Fingerprint::of(&Command::Acquire(acquire)).unwrap()
    }

    #[test]
    fn fields_that_may_differ_in_a_retry_do_not_count() {
        let first = of(acquire());
        let names = vec![name("b"), name("a")];
        let label = Some(Label::parse("host:2").unwrap());
        let note = Some(Note::parse("second try").unwrap());
        let session = SessionRef { id: SessionId(NonZeroU64::MIN), secret: Secret([9; 16]) };
        for again in [
            Acquire { secret: Some(Secret([7; 16])), ..acquire() },
            Acquire { secret: None, session: Some(session), ..acquire() },
            Acquire { wait: Wait::Try, ..acquire() },
            Acquire { label, note, ..acquire() },
            Acquire { names, claims: vec![Token(4), Token(3)], ..acquire() },
        ] {
            assert_eq!(of(again.clone()), first, "{again:?}");
        }
    }

    #[test]
    fn requested_fields_count() {
        let session = SessionRef { id: SessionId(NonZeroU64::MAX), secret: Secret([1; 16]) };
        let others = [
            Acquire { names: vec![name("a")], ..acquire() },
            Acquire { names: vec![name("a"), name("c")], ..acquire() },
            Acquire { mode: Mode::Shared, ..acquire() },
            Acquire { mode: Mode::Permit { of: 1 }, ..acquire() },
            Acquire { mode: Mode::Permit { of: 2 }, ..acquire() },
            Acquire { session: None, ..acquire() },
            Acquire { session: Some(session), ..acquire() },
            Acquire { lease: Lease::Deadline { ttl_ms: 5_001 }, ..acquire() },
            Acquire { lease: Lease::Session, ..acquire() },
            Acquire { claims: vec![Token(3)], ..acquire() },
            Acquire { lock_delay_ms: 1, ..acquire() },
            Acquire { door: Door::Redis, ..acquire() },
        ];
        let target = || Target { name: name("a"), token: Some(Token(1)) };
        let (proof, claims) = (|| Proof::Secret(NO_SECRET), Vec::new());
        let mut all: Vec<Fingerprint> = others.into_iter().map(of).collect();
        all.push(of(acquire()));
        all.extend(
            [
                Command::Upgrade { target: target(), proof: proof(), wait: Wait::Try, claims },
                Command::Downgrade { target: target(), proof: proof() },
                Command::Cancel { target: target(), proof: proof() },
                Command::Release { target: target(), proof: proof() },
                Command::Renew { target: target(), proof: proof(), ttl_ms: 1 },
                Command::Renew { target: target(), proof: proof(), ttl_ms: 2 },
                Command::Persist { target: target(), proof: proof() },
                Command::Note { target: target(), proof: proof(), note: None },
                Command::Note { target: target(), proof: proof(), note: Note::parse("x").ok() },
                Command::Recovered { target: target(), proof: proof() },
                Command::Raise { key: name("a"), token: Token(1), mode: Mode::Exclusive },
            ]
            .iter()
            .map(|command| Fingerprint::of(command).unwrap()),
        );
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "number {at} is the same as one before it");
        }
    }

    /// Nodes of two versions must agree on them, and snapshots contain them.
    #[test]
    fn fingerprints_are_stable() {
        assert_eq!(of(acquire()), Fingerprint(GOLDEN));
    }

    const GOLDEN: u64 = 3_253_500_737_841_572_349;
}
