//! Transactions: keys read now or earlier, and what to write.

use super::super::moves::{KeyPick, Pick, TransactMove, When, WriteMove, WritePick};
use super::commands::label;
use super::{KEYS, Player, lock_names, parsed};
use holdfast_core::{
    Channel, Command, Door, Element, Key, Label, LockName, Message, Object, Stamp, State,
    Transaction, Write, WriteOp,
};

/// How many keys that were read earlier are still used.
const READ_KEPT: usize = 40;

impl Player {
    pub(super) fn transact(&mut self, transact: &TransactMove, state: &State) -> Command {
        let seen = transact.reads.iter().filter_map(|read| self.read(read.name, read.when, state));
        let seen = seen.collect();
        let seen_all = transact.all.map(|when| self.read_all(when, state));
        let mut writes: Vec<Write> = Vec::new();
        for write in &transact.writes {
            let Some(name) = name_of(write.name) else { continue };
            if transact.odd || writes.iter().all(|other| other.name != name) {
                writes.push(Write { to: to(write, &name, state), name });
            }
        }
        let said = |number: u8| {
            let channel = Channel::parse("news").expect("short");
            (channel, Message::parse([number]).expect("short"))
        };
        let publish = (0..transact.publish).map(said).collect();
        Command::Transact(Transaction { door: transact.door, seen, seen_all, writes, publish })
    }

    fn read(&mut self, name: Pick, when: When, state: &State) -> Option<(LockName, Stamp)> {
        if let When::Earlier(pick) = when
            && let Some(read) = pick.of(&self.read)
        {
            return Some(read.clone());
        }
        let name = name.of(&lock_names())?.clone();
        let read = (name.clone(), state.stamp(&name));
        self.read.push(read.clone());
        let old = self.read.len().saturating_sub(READ_KEPT);
        self.read.drain(..old);
        Some(read)
    }

    fn read_all(&mut self, when: When, state: &State) -> u64 {
        if let When::Earlier(pick) = when
            && let Some(read) = pick.of(&self.read_all)
        {
            return *read;
        }
        self.read_all.push(state.keys_changed());
        state.keys_changed()
    }

    /// Commands that remove every object.
    pub(crate) fn remove_objects(&self, state: &State) -> Vec<Command> {
        let is_object = |name: &LockName| matches!(state.key(name), Key::Object(_));
        let names = lock_names().into_iter().filter(is_object);
        let remove = |name| {
            Command::Transact(Transaction {
                door: Door::Redis,
                seen: Vec::new(),
                seen_all: None,
                writes: vec![Write { name, to: WriteOp::Gone { forced: false } }],
                publish: Vec::new(),
            })
        };
        names.map(remove).collect()
    }
}

fn name_of(pick: KeyPick) -> Option<LockName> {
    match pick {
        KeyPick::Usual(pick) => pick.of(&parsed(KEYS.into_iter())).cloned(),
        KeyPick::Any(pick) => pick.of(&lock_names()).cloned(),
    }
}

fn to(write: &WriteMove, name: &LockName, state: &State) -> WriteOp {
    let WriteMove { what, expiry, fresh, .. } = *write;
    let text = |value: Label| WriteOp::Text { value, expiry, fresh };
    match what {
        WritePick::Text(number) => text(label(number)),
        WritePick::SameText => match state.key(name) {
            Key::Text(key) => text(key.value),
            _ => text(label(7)),
        },
        WritePick::Relabel(number) => WriteOp::Relabel { value: label(number), expiry },
        WritePick::Hash(len) => {
            let fields = (0..len).map(|number| (element(number), element(number)));
            WriteOp::Object { object: Object::Hash(fields.collect()), expiry, fresh }
        }
        WritePick::List(len) => {
            let items = (0..len).map(element).collect();
            WriteOp::Object { object: Object::List(items), expiry, fresh }
        }
        WritePick::Expiring => WriteOp::Expiring(expiry),
        WritePick::Gone { forced } => WriteOp::Gone { forced },
    }
}

fn element(number: u8) -> Element {
    Element::parse(vec![b'x'; usize::from(number)]).expect("short")
}
