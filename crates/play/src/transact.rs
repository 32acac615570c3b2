//! Lines about keys: reading them, and writing several at once.

use crate::parse::{Error, duration_ms, name};
use crate::show;
use holdfast_core::{
    Channel, Door, Effect, Element, Expiry, Key, KeyKind, KeyPage, Label, LockName, Message,
    Object, Stamp, State, Token, Transaction, Write, WriteOp,
};

/// What an actor has read and not used yet.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    keys: Vec<(LockName, Stamp)>,
    all: Option<u64>,
}

/// What to write, without what was read before.
pub(crate) struct Exec {
    door: Door,
    writes: Vec<Write>,
    publish: Vec<(Channel, Message)>,
}

impl Seen {
    /// Reads keys, or all of them, and remembers their stamps.
    pub(crate) fn look(&mut self, names: &[LockName], state: &State) -> Vec<String> {
        if names.is_empty() {
            self.all = Some(state.keys_changed());
            return keys(&state.keys(b"", None, usize::MAX), "", usize::MAX);
        }
        self.keys.extend(names.iter().map(|name| (name.clone(), state.stamp(name))));
        names.iter().map(|name| key(name, &state.key(name), state.now_ms())).collect()
    }

    /// Builds the transaction, with everything that was read since the last one.
    pub(crate) fn with(&mut self, exec: Exec) -> Transaction {
        let Self { keys: seen, all: seen_all } = std::mem::take(self);
        let Exec { door, writes, publish } = exec;
        Transaction { door, seen, seen_all, writes, publish }
    }
}

/// The names after `look`; empty for `*`, which means all keys.
pub(crate) fn looked_at(words: &[String]) -> Result<Vec<LockName>, Error> {
    match words {
        [] => Err("say which keys, or * for all".to_owned()),
        [all] if all == "*" => Ok(Vec::new()),
        words => words.iter().map(|word| name(word)).collect(),
    }
}

/// `set a 1 ttl=5s; del b; publish news hello`
pub(crate) fn exec(words: &[String]) -> Result<Exec, Error> {
    let mut exec = Exec { door: Door::Redis, writes: Vec::new(), publish: Vec::new() };
    let mut words = words;
    if let [first, rest @ ..] = words
        && let Some(door) = first.strip_prefix("door=")
    {
        (exec.door, words) = (super::parse::door(door)?, rest);
    }
    let mut one = Vec::new();
    for word in words {
        let ends = word.ends_with(';');
        let word = word.trim_end_matches(';');
        one.extend((!word.is_empty()).then_some(word));
        if ends {
            exec.add(&one)?;
            one.clear();
        }
    }
    exec.add(&one)?;
    Ok(exec)
}

impl Exec {
    fn add(&mut self, words: &[&str]) -> Result<(), Error> {
        let [verb, on, rest @ ..] = words else {
            return match words {
                [] => Ok(()),
                _ => Err(format!("{} needs a name", words.join(" "))),
            };
        };
        if *verb == "publish" {
            let channel = Channel::parse(on).map_err(|error| error.to_string())?;
            let message = Message::parse(rest.join(" ")).map_err(|error| error.to_string())?;
            self.publish.push((channel, message));
            return Ok(());
        }
        self.writes.push(Write { name: name(on)?, to: to(verb, rest)? });
        Ok(())
    }
}

fn to(verb: &str, words: &[&str]) -> Result<WriteOp, Error> {
    let mut expiry = None;
    let (mut fresh, mut forced) = (false, false);
    let mut plain = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some(("ttl", ttl)) => expiry = Some(Expiry::AfterMs(duration_ms(ttl)?)),
            _ if *word == "keep" => expiry = Some(Expiry::Keep),
            _ if *word == "permanent" => expiry = Some(Expiry::Never),
            _ if *word == "fresh" => fresh = true,
            _ if *word == "forced" => forced = true,
            _ => plain.push(*word),
        }
    }
    let value = || Label::parse(plain.join(" ")).map_err(|error| error.to_string());
    let kept = expiry.unwrap_or(Expiry::Keep);
    Ok(match verb {
        "set" => WriteOp::Text { value: value()?, expiry: expiry.unwrap_or(Expiry::Never), fresh },
        "relabel" => WriteOp::Relabel { value: value()?, expiry: kept },
        "hash" => {
            let fields = plain.iter().map(|word| {
                let (field, value) = word.split_once('=').ok_or(format!("write {word}=VALUE"))?;
                Ok((element(field)?, element(value)?))
            });
            let object = Object::Hash(fields.collect::<Result<_, Error>>()?);
            WriteOp::Object { object, expiry: kept, fresh }
        }
        "list" => {
            let items = plain.iter().map(|word| element(word)).collect::<Result<_, _>>()?;
            WriteOp::Object { object: Object::List(items), expiry: kept, fresh }
        }
        "expire" => WriteOp::Expiring(expiry.ok_or("say when: ttl=5s, or permanent")?),
        "del" => WriteOp::Gone { forced },
        _ => return Err(format!("nothing is written with {verb}: type help")),
    })
}

fn element(text: &str) -> Result<Element, Error> {
    Element::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn key(name: &LockName, key: &Key, now_ms: u64) -> String {
    let until = |due_ms: Option<u64>| match due_ms {
        Some(due_ms) => format!("ends in {}", show::ms(due_ms.saturating_sub(now_ms))),
        None => "forever".to_owned(),
    };
    match key {
        Key::Absent => format!("{name} is absent"),
        Key::Text(text) => {
            let waiting = match text.waiting {
                0 => String::new(),
                waiting => format!(", {waiting} waiting"),
            };
            let (value, token, door, until) =
                (&text.value, text.token, text.door, until(text.due_ms));
            format!("{name} is {value:?} token={token} through the {door} door, {until}{waiting}")
        }
        Key::Object(key) => {
            let kind = key.object.kind();
            let (version, until) = (key.version, until(key.due_ms));
            format!("{name} is {kind} version={version}, {until}: {}", content(&key.object))
        }
    }
}

fn content(object: &Object) -> String {
    let words: Vec<String> = match object {
        Object::Hash(fields) => {
            fields.iter().map(|(field, value)| format!("{field}={value:?}")).collect()
        }
        Object::List(items) => items.iter().map(|item| format!("{item:?}")).collect(),
    };
    words.join(" ")
}

pub(crate) fn keys(page: &KeyPage, prefix: &str, limit: usize) -> Vec<String> {
    let line = |(name, kind): &(LockName, KeyKind)| format!("{name} is {kind}");
    let mut lines: Vec<String> = page.keys.iter().map(line).collect();
    if let Some(next_after) = &page.next_after {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix} ") };
        lines.push(format!("more: keys {prefix}after={next_after} limit={limit}"));
    }
    if lines.is_empty() {
        lines.push("no keys".to_owned());
    }
    lines
}

/// The tickets behind the writes, in the order of the writes.
pub(crate) fn applied(tokens: &[Option<Token>]) -> String {
    let word = |token: &Option<Token>| token.map_or("-".to_owned(), |token| token.to_string());
    let words: Vec<String> = tokens.iter().map(word).collect();
    if words.is_empty() {
        "applied".to_owned()
    } else {
        format!("applied token={}", words.join(","))
    }
}

/// What watchers see of objects and messages.
pub(crate) fn effect(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Relabelled { token, name, label } => {
            format!("{name} token={token} calls itself {label:?}")
        }
        Effect::ObjectChanged { name, now: Some(kind), version } => {
            format!("{name} is {kind} now, version={version}")
        }
        Effect::ObjectChanged { name, now: None, .. } => format!("{name} is gone"),
        Effect::Published { channel, message } => format!("published in {channel}: {message:?}"),
        _ => return None,
    })
}
