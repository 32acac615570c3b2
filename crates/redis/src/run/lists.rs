//! Lists.

use super::hashes::element;
use super::overlay::{Content, Stop};
use super::strings::places;
use super::{Overlay, RunResult};
use crate::command::{End, Lists};
use crate::error::Error;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{Element, LockName, Object};

pub(super) fn run(command: &Lists, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Lists::Push { key, end, items: new, only_present } => {
            let name = overlay.name(key)?;
            let mut items = items(overlay, &name)?;
            if *only_present && items.is_empty() {
                return Ok(Reply::Integer(0));
            }
            for item in new {
                let item = element(item)?;
                match end {
                    End::Left => items.insert(0, item),
                    End::Right => items.push(item),
                }
            }
            let len = items.len();
            overlay.set_object(&name, Object::List(items))?;
            Ok(Reply::count(len))
        }
        Lists::Pop(key, end, count) => {
            let name = overlay.name(key)?;
            let popped = pop(overlay, &name, *end, count.unwrap_or(1))?;
            Ok(match (popped, count) {
                (None, None) => Reply::Null,
                (None, Some(_)) => Reply::NullArray,
                (Some(items), Some(_)) => Reply::bulks(items.iter().map(Element::as_bytes)),
                (Some(items), None) => shown(items.first()),
            })
        }
        Lists::BlockingPop(keys, end, wait_ms) => blocking_pop(overlay, keys, *end, *wait_ms),
        Lists::Len(key) => {
            let name = overlay.name(key)?;
            Ok(Reply::count(items(overlay, &name)?.len()))
        }
        Lists::Range(key, from, until) => {
            let name = overlay.name(key)?;
            let items = items(overlay, &name)?;
            Ok(Reply::bulks(part(&items, *from, *until).iter().map(Element::as_bytes)))
        }
        Lists::Index(key, index) => {
            let name = overlay.name(key)?;
            let items = items(overlay, &name)?;
            if items.is_empty() {
                return Ok(Reply::Null);
            }
            Ok(shown(place(items.len(), index.clone()?).and_then(|place| items.get(place))))
        }
        Lists::Set(key, index, item) => {
            let name = overlay.name(key)?;
            let mut items = items(overlay, &name)?;
            if items.is_empty() {
                return Err(Error::fixed("ERR no such key").into());
            }
            let slot = place(items.len(), index.clone()?).and_then(|place| items.get_mut(place));
            *slot.ok_or(Error::fixed("ERR index out of range"))? = element(item)?;
            overlay.set_object(&name, Object::List(items))?;
            Ok(Reply::OK)
        }
        Lists::Rem(key, count, item) => {
            let name = overlay.name(key)?;
            let mut items = items(overlay, &name)?;
            let removed = remove(&mut items, *count, &element(item)?);
            if removed > 0 {
                overlay.set_object(&name, Object::List(items))?;
            }
            Ok(Reply::count(removed))
        }
        Lists::Trim(key, from, until) => {
            let name = overlay.name(key)?;
            let items = items(overlay, &name)?;
            let kept = part(&items, *from, *until).to_vec();
            if kept.len() < items.len() {
                overlay.set_object(&name, Object::List(kept))?;
            }
            Ok(Reply::OK)
        }
    }
}

fn shown(item: Option<&Element>) -> Reply {
    item.map_or(Reply::Null, |item| Reply::bulk(item.as_bytes()))
}

fn items(overlay: &mut Overlay<'_>, name: &LockName) -> RunResult<Vec<Element>> {
    match overlay.content(name)? {
        Content::Absent => Ok(Vec::new()),
        Content::Object(object) => match &*object {
            Object::List(items) => Ok(items.clone()),
            Object::Hash(_) => Err(Error::WRONG_TYPE.into()),
        },
        Content::Text(_) => Err(Error::WRONG_TYPE.into()),
    }
}

/// Pops items from an end, outermost first; `None` if there is no list.
fn pop(
    overlay: &mut Overlay<'_>,
    name: &LockName,
    end: End,
    count: usize,
) -> RunResult<Option<Vec<Element>>> {
    let mut items = items(overlay, name)?;
    if items.is_empty() {
        return Ok(None);
    }
    let count = count.min(items.len());
    let popped: Vec<Element> = match end {
        End::Left => items.drain(..count).collect(),
        End::Right => items.drain(items.len().saturating_sub(count)..).rev().collect(),
    };
    if count > 0 {
        overlay.set_object(name, Object::List(items))?;
    }
    Ok(Some(popped))
}

fn blocking_pop(
    overlay: &mut Overlay<'_>,
    keys: &[Bytes],
    end: End,
    wait_ms: Option<u64>,
) -> RunResult<Reply> {
    let names: Vec<LockName> =
        keys.iter().map(|key| overlay.name(key)).collect::<Result<_, Error>>()?;
    overlay.expect(&names)?;
    for (key, name) in keys.iter().zip(&names) {
        if let Some(items) = pop(overlay, name, end, 1)? {
            return Ok(Reply::Array(vec![Reply::Bulk(key.clone()), shown(items.first())]));
        }
    }
    if overlay.may_block { Err(Stop::Block { names, wait_ms }) } else { Ok(Reply::NullArray) }
}

fn place(len: usize, index: i64) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    usize::try_from(index).ok()
}

fn part(items: &[Element], from: i64, until: i64) -> &[Element] {
    match places(items.len(), from, until) {
        Some((from, until)) => items.get(from..=until).unwrap_or_default(),
        None => &[],
    }
}

/// Removes equal items: `count` from the front, or from the end if negative; 0 removes all.
fn remove(items: &mut Vec<Element>, count: i64, item: &Element) -> usize {
    let before = items.len();
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut keep = |has: &Element| {
        let goes = has == item && left > 0;
        left = left.saturating_sub(u64::from(goes));
        !goes
    };
    if count < 0 {
        items.reverse();
        items.retain(&mut keep);
        items.reverse();
    } else {
        items.retain(&mut keep);
    }
    before.saturating_sub(items.len())
}
