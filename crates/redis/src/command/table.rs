//! The table of all commands.

use super::{
    Command, connection, hashes, holdfast, keys, lists, pubsub, scripting, server, strings,
};
use super::{args, transactions};
use crate::error::Error;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::LazyLock;

/// One command: its name and how it is parsed.
#[derive(Debug)]
pub struct Spec {
    /// In lower case.
    pub name: &'static str,
    /// The number of words, including the name; negative means at least that many.
    pub arity: i32,
    /// Its flags, as in Redis.
    pub flags: &'static str,
    /// Which of its words are keys.
    pub places: KeyPlaces,
    /// Its group, as in Redis.
    pub group: &'static str,
    /// What it does.
    pub summary: &'static str,
    pub(super) parse: fn(&[Bytes]) -> Result<Command, Error>,
}

/// Which words of a request are keys; the name is word 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlaces {
    /// None of them.
    None,
    /// From the first to the last (negative: counted from the end), with this step.
    Range(i32, i32, usize),
    /// Word 2 is the number of keys that follow it.
    Counted,
}

pub(super) const NOWHERE: KeyPlaces = KeyPlaces::None;
pub(super) const FIRST: KeyPlaces = KeyPlaces::Range(1, 1, 1);
pub(super) const ALL: KeyPlaces = KeyPlaces::Range(1, -1, 1);
pub(super) const PAIRS: KeyPlaces = KeyPlaces::Range(1, -1, 2);
pub(super) const BUT_LAST: KeyPlaces = KeyPlaces::Range(1, -2, 1);

pub(super) const fn spec(
    name: &'static str,
    arity: i32,
    flags: &'static str,
    places: KeyPlaces,
    group: &'static str,
    summary: &'static str,
    parse: fn(&[Bytes]) -> Result<Command, Error>,
) -> Spec {
    Spec { name, arity, flags, places, group, summary, parse }
}

const TABLES: [&[Spec]; 10] = [
    strings::TABLE,
    keys::TABLE,
    hashes::TABLE,
    lists::TABLE,
    scripting::TABLE,
    transactions::TABLE,
    pubsub::TABLE,
    connection::TABLE,
    server::TABLE,
    holdfast::TABLE,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Spec>> =
    LazyLock::new(|| all().map(|spec| (spec.name, spec)).collect());

/// All commands, family by family.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    TABLES.into_iter().flatten()
}

/// Looks up a command by name, ignoring case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    const NAME_BYTES_MAX: usize = 32;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    BY_NAME.get(name.as_str()).copied()
}

impl Spec {
    /// Whether a request may have this many words.
    pub fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Whether its first argument is a subcommand.
    pub fn has_parts(&self) -> bool {
        matches!(self.name, "client" | "command" | "config" | "pubsub" | "script")
    }

    /// Whether it has this flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|has| has == flag)
    }

    /// The keys of a request.
    pub fn keys(&self, request: &[Bytes]) -> Vec<Bytes> {
        let len = i32::try_from(request.len()).unwrap_or(i32::MAX);
        match self.places {
            KeyPlaces::None => Vec::new(),
            KeyPlaces::Range(first, last, step) => {
                let last = if last < 0 { len.saturating_add(last) } else { last };
                let places = first..=last;
                let words = places.filter_map(|place| request.get(usize::try_from(place).ok()?));
                words.step_by(step).cloned().collect()
            }
            KeyPlaces::Counted => {
                let count = request.get(2).and_then(|count| args::integer(count).ok());
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                request.iter().skip(3).take(count).cloned().collect()
            }
        }
    }
}
