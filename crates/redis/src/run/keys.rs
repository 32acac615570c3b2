//! Commands on keys of any type.

use super::overlay::Content;
use super::strings::after;
use super::{Database, Overlay, RunResult, Stop};
use crate::command::{Condition, ExpireTime, Keys, Scan};
use crate::error::Error;
use crate::glob;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{Expiry, KeyKind, LockName, Object};
use std::collections::BTreeMap;

/// How many keys `FLUSHDB` deletes per step: half of what a transaction may write.
const FLUSHED_AT_ONCE: usize = 256;

/// The minimum size of a `SCAN` page: each page looks through all keys.
const SCANNED_MIN: usize = 256;

/// The maximum number of pages in a whole scan, which would take hours with millions of keys.
const PAGES_MAX: usize = 64;

pub(super) fn run(command: &Keys, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Keys::Del(keys) => each(overlay, keys, |overlay, name| overlay.delete(name)),
        Keys::Exists(keys) => each(overlay, keys, |overlay, name| {
            Ok(!matches!(overlay.content(name)?, Content::Absent))
        }),
        Keys::Ttl { key, unit_ms, absolute } => ttl(overlay, key, *unit_ms, *absolute),
        Keys::Expire { key, when, only, command } => expire(overlay, key, *when, *only, command),
        Keys::Persist(key) => {
            let name = overlay.name(key)?;
            let ends = overlay.due_ms(&name)?.is_some();
            if ends {
                overlay.expire(&name, Expiry::Never)?;
            }
            Ok(ends.into())
        }
        Keys::Type(key) => {
            let name = overlay.name(key)?;
            let kind = kind(&overlay.content(&name)?);
            Ok(Reply::status(kind.map_or("none", kind_name)))
        }
        Keys::Keys(pattern) => {
            let keys = all(overlay)?;
            let found = keys.into_keys().filter(|key| glob::matches(pattern, key));
            Ok(Reply::Array(found.map(Reply::bulk).collect()))
        }
        Keys::Scan(scan) => page(overlay, scan),
        Keys::DbSize => Ok(Reply::count(all(overlay)?.len())),
        Keys::RandomKey => {
            let keys = all(overlay)?;
            let at = overlay.now_ms().checked_rem(keys.len() as u64).unwrap_or(0);
            let key = keys.into_keys().nth(usize::try_from(at).unwrap_or(0));
            Ok(key.map_or(Reply::Null, Reply::bulk))
        }
        Keys::Flush { all } => flush(overlay, *all),
    }
}

/// Counts the keys for which `one` returns true.
fn each(
    overlay: &mut Overlay<'_>,
    keys: &[Bytes],
    one: impl Fn(&mut Overlay<'_>, &LockName) -> RunResult<bool>,
) -> RunResult<Reply> {
    let names: Vec<LockName> =
        keys.iter().map(|key| overlay.name(key)).collect::<Result<_, Error>>()?;
    overlay.expect(&names)?;
    let mut count = 0;
    for name in &names {
        count += usize::from(one(overlay, name)?);
    }
    Ok(Reply::count(count))
}

fn ttl(overlay: &mut Overlay<'_>, key: &Bytes, unit_ms: u64, absolute: bool) -> RunResult<Reply> {
    let name = overlay.name(key)?;
    if matches!(overlay.content(&name)?, Content::Absent) {
        return Ok(Reply::Integer(-2));
    }
    let Some(due_ms) = overlay.due_ms(&name)? else { return Ok(Reply::Integer(-1)) };
    let left_ms = due_ms.saturating_sub(overlay.now_ms());
    let ms = if absolute { overlay.local.wall_ms().saturating_add(left_ms) } else { left_ms };
    // Rounded to the nearest unit.
    let units = ms.saturating_add(unit_ms / 2).checked_div(unit_ms).unwrap_or(0);
    Ok(Reply::Integer(i64::try_from(units).unwrap_or(i64::MAX)))
}

fn expire(
    overlay: &mut Overlay<'_>,
    key: &Bytes,
    when: ExpireTime,
    only: Condition,
    command: &str,
) -> RunResult<Reply> {
    let name = overlay.name(key)?;
    let expiry = after(overlay, when, command)?;
    if matches!(overlay.content(&name)?, Content::Absent) {
        return Ok(Reply::Integer(0));
    }
    let old = overlay.due_ms(&name)?;
    let new = match expiry {
        Some(Expiry::AfterMs(ms)) => overlay.now_ms().saturating_add(ms),
        _ => overlay.now_ms(),
    };
    let fits = !(only.none && old.is_some()
        || only.some && old.is_none()
        || only.later && old.is_none_or(|old| new <= old)
        || only.earlier && old.is_some_and(|old| new >= old));
    if fits {
        match expiry {
            Some(expiry) => overlay.expire(&name, expiry)?,
            None => {
                overlay.delete(&name)?;
            }
        }
    }
    Ok(fits.into())
}

fn kind(content: &Content) -> Option<KeyKind> {
    match content {
        Content::Absent => None,
        Content::Text(_) => Some(KeyKind::Text),
        Content::Object(object) => Some(Object::kind(object)),
    }
}

fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Text => "string",
        KeyKind::Hash => "hash",
        KeyKind::List => "list",
    }
}

/// All keys of the database, including what this job has written.
fn all(overlay: &mut Overlay<'_>) -> RunResult<BTreeMap<Vec<u8>, KeyKind>> {
    let database = overlay.database;
    let listing = overlay.listing(true)?;
    let key = |name: &LockName| database.key(name).map(<[u8]>::to_vec);
    let mut keys: BTreeMap<Vec<u8>, KeyKind> =
        listing.iter().filter_map(|listed| Some((key(&listed.name)?, listed.kind))).collect();
    for (name, content) in overlay.written() {
        let Some(key) = key(name) else { continue };
        match kind(content) {
            Some(kind) => keys.insert(key, kind),
            None => keys.remove(&key),
        };
    }
    Ok(keys)
}

/// One page. Keys are ordered by a number computed from their bytes alone, so that a page can start
/// where another ended, on any node, whatever has changed meanwhile.
fn page(overlay: &mut Overlay<'_>, scan: &Scan) -> RunResult<Reply> {
    let keys = all(overlay)?;
    let at_least = keys.len().div_ceil(PAGES_MAX).max(SCANNED_MIN);
    let numbered = keys.into_iter().map(|(key, kind)| (number(&key), key, kind));
    let mut rest: Vec<_> = numbered.filter(|(number, ..)| *number >= scan.cursor).collect();
    rest.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut len = scan.count.max(at_least).min(rest.len());
    // Keys with the same number are never split between pages.
    while len > 0 && len < rest.len() && rest[len - 1].0 == rest[len].0 {
        len += 1;
    }
    let cursor = rest.get(len).map_or(0, |(number, ..)| *number);
    let fits = |key: &[u8], kind: KeyKind| {
        scan.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
            && scan
                .kind
                .as_ref()
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind_name(kind).as_bytes()))
    };
    let found = rest.into_iter().take(len).filter(|(_, key, kind)| fits(key, *kind));
    let found = found.map(|(_, key, _)| Reply::bulk(key)).collect();
    Ok(Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)]))
}

/// FNV-1a over the bytes, the same everywhere. Never 0, which is where a scan starts and ends, and
/// below 2^63, because some clients store cursors as signed numbers.
fn number(key: &[u8]) -> u64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 1).max(1)
}

/// Deletes what this door may delete. If that is too much for one transaction, it is done step by
/// step, provided that the command runs alone.
fn flush(overlay: &mut Overlay<'_>, everywhere: bool) -> RunResult<Reply> {
    let alone = overlay.may_block;
    let database = overlay.database;
    let of_it = |name: &LockName| {
        if everywhere { true } else { Database::key(database, name).is_some() }
    };
    let listing = overlay.listing(!alone)?;
    let ours = listing.iter().filter(|listed| listed.ours && of_it(&listed.name));
    let ours = ours.take(FLUSHED_AT_ONCE.saturating_add(1));
    let mut names: Vec<LockName> = ours.map(|listed| listed.name.clone()).collect();
    let written: Vec<LockName> = overlay.written().map(|(name, _)| name.clone()).collect();
    if names.len() > FLUSHED_AT_ONCE {
        if !alone {
            return Err(Error::fixed(
                "ERR too many keys to flush in one transaction: send FLUSHDB alone",
            )
            .into());
        }
        names.truncate(FLUSHED_AT_ONCE);
        overlay.again = true;
    }
    overlay.expect(&names)?;
    for name in names.iter().chain(written.iter().filter(|name| of_it(name))) {
        match overlay.delete(name) {
            // Another client has taken it since the keys were listed: it is no longer ours.
            Ok(_) | Err(Stop::Error(_)) => {}
            Err(stop) => return Err(stop),
        }
    }
    Ok(Reply::OK)
}
