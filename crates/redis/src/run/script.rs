//! Runs scripts: in Lua or, for those that every lock client has, without.

use super::overlay::Content;
use super::{Overlay, RunResult, Stop};
use crate::command::Scripting;
use crate::error::Error;
use crate::lua::{self, KnownScript, Script};
use crate::number;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::Expiry;
use std::sync::Arc;

/// A longer text is not one of the well-known scripts.
const KNOWN_BYTES_MAX: usize = 4_096;

pub(super) fn run(command: &Scripting, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    let scripts = overlay.local.scripts();
    match command {
        Scripting::Eval { script, keys, arguments, read_only } => {
            if !overlay.may_run_lua && script.len() > KNOWN_BYTES_MAX {
                return Err(Stop::Lua);
            }
            let (script, new) = sent(script, overlay)?;
            let reply = eval(&script, keys, arguments, *read_only, overlay);
            let lua = !matches!(&reply, Ok(Reply::Error(error)) if is_not_lua(error));
            if new && lua {
                overlay.local.scripts().keep(script);
            }
            reply
        }
        Scripting::EvalSha { sha, keys, arguments, read_only } => {
            let script = scripts.get(sha).ok_or(Error::NO_SCRIPT)?;
            eval(&script, keys, arguments, *read_only, overlay)
        }
        Scripting::Load(text) => {
            if !overlay.may_run_lua {
                return Err(Stop::Lua);
            }
            let (script, new) = sent(text, overlay)?;
            if new {
                lua::check(&script)?;
                scripts.keep(script.clone());
            }
            Ok(Reply::bulk(&script.sha))
        }
        Scripting::Exists(shas) => {
            Ok(Reply::Array(shas.iter().map(|sha| scripts.get(sha).is_some().into()).collect()))
        }
        Scripting::Flush => {
            scripts.clear();
            Ok(Reply::OK)
        }
        Scripting::Kill => Err(Error::fixed("NOTBUSY No scripts in execution right now.").into()),
        Scripting::Help => Ok(Reply::Array(
            [
                "SCRIPT LOAD <script>",
                "SCRIPT EXISTS <sha1> [<sha1> ...]",
                "SCRIPT FLUSH [ASYNC|SYNC]",
            ]
            .into_iter()
            .map(Reply::status)
            .collect(),
        )),
    }
}

fn is_not_lua(error: &Error) -> bool {
    error.as_bytes().starts_with(b"ERR Error compiling script")
}

/// The script of an `EVAL`, and whether it was not known before.
fn sent(text: &Bytes, overlay: &Overlay<'_>) -> Result<(Arc<Script>, bool), Error> {
    let sha = lua::sha1_hex(text);
    match overlay.local.scripts().get(sha.as_bytes()) {
        Some(kept) => Ok((kept, false)),
        None => Ok((Arc::new(Script::parse(text, sha)?), true)),
    }
}

fn eval(
    script: &Script,
    keys: &[Bytes],
    arguments: &[Bytes],
    read_only: bool,
    overlay: &mut Overlay<'_>,
) -> RunResult<Reply> {
    if let Some(known) = script.known
        && !read_only
        && let Some(reply) = without_lua(known, keys, arguments, overlay)?
    {
        return Ok(reply);
    }
    if !overlay.may_run_lua {
        return Err(Stop::Lua);
    }
    lua::run(script, keys, arguments, read_only, overlay)
}

/// The reply of a well-known script; `None` if Lua must decide.
fn without_lua(
    known: KnownScript,
    keys: &[Bytes],
    arguments: &[Bytes],
    overlay: &mut Overlay<'_>,
) -> RunResult<Option<Reply>> {
    let (Some(key), Some(value)) = (keys.first(), arguments.first()) else { return Ok(None) };
    let Ok(name) = overlay.name(key) else { return Ok(None) };
    let ours = match overlay.content(&name)? {
        Content::Text(text) => text.as_bytes() == value,
        Content::Absent => {
            return Ok(Some(Reply::Integer(match known {
                KnownScript::Delete { absent } => absent,
                KnownScript::Extend { .. } => 0,
                KnownScript::Ttl => -3,
            })));
        }
        Content::Object(_) => return Ok(None),
    };
    if !ours {
        return Ok(Some(Reply::Integer(if known == KnownScript::Ttl { -3 } else { 0 })));
    }
    let done = match known {
        KnownScript::Delete { .. } => overlay.delete(&name).map(|_| 1),
        KnownScript::Extend { unit_ms } => {
            let time = arguments.get(1).and_then(|time| number::integer(time));
            let ms = time.and_then(|time| time.checked_mul(unit_ms));
            let ms = ms.and_then(|ms| u64::try_from(ms).ok());
            // For more than a thousand years, Lua finds Redis's error.
            let Some(ms) = ms.filter(|ms| (1..1 << 45).contains(ms)) else { return Ok(None) };
            overlay.expire(&name, Expiry::AfterMs(ms)).map(|()| 1)
        }
        KnownScript::Ttl => {
            let left = overlay.due_ms(&name)?.map(|due| due.saturating_sub(overlay.now_ms()));
            Ok(left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX)))
        }
    };
    match done {
        Ok(number) => Ok(Some(Reply::Integer(number))),
        Err(Stop::Error(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}
