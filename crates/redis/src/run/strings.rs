//! String commands.

use super::overlay::Content;
use super::{Overlay, RunResult};
use crate::command::{Expire, ExpireTime, SetCondition, Strings};
use crate::error::Error;
use crate::number;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{Expiry, Label, LockName};

pub(super) fn run(command: &Strings, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Strings::Get(key) => {
            let name = overlay.name(key)?;
            Ok(shown(overlay.text(&name)?))
        }
        Strings::Set { key, value, only, get, expire } => {
            set(overlay, key, value, only, *get, *expire)
        }
        Strings::SetNx(key, value) => {
            let reply = set(overlay, key, value, &SetCondition::IfAbsent, false, Expire::Never)?;
            Ok((reply != Reply::Null).into())
        }
        Strings::GetDel(key) => {
            let name = overlay.name(key)?;
            let text = overlay.text(&name)?;
            overlay.delete(&name)?;
            Ok(shown(text))
        }
        Strings::GetEx(key, expire) => {
            let name = overlay.name(key)?;
            let text = overlay.text(&name)?;
            if text.is_some() {
                match expire.clone()? {
                    Expire::Keep => {}
                    expire => put_expiry(overlay, &name, expire)?,
                }
            }
            Ok(shown(text))
        }
        Strings::MGet(keys) => {
            let names: Vec<LockName> =
                keys.iter().map(|key| overlay.name(key)).collect::<Result<_, Error>>()?;
            overlay.expect(&names)?;
            let mut texts = Vec::with_capacity(names.len());
            for name in names {
                texts.push(match overlay.content(&name)? {
                    Content::Text(text) => shown(Some(text)),
                    Content::Absent | Content::Object(_) => Reply::Null,
                });
            }
            Ok(Reply::Array(texts))
        }
        Strings::MSet(pairs) => {
            for (key, value) in pairs {
                set(overlay, key, value, &SetCondition::Always, false, Expire::Never)?;
            }
            Ok(Reply::OK)
        }
        Strings::MSetNx(pairs) => {
            for (key, _) in pairs {
                let name = overlay.name(key)?;
                if !matches!(overlay.content(&name)?, Content::Absent) {
                    return Ok(Reply::Integer(0));
                }
            }
            for (key, value) in pairs {
                set(overlay, key, value, &SetCondition::Always, false, Expire::Never)?;
            }
            Ok(Reply::Integer(1))
        }
        Strings::IncrBy(key, by) => incr(overlay, key, *by),
        Strings::Append(key, more) => {
            let name = overlay.name(key)?;
            let old = overlay.text(&name)?;
            let mut whole = old.map_or_else(Vec::new, |old| old.as_bytes().to_vec());
            whole.extend_from_slice(more);
            let len = whole.len();
            overlay.set_text(&name, label(&whole)?, Expiry::Keep)?;
            Ok(Reply::count(len))
        }
        Strings::StrLen(key) => {
            let name = overlay.name(key)?;
            Ok(Reply::count(overlay.text(&name)?.map_or(0, |text| text.as_bytes().len())))
        }
        Strings::GetRange(key, from, until) => {
            let name = overlay.name(key)?;
            let text = overlay.text(&name)?;
            let text = text.as_ref().map_or(&[][..], |text| text.as_bytes());
            Ok(Reply::bulk(part(text, *from, *until)))
        }
        Strings::DelIf(key, only) => {
            let name = overlay.name(key)?;
            let fits = match only {
                SetCondition::IfEqual(value) => {
                    overlay.text(&name)?.is_some_and(|text| text.as_bytes() == value)
                }
                SetCondition::IfNotEqual(value) => {
                    overlay.text(&name)?.is_some_and(|text| text.as_bytes() != value)
                }
                _ => true,
            };
            Ok((fits && overlay.delete(&name)?).into())
        }
    }
}

fn shown(text: Option<Label>) -> Reply {
    text.map_or(Reply::Null, |text| Reply::bulk(text.as_bytes()))
}

fn label(value: &[u8]) -> Result<Label, Error> {
    Label::parse(value).map_err(|bad| Error::bad_text("this value", bad))
}

fn set(
    overlay: &mut Overlay<'_>,
    key: &Bytes,
    value: &Bytes,
    only: &SetCondition,
    get: bool,
    expire: Expire,
) -> RunResult<Reply> {
    let name = overlay.name(key)?;
    let value = label(value)?;
    let expiry = expiry(overlay, expire)?;
    let old = overlay.content(&name)?;
    let compares = matches!(only, SetCondition::IfEqual(_) | SetCondition::IfNotEqual(_));
    if matches!(old, Content::Object(_)) && (get || compares) {
        return Err(Error::WRONG_TYPE.into());
    }
    let fits = match (only, &old) {
        (SetCondition::Always, _) => true,
        (SetCondition::IfAbsent, old) => matches!(old, Content::Absent),
        (SetCondition::IfPresent, old) => !matches!(old, Content::Absent),
        (SetCondition::IfEqual(value), Content::Text(text)) => text.as_bytes() == value,
        (SetCondition::IfEqual(_), _) => false,
        (SetCondition::IfNotEqual(value), Content::Text(text)) => text.as_bytes() != value,
        (SetCondition::IfNotEqual(_), _) => true,
    };
    if fits {
        match expiry {
            Some(expiry) => overlay.set_text(&name, value, expiry)?,
            // It would expire before it begins.
            None => {
                overlay.delete(&name)?;
            }
        }
    }
    Ok(match old {
        Content::Text(text) if get => shown(Some(text)),
        _ if get || !fits => Reply::Null,
        _ => Reply::OK,
    })
}

/// The time from now; `None` if it is in the past.
pub(super) fn expiry(overlay: &Overlay<'_>, expire: Expire) -> Result<Option<Expiry>, Error> {
    match expire {
        Expire::Keep => Ok(Some(Expiry::Keep)),
        Expire::Never => Ok(Some(Expiry::Never)),
        Expire::Until(when, command) => after(overlay, when, command),
    }
}

/// The time from now; `None` if it is in the past, an error if it is too far in the future.
pub(super) fn after(
    overlay: &Overlay<'_>,
    when: ExpireTime,
    command: &str,
) -> Result<Option<Expiry>, Error> {
    let wall_ms = i64::try_from(overlay.local.wall_ms()).unwrap_or(i64::MAX);
    let left_ms = match when {
        ExpireTime::AfterMs(ms) => {
            wall_ms.checked_add(ms).ok_or_else(|| Error::expire_time(command))?;
            ms
        }
        ExpireTime::AtMs(ms) => ms.saturating_sub(wall_ms),
    };
    Ok(u64::try_from(left_ms).ok().filter(|ms| *ms > 0).map(Expiry::AfterMs))
}

fn put_expiry(overlay: &mut Overlay<'_>, name: &LockName, expire: Expire) -> RunResult<()> {
    match expiry(overlay, expire)? {
        Some(Expiry::Never) if overlay.due_ms(name)?.is_none() => Ok(()),
        Some(expiry) => overlay.expire(name, expiry),
        None => overlay.delete(name).map(|_| ()),
    }
}

fn incr(overlay: &mut Overlay<'_>, key: &Bytes, by: i64) -> RunResult<Reply> {
    let name = overlay.name(key)?;
    let old = overlay.text(&name)?;
    let number = match &old {
        None => 0,
        Some(text) => number::integer(text.as_bytes()).ok_or(Error::NOT_AN_INTEGER)?,
    };
    let number = number.checked_add(by).ok_or(Error::OVERFLOW)?;
    let text = label(number.to_string().as_bytes())?;
    match old {
        None => overlay.set_text(&name, text, Expiry::Never)?,
        Some(_) => overlay.relabel(&name, text)?,
    }
    Ok(Reply::Integer(number))
}

/// A part of a string; negative positions count from its end.
fn part(text: &[u8], from: i64, until: i64) -> &[u8] {
    match places(text.len(), from, until) {
        Some((from, until)) => text.get(from..=until).unwrap_or_default(),
        None => &[],
    }
}

/// The first and last position in range; `None` if the range is empty.
pub(super) fn places(len: usize, from: i64, until: i64) -> Option<(usize, usize)> {
    let len = i64::try_from(len).ok()?;
    if from < 0 && until < 0 && from > until {
        return None;
    }
    let place = |place: i64| if place < 0 { place.saturating_add(len).max(0) } else { place };
    let (from, until) = (place(from), place(until).min(len.saturating_sub(1)));
    if from > until || len == 0 {
        return None;
    }
    Some((usize::try_from(from).ok()?, usize::try_from(until).ok()?))
}
