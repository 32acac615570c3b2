//! Hashes.

use super::overlay::Content;
use super::{Overlay, RunResult};
use crate::command::Hashes;
use crate::error::Error;
use crate::number;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{Element, Object};
use std::collections::BTreeMap;

type Fields = BTreeMap<Element, Element>;

pub(super) fn run(command: &Hashes, overlay: &mut Overlay<'_>) -> RunResult<Reply> {
    match command {
        Hashes::Set(key, pairs) => Ok(Reply::count(set(overlay, key, pairs)?)),
        Hashes::MSet(key, pairs) => set(overlay, key, pairs).map(|_| Reply::OK),
        Hashes::SetNx(key, field, value) => {
            let has = fields(overlay, key)?.contains_key(&element(field)?);
            if !has {
                set(overlay, key, &[(field.clone(), value.clone())])?;
            }
            Ok((!has).into())
        }
        Hashes::Get(key, field) => Ok(shown(fields(overlay, key)?.get(&element(field)?))),
        Hashes::MGet(key, wanted) => {
            let fields = fields(overlay, key)?;
            let one = |field: &Bytes| Ok(shown(fields.get(&element(field)?)));
            Ok(Reply::Array(wanted.iter().map(one).collect::<Result<_, Error>>()?))
        }
        Hashes::GetAll(key) => {
            let fields = fields(overlay, key)?;
            let pair =
                |(field, value): (&Element, &Element)| (shown(Some(field)), shown(Some(value)));
            Ok(Reply::Map(fields.iter().map(pair).collect()))
        }
        Hashes::Del(key, unwanted) => {
            let mut fields = fields(overlay, key)?;
            let mut removed = 0;
            for field in unwanted {
                removed += usize::from(fields.remove(&element(field)?).is_some());
            }
            if removed > 0 {
                put(overlay, key, fields)?;
            }
            Ok(Reply::count(removed))
        }
        Hashes::Exists(key, field) => {
            Ok(fields(overlay, key)?.contains_key(&element(field)?).into())
        }
        Hashes::Len(key) => Ok(Reply::count(fields(overlay, key)?.len())),
        Hashes::Keys(key) => Ok(Reply::bulks(fields(overlay, key)?.keys().map(Element::as_bytes))),
        Hashes::Vals(key) => {
            Ok(Reply::bulks(fields(overlay, key)?.values().map(Element::as_bytes)))
        }
        Hashes::StrLen(key, field) => {
            let fields = fields(overlay, key)?;
            Ok(Reply::count(fields.get(&element(field)?).map_or(0, |value| value.as_bytes().len())))
        }
        Hashes::IncrBy(key, field, by) => {
            let old = fields(overlay, key)?.get(&element(field)?).cloned();
            let old = match old {
                None => 0,
                Some(value) => number::integer(value.as_bytes())
                    .ok_or(Error::fixed("ERR hash value is not an integer"))?,
            };
            let new = old.checked_add(*by).ok_or(Error::OVERFLOW)?;
            set(overlay, key, &[(field.clone(), Bytes::from(new.to_string()))])?;
            Ok(Reply::Integer(new))
        }
    }
}

pub(super) fn element(bytes: &[u8]) -> Result<Element, Error> {
    Element::parse(bytes).map_err(|bad| Error::bad_text("this", bad))
}

fn shown(value: Option<&Element>) -> Reply {
    value.map_or(Reply::Null, |value| Reply::bulk(value.as_bytes()))
}

fn fields(overlay: &mut Overlay<'_>, key: &Bytes) -> RunResult<Fields> {
    let name = overlay.name(key)?;
    match overlay.content(&name)? {
        Content::Absent => Ok(Fields::new()),
        Content::Object(object) => match &*object {
            Object::Hash(fields) => Ok(fields.clone()),
            Object::List(_) => Err(Error::WRONG_TYPE.into()),
        },
        Content::Text(_) => Err(Error::WRONG_TYPE.into()),
    }
}

fn put(overlay: &mut Overlay<'_>, key: &Bytes, fields: Fields) -> RunResult<()> {
    let name = overlay.name(key)?;
    overlay.set_object(&name, Object::Hash(fields))
}

fn set(overlay: &mut Overlay<'_>, key: &Bytes, pairs: &[(Bytes, Bytes)]) -> RunResult<usize> {
    let mut fields = fields(overlay, key)?;
    let mut new = 0;
    for (field, value) in pairs {
        new += usize::from(fields.insert(element(field)?, element(value)?).is_none());
    }
    put(overlay, key, fields)?;
    Ok(new)
}
