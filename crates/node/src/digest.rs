//! The running digest of everything that a node computed, which replicas compare.
//!
//! From [`CONTENT_LEVEL`] on it covers the content of every answer, refusal and effect, through
//! their derived `Serialize`: a new effect or field is included automatically. Below that level it
//! is what older versions compute: kinds, some numbers, and order.
//!
//! Two versions must compute the same digest at the same level, or healthy nodes would stop. So any
//! change to the digest of something that could be applied before needs a new behaviour level, and
//! below that level the old digest: a field that is added to an effect is left out there
//! (`serialize_field` gets its name), and a variant that is added at the end occurs only above it.
//! A test below pins the values.

use holdfast_core::{Answer, Effect, ProposalOutcome};
use serde::ser::{self, Serialize};
use std::fmt;

/// From this behaviour level on, the digest includes the content of the results.
const CONTENT_LEVEL: u16 = 5;

/// The digest after one more proposal: its result and its effects.
pub(crate) fn after(digest: u64, level: u16, taken: &ProposalOutcome, effects: &[Effect]) -> u64 {
    if level < CONTENT_LEVEL {
        return kinds_and_numbers(digest, taken, effects);
    }
    let mut digest = Digest(digest);
    match taken {
        ProposalOutcome::Answered(Ok(answer)) => digest.add(1, answer),
        ProposalOutcome::Answered(Err(refusal)) => digest.add(2, refusal),
        ProposalOutcome::Seen => digest.mix(3),
        ProposalOutcome::TooSoon => digest.mix(4),
        ProposalOutcome::NodeGone => digest.mix(5),
    }
    for effect in effects {
        digest.add(6, effect);
    }
    digest.0
}

/// Mixes a number into a digest. Written out here, because every build of every version must
/// compute the same.
pub(crate) fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

/// What versions below [`CONTENT_LEVEL`] compute. They ignored what a transaction wrote.
fn kinds_and_numbers(digest: u64, taken: &ProposalOutcome, effects: &[Effect]) -> u64 {
    let taken = match taken {
        ProposalOutcome::Answered(Ok(answer)) => match answer {
            Answer::TicketStatus(status) => status.token().0,
            Answer::SessionOpened(id) | Answer::SessionEnded(id) => id.0.get(),
            _ => 1,
        },
        ProposalOutcome::Answered(Err(_)) => 2,
        ProposalOutcome::Seen => 3,
        ProposalOutcome::TooSoon => 4,
        ProposalOutcome::NodeGone => 5,
    };
    let mut digest = mix(digest, taken);
    for effect in effects {
        let (kind, number) = match effect {
            Effect::Granted(grant) => (1, grant.token.0),
            Effect::Ended(ended) => (2 + ended.how as u64, ended.token.0),
            Effect::Delayed { until_ms, .. } => (20, *until_ms),
            Effect::RevocationAsked { token, .. } => (21, token.0),
            Effect::Noted { token, .. } => (22, token.0),
            Effect::Downgraded { token, .. } => (23, token.0),
            Effect::Recovered { token, .. } => (24, token.0),
            Effect::SessionEnded { session, .. } => (25, session.0.get()),
            Effect::Relabelled { token, .. } => (26, token.0),
            Effect::ObjectChanged { version, .. } => (27, *version),
            Effect::Published { message, .. } => (28, message.as_bytes().len() as u64),
            // Only from a later level on.
            Effect::NodeChanged { zxid, .. } => (29, *zxid),
            Effect::SessionAttached { attachment, .. } => (30, *attachment),
            Effect::AccessChanged(_) => (31, 0),
            Effect::Audited(record) => (32, record.number),
        };
        digest = mix(mix(digest, kind), number);
    }
    digest
}

/// A serializer that mixes everything into the digest instead of writing it.
struct Digest(u64);

impl Digest {
    fn mix(&mut self, word: u64) {
        self.0 = mix(self.0, word);
    }

    fn add(&mut self, kind: u64, content: &impl Serialize) {
        self.mix(kind);
        if content.serialize(&mut *self).is_err() {
            // No type of the core can fail; if one did, it would fail on every replica.
            self.mix(u64::MAX);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.mix(rest.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
        }
    }
}

/// The error of a type that can't be serialized at all.
#[derive(Debug)]
struct NotSerialized;

impl fmt::Display for NotSerialized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not serialized")
    }
}

impl std::error::Error for NotSerialized {}

impl ser::Error for NotSerialized {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Done = Result<(), NotSerialized>;

macro_rules! mix_numbers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, number: $type) -> Done {
            self.mix(number as u64);
            Ok(())
        }
    )*};
}

impl ser::Serializer for &mut Digest {
    type Ok = ();
    type Error = NotSerialized;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    mix_numbers!(
        serialize_bool: bool, serialize_char: char,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64
    );

    fn serialize_f32(self, number: f32) -> Done {
        self.serialize_u32(number.to_bits())
    }

    fn serialize_f64(self, number: f64) -> Done {
        self.serialize_u64(number.to_bits())
    }

    fn serialize_str(self, text: &str) -> Done {
        self.serialize_bytes(text.as_bytes())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Done {
        self.bytes(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Done {
        self.serialize_u8(0)
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Done {
        self.mix(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, variant: u32, _: &'static str) -> Done {
        self.serialize_u32(variant)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        value: &T,
    ) -> Done {
        self.mix(variant.into());
        value.serialize(self)
    }

    /// Not every sequence knows its length: what follows the last element ends it.
    fn serialize_seq(self, _: Option<usize>) -> Result<Self, NotSerialized> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, NotSerialized> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NotSerialized> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotSerialized> {
        self.mix(variant.into());
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, NotSerialized> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NotSerialized> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotSerialized> {
        self.mix(variant.into());
        Ok(self)
    }
}

/// Precedes each element of a sequence or map, and follows the last one.
const ELEMENT: u64 = 1;
const END: u64 = 0;

impl ser::SerializeSeq for &mut Digest {
    type Ok = ();
    type Error = NotSerialized;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Done {
        self.mix(ELEMENT);
        value.serialize(&mut **self)
    }

    fn end(self) -> Done {
        self.mix(END);
        Ok(())
    }
}

impl ser::SerializeMap for &mut Digest {
    type Ok = ();
    type Error = NotSerialized;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Done {
        self.mix(ELEMENT);
        key.serialize(&mut **self)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Done {
        value.serialize(&mut **self)
    }

    fn end(self) -> Done {
        self.mix(END);
        Ok(())
    }
}

macro_rules! mix_fields {
    ($($trait:ident::$method:ident($($name:ident)?)),*) => {$(
        impl ser::$trait for &mut Digest {
            type Ok = ();
            type Error = NotSerialized;

            fn $method<T: ?Sized + Serialize>(
                &mut self,
                $($name: &'static str,)?
                value: &T,
            ) -> Done {
                value.serialize(&mut **self)
            }

            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

mix_fields!(
    SerializeTuple::serialize_element(),
    SerializeTupleStruct::serialize_field(),
    SerializeTupleVariant::serialize_field(),
    SerializeStruct::serialize_field(_name),
    SerializeStructVariant::serialize_field(_name)
);

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::{
        Channel, EndReason, Ended, Ending, Forced, Grant, KeyKind, Label, Lease, LockName, Message,
        Mode, Names, Note, PriorEndings, Reason, Refusal, Secret, SessionId, Token,
    };
    use std::num::NonZeroU64;
    use std::sync::Arc;

    const BEFORE: u16 = CONTENT_LEVEL - 1;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    fn label(text: &str) -> Label {
        Label::parse(text).unwrap()
    }

    fn of_effect(level: u16, effect: Effect) -> u64 {
        after(0, level, &ProposalOutcome::Answered(Ok(Answer::Ticked)), &[effect])
    }

    fn of_answer(level: u16, answer: Answer) -> u64 {
        after(0, level, &ProposalOutcome::Answered(Ok(answer)), &[])
    }

    fn ending() -> Arc<Ending> {
        let forced = Forced { by: label("ops"), reason: Reason::parse("stuck").unwrap() };
        Arc::new(Ending {
            how: EndReason::Forced,
            token: Token(6),
            label: None,
            note: Note::parse("half done").ok(),
            at_ms: 40,
            wall_ms: 41,
            forced: Some(Arc::new(forced)),
        })
    }

    fn effects() -> Vec<Effect> {
        let session = SessionId(NonZeroU64::MIN);
        let (token, names) = (Token(7), Names::Many([name("a"), name("b")].into()));
        let after = PriorEndings { name: name("a"), last: None, recover: Some(ending()) };
        vec![
            Effect::Granted(Grant {
                token,
                names: names.clone(),
                mode: Mode::Permit { of: 3 },
                lease: Lease::Deadline { ttl_ms: 9 },
                session: Some(session),
                label: Some(label("ana")),
                note: None,
                secret: Some(Secret([3; 16])),
                waited_ms: 12,
                after: Some([after].into()),
            }),
            Effect::Ended(Ended {
                token,
                names: Names::One(name("seat-12A")),
                how: EndReason::Expired,
                held: true,
                for_ms: 5,
                session: None,
                label: None,
                note: None,
                forced: None,
            }),
            Effect::Delayed { name: name("a"), until_ms: 50, after: ending() },
            Effect::RevocationAsked {
                token,
                session: Some(session),
                name: name("a"),
                by: label("ops"),
                reason: Reason::parse("deploy").unwrap(),
                until_ms: 60,
                force: true,
            },
            Effect::Noted { token, names: names.clone(), note: None },
            Effect::Downgraded { token, names },
            Effect::Recovered { name: name("a"), token, death: ending() },
            Effect::SessionEnded { session, how: EndReason::Closed },
            Effect::Relabelled { token, name: name("a"), label: label("bo") },
            Effect::ObjectChanged { name: name("a"), now: Some(KeyKind::Hash), version: 8 },
            Effect::Published {
                channel: Channel::parse("c").unwrap(),
                message: Message::parse("m").unwrap(),
            },
        ]
    }

    /// The digest used to include an object's version and a message's length, but nothing of a
    /// transaction's answer: a replica that had written another key, another label or other tokens
    /// went unnoticed.
    #[test]
    fn digest_covers_transactions() {
        let changed = |key: &str, now| Effect::ObjectChanged { name: name(key), now, version: 8 };
        let published = |text: &str| Effect::Published {
            channel: Channel::parse("c").unwrap(),
            message: Message::parse(text).unwrap(),
        };
        let relabelled =
            |to: &str| Effect::Relabelled { token: Token(7), name: name("a"), label: label(to) };
        for (one, other) in [
            (changed("a", Some(KeyKind::Hash)), changed("c", Some(KeyKind::Hash))),
            (changed("a", Some(KeyKind::Hash)), changed("a", Some(KeyKind::List))),
            (changed("a", None), changed("a", Some(KeyKind::List))),
            (published("yes"), published("no!")),
            (relabelled("ana"), relabelled("bob")),
        ] {
            assert_ne!(
                of_effect(CONTENT_LEVEL, one.clone()),
                of_effect(CONTENT_LEVEL, other.clone()),
                "{one:?} and {other:?}"
            );
            assert_eq!(of_effect(BEFORE, one), of_effect(BEFORE, other));
        }
        let answers = [vec![], vec![None], vec![Some(Token(1))], vec![Some(Token(1)), None]];
        let digests = answers.map(|tokens| of_answer(CONTENT_LEVEL, Answer::Transacted(tokens)));
        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest), "{digests:?}");
        }
        let refused =
            |refusal| after(0, CONTENT_LEVEL, &ProposalOutcome::Answered(Err(refusal)), &[]);
        assert_ne!(refused(Refusal::NotOwner), refused(Refusal::Barred));
    }

    /// Nodes of two versions must agree. A value that changes here needs a new behaviour level;
    /// below that level it stays as it is.
    #[test]
    fn digests_are_stable() {
        let refused = ProposalOutcome::Answered(Err(Refusal::NeverDrawn(Token(9))));
        let digest = |level| {
            after(after(0, level, &refused, &[]), level, &ProposalOutcome::Seen, &effects())
        };
        assert_eq!([digest(BEFORE), digest(CONTENT_LEVEL)], GOLDEN);
    }

    const GOLDEN: [u64; 2] = [17_015_465_503_563_877_352, 8_752_384_545_453_846_062];
}
