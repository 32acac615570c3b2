//! Lua: scripts that are sent, or called by their SHA-1.

use super::Command;
use super::args::{integer, is};
use super::table::{KeyPlaces, NOWHERE, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Commands about scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scripting {
    /// `EVAL`, `EVAL_RO`.
    Eval {
        /// The script's source.
        script: Bytes,
        /// `KEYS`.
        keys: Vec<Bytes>,
        /// `ARGV`.
        arguments: Vec<Bytes>,
        /// Whether writes are forbidden.
        read_only: bool,
    },
    /// `EVALSHA`, `EVALSHA_RO`.
    EvalSha {
        /// 40 hexadecimal digits, in lower case.
        sha: Bytes,
        /// `KEYS`.
        keys: Vec<Bytes>,
        /// `ARGV`.
        arguments: Vec<Bytes>,
        /// Whether writes are forbidden.
        read_only: bool,
    },
    /// `SCRIPT LOAD`.
    Load(Bytes),
    /// `SCRIPT EXISTS`.
    Exists(Vec<Bytes>),
    /// `SCRIPT FLUSH`.
    Flush,
    /// `SCRIPT KILL`.
    Kill,
    /// `SCRIPT HELP`.
    Help,
}

const FLAGS: &str = "noscript stale skip_monitor no_mandatory_keys movablekeys";
const FLAGS_RO: &str = "noscript stale skip_monitor no_mandatory_keys readonly movablekeys";

pub(super) const TABLE: &[Spec] = &[
    spec("eval", -3, FLAGS, KeyPlaces::Counted, "scripting", "Run a script", |a| {
        eval(a, "eval", false, false)
    }),
    spec(
        "eval_ro",
        -3,
        FLAGS_RO,
        KeyPlaces::Counted,
        "scripting",
        "Run a script that only reads",
        |a| eval(a, "eval_ro", false, true),
    ),
    spec("evalsha", -3, FLAGS, KeyPlaces::Counted, "scripting", "Run a script by its SHA-1", |a| {
        eval(a, "evalsha", true, false)
    }),
    spec(
        "evalsha_ro",
        -3,
        FLAGS_RO,
        KeyPlaces::Counted,
        "scripting",
        "Run a script that only reads by its SHA-1",
        |a| eval(a, "evalsha_ro", true, true),
    ),
    spec("script", -2, "noscript", NOWHERE, "scripting", "Load, find and forget scripts", script),
];

fn eval(a: &[Bytes], name: &str, by_sha: bool, read_only: bool) -> Result<Command, Error> {
    let [script, count, rest @ ..] = a else { return Err(Error::arity(name)) };
    let count = integer(count)?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Error::fixed("ERR Number of keys can't be negative"));
    };
    let Some((keys, arguments)) = rest.split_at_checked(count) else {
        return Err(Error::fixed("ERR Number of keys can't be greater than number of args"));
    };
    let (keys, arguments) = (keys.to_vec(), arguments.to_vec());
    Ok(Command::Scripting(if by_sha {
        let sha = Bytes::from(script.to_ascii_lowercase());
        Scripting::EvalSha { sha, keys, arguments, read_only }
    } else {
        Scripting::Eval { script: script.clone(), keys, arguments, read_only }
    }))
}

fn script(a: &[Bytes]) -> Result<Command, Error> {
    let [what, rest @ ..] = a else { return Err(Error::arity("script")) };
    Ok(Command::Scripting(if is(what, "load") {
        let [script] = rest else { return Err(Error::arity("script|load")) };
        Scripting::Load(script.clone())
    } else if is(what, "exists") {
        if rest.is_empty() {
            return Err(Error::arity("script|exists"));
        }
        Scripting::Exists(rest.iter().map(|sha| Bytes::from(sha.to_ascii_lowercase())).collect())
    } else if is(what, "flush") {
        match rest {
            [] => {}
            [how] if is(how, "sync") || is(how, "async") => {}
            _ => return Err(Error::fixed("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        }
        Scripting::Flush
    } else if is(what, "kill") && rest.is_empty() {
        Scripting::Kill
    } else if is(what, "help") && rest.is_empty() {
        Scripting::Help
    } else {
        return Err(Error::unknown_subcommand("script", what));
    }))
}
