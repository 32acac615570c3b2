//! The keys as a running job sees them: as they were read, overlaid with what it has written.
//!
//! A string key is a lock, so what a write becomes depends on the current value:
//!
//! - the same value again keeps the ticket and sets its lease;
//! - another value is a change of holder, refused while someone is waiting;
//! - incrementing a counter only changes the label;
//! - a deletion is a release.
//!
//! Tickets of other doors, and those for which a label is not enough, can be read but not written.

use super::local::Local;
use super::read_set::{ReadRequest, ReadSet};
use super::size::{self, WRITTEN_BYTES_MAX};
use super::{Database, RunResult};
use crate::error::Error;
use bytes::Bytes;
use holdfast_core::{
    Channel, Door, Expiry, InvalidField, Key, Label, Limits, LockName, Message, Object, Refusal,
    TextKey, Token, Transaction, Untouched, Write, WriteOp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Why a command could not continue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// This is its reply.
    Error(Error),
    /// Something has not been read yet.
    Missing,
    /// It must run where Lua is allowed.
    Lua,
    /// It depends on a number that is drawn only when the earlier writes are applied.
    Apart,
    /// It waits until one of these lists has an item.
    Block {
        /// The lists.
        names: Vec<LockName>,
        /// For how long; `None` means forever.
        wait_ms: Option<u64>,
    },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The current value of a key.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Absent,
    Text(Label),
    Object(Arc<Object>),
}

/// A key that this job has written.
#[derive(Debug, Clone)]
struct Written {
    content: Content,
    due_ms: Option<u64>,
    expiry: Expiry,
    /// Whether the original key was deleted in between.
    fresh: bool,
    how: WriteExtent,
}

/// How much of a key was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteExtent {
    Expiry,
    Label,
    Whole,
}

/// A point to roll back to: what had been written by then.
pub(crate) struct Mark {
    written: BTreeMap<LockName, Written>,
    written_bytes: usize,
    published: usize,
}

/// What a written key costs in memory in addition to its name and content.
const WRITTEN_KEY_BYTES: usize = 128;

impl Written {
    fn bytes(&self, name: &LockName) -> usize {
        let content = match &self.content {
            Content::Absent => 0,
            Content::Text(text) => text.as_bytes().len(),
            Content::Object(object) => size::kept_bytes(object),
        };
        content.saturating_add(name.as_bytes().len()).saturating_add(WRITTEN_KEY_BYTES)
    }
}

/// Keys as they were read, overlaid with what was written.
pub(crate) struct Overlay<'a> {
    seen: &'a ReadSet,
    pub(crate) local: &'a dyn Local,
    pub(crate) database: Database,
    /// Whether a command may block.
    pub(crate) may_block: bool,
    /// Whether Lua may run here.
    pub(crate) may_run_lua: bool,
    /// The current state of `math.random` for the job's scripts.
    pub(crate) random: u64,
    /// When the job's scripts must have ended: set by the first one.
    pub(crate) scripts_until: Option<Instant>,
    written: BTreeMap<LockName, Written>,
    /// Bytes of memory for everything written and published.
    written_bytes: usize,
    used: BTreeSet<LockName>,
    used_all: bool,
    publish: Vec<(Channel, Message)>,
    missing: ReadRequest,
    /// Whether the job must run again after what it wrote is applied.
    pub(crate) again: bool,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(
        seen: &'a ReadSet,
        local: &'a dyn Local,
        database: Database,
        random: u64,
    ) -> Self {
        Self {
            seen,
            local,
            database,
            may_block: false,
            may_run_lua: true,
            random,
            scripts_until: None,
            written: BTreeMap::new(),
            written_bytes: 0,
            used: BTreeSet::new(),
            used_all: false,
            publish: Vec::new(),
            missing: ReadRequest::default(),
            again: false,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.seen.now_ms
    }

    /// The lock name of a key in the selected database.
    pub(crate) fn name(&self, key: &[u8]) -> Result<LockName, Error> {
        self.database.name(key)
    }

    /// Whether anything was read that may have changed since.
    pub(crate) fn has_read(&self) -> bool {
        !self.used.is_empty() || self.seen.listing.is_some()
    }

    /// What has not been read yet; `None` if nothing is missing.
    pub(crate) fn missing(&self) -> Option<&ReadRequest> {
        let any = self.missing.listing || !self.missing.names.is_empty();
        any.then_some(&self.missing)
    }

    /// A key as it was read.
    fn before(&mut self, name: &LockName) -> RunResult<&'a Key> {
        match self.seen.keys.get(name) {
            Some((key, _)) => {
                self.used.insert(name.clone());
                Ok(key)
            }
            None => {
                self.missing.names.insert(name.clone());
                Err(Stop::Missing)
            }
        }
    }

    /// Announces the keys that are going to be read, so that they are fetched together.
    pub(crate) fn expect(&mut self, names: &[LockName]) -> RunResult<()> {
        let unread = names.iter().filter(|name| !self.seen.keys.contains_key(*name));
        self.missing.names.extend(unread.cloned());
        if self.missing.names.is_empty() { Ok(()) } else { Err(Stop::Missing) }
    }

    /// The listing of all keys as it was read. If `unchanged`, the transaction will require that no
    /// key has changed since.
    pub(crate) fn listing(&mut self, unchanged: bool) -> RunResult<&'a [super::Listed]> {
        match &self.seen.listing {
            Some(listing) => {
                self.used_all |= unchanged;
                Ok(listing.keys())
            }
            None => {
                self.missing.listing = true;
                Err(Stop::Missing)
            }
        }
    }

    /// Marks the current point, to roll back to.
    pub(crate) fn mark(&self) -> Mark {
        let (written, written_bytes) = (self.written.clone(), self.written_bytes);
        Mark { written, written_bytes, published: self.publish.len() }
    }

    /// Undoes everything written and published since the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        (self.written, self.written_bytes) = (mark.written, mark.written_bytes);
        self.publish.truncate(mark.published);
    }

    /// The keys that were written, with their current content.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&LockName, &Content)> {
        self.written.iter().map(|(name, written)| (name, &written.content))
    }

    /// The current value.
    pub(crate) fn content(&mut self, name: &LockName) -> RunResult<Content> {
        let before = self.before(name)?;
        Ok(match self.written.get(name) {
            Some(written) => written.content.clone(),
            None => content(before),
        })
    }

    /// The current string; an error if it is of another type.
    pub(crate) fn text(&mut self, name: &LockName) -> RunResult<Option<Label>> {
        match self.content(name)? {
            Content::Absent => Ok(None),
            Content::Text(text) => Ok(Some(text)),
            Content::Object(_) => Err(Error::WRONG_TYPE.into()),
        }
    }

    /// When it expires, in logical time; `None` if never, or if there is no such key.
    pub(crate) fn due_ms(&mut self, name: &LockName) -> RunResult<Option<u64>> {
        let before = self.before(name)?;
        Ok(match (self.written.get(name), before) {
            (Some(written), _) => written.due_ms,
            (None, Key::Text(text)) => text.due_ms,
            (None, Key::Object(object)) => object.due_ms,
            (None, Key::Absent) => None,
        })
    }

    /// The holder's token. [`Stop::Apart`] if a write draws a new ticket, whose number is not known
    /// before it is applied.
    pub(crate) fn token(&mut self, name: &LockName) -> RunResult<Option<Token>> {
        let before = match self.before(name)? {
            Key::Text(text) => Some((text.value.clone(), text.token)),
            Key::Object(_) | Key::Absent => None,
        };
        let Some(written) = self.written.get(name) else {
            return Ok(before.map(|(_, token)| token));
        };
        match (&written.content, before) {
            (Content::Absent | Content::Object(_), _) => Ok(None),
            // A write that keeps the value keeps the ticket; so does one that only changes the
            // label.
            (Content::Text(value), Some((same, token)))
                if !written.fresh && (*value == same || written.how == WriteExtent::Label) =>
            {
                Ok(Some(token))
            }
            (Content::Text(_), _) => Err(Stop::Apart),
        }
    }

    /// Refuses keys that this door may not write.
    fn writable(&mut self, name: &LockName) -> RunResult<()> {
        match self.before(name)? {
            Key::Text(text) if text.door != Door::Redis => {
                Err(held(name, text, Untouched::OtherDoor).into())
            }
            Key::Text(text) if !text.writable => Err(held(name, text, Untouched::NotAText).into()),
            _ => Ok(()),
        }
    }

    /// Refuses a change of holder while someone is waiting.
    fn not_waited_for(&mut self, name: &LockName) -> RunResult<()> {
        match self.before(name)? {
            Key::Text(text) if text.waiting > 0 => {
                Err(held(name, text, Untouched::WaitedFor).into())
            }
            _ => Ok(()),
        }
    }

    fn due_of(&self, expiry: Expiry, before: Option<u64>) -> Option<u64> {
        match expiry {
            Expiry::Keep => before,
            Expiry::Never => None,
            Expiry::AfterMs(ms) => Some(self.seen.now_ms.saturating_add(ms)),
        }
    }

    /// Sets a string.
    pub(crate) fn set_text(
        &mut self,
        name: &LockName,
        text: Label,
        expiry: Expiry,
    ) -> RunResult<()> {
        self.writable(name)?;
        let (content, due_ms) = (self.content(name)?, self.due_ms(name)?);
        let old = self.written.get(name);
        let (fresh, how) = old.map_or((false, WriteExtent::Expiry), |old| (old.fresh, old.how));
        let kept_expiry = old.map_or(Expiry::Keep, |old| old.expiry);
        let (how, expiry) = match content {
            Content::Object(_) => return Err(Error::WRONG_TYPE.into()),
            Content::Text(same) if same == text && how == WriteExtent::Label => {
                (WriteExtent::Label, expiry)
            }
            Content::Text(same) if same == text => (WriteExtent::Whole, expiry),
            Content::Text(_) => {
                self.not_waited_for(name)?;
                (WriteExtent::Whole, expiry)
            }
            Content::Absent => {
                if fresh {
                    self.not_waited_for(name)?;
                }
                (WriteExtent::Whole, if expiry == Expiry::Keep { Expiry::Never } else { expiry })
            }
        };
        let expiry_now = if expiry == Expiry::Keep { kept_expiry } else { expiry };
        let due_ms = self.due_of(expiry, due_ms);
        let content = Content::Text(text);
        self.write(name, Written { content, due_ms, expiry: expiry_now, fresh, how })
    }

    /// Records a write, if there is room for it.
    fn write(&mut self, name: &LockName, written: Written) -> RunResult<()> {
        let before = self.written.get(name).map_or(0, |before| before.bytes(name));
        let others = self.written_bytes.saturating_sub(before);
        self.written_bytes = self.has_room(others, written.bytes(name))?;
        self.written.insert(name.clone(), written);
        Ok(())
    }

    fn has_room(&self, has: usize, more: usize) -> Result<usize, Error> {
        let bytes = has.saturating_add(more);
        if bytes > WRITTEN_BYTES_MAX {
            return Err(size::refused(InvalidField::TransactionTooLarge));
        }
        Ok(bytes)
    }

    /// Changes a string whose holder stays the same.
    pub(crate) fn relabel(&mut self, name: &LockName, text: Label) -> RunResult<()> {
        self.writable(name)?;
        let due_ms = self.due_ms(name)?;
        let mut written = self.written.get(name).cloned().unwrap_or(Written {
            content: Content::Absent,
            due_ms,
            expiry: Expiry::Keep,
            fresh: false,
            how: WriteExtent::Expiry,
        });
        written.content = Content::Text(text);
        if written.how == WriteExtent::Expiry {
            written.how = WriteExtent::Label;
        }
        self.write(name, written)
    }

    /// Replaces a hash or list; an empty one is deleted.
    pub(crate) fn set_object(&mut self, name: &LockName, object: Object) -> RunResult<()> {
        if object.is_empty() {
            return self.delete(name).map(|_| ());
        }
        size::check_object(&object)?;
        self.writable(name)?;
        let due_ms = self.due_ms(name)?;
        let old = self.written.get(name);
        let (fresh, expiry) = old.map_or((false, Expiry::Keep), |old| (old.fresh, old.expiry));
        if fresh {
            self.not_waited_for(name)?;
        }
        let content = Content::Object(Arc::new(object));
        self.write(name, Written { content, due_ms, expiry, fresh, how: WriteExtent::Whole })
    }

    /// Deletes a key; returns whether it existed.
    pub(crate) fn delete(&mut self, name: &LockName) -> RunResult<bool> {
        if matches!(self.content(name)?, Content::Absent) {
            return Ok(false);
        }
        self.writable(name)?;
        let fresh = !matches!(self.before(name)?, Key::Absent);
        let gone = Written {
            content: Content::Absent,
            due_ms: None,
            expiry: Expiry::Never,
            fresh,
            how: WriteExtent::Whole,
        };
        self.write(name, gone)?;
        Ok(true)
    }

    /// Sets the expiry of an existing key.
    pub(crate) fn expire(&mut self, name: &LockName, expiry: Expiry) -> RunResult<()> {
        self.writable(name)?;
        let (content, due_ms) = (self.content(name)?, self.due_ms(name)?);
        let due_ms = self.due_of(expiry, due_ms);
        match self.written.get_mut(name) {
            Some(written) => (written.due_ms, written.expiry) = (due_ms, expiry),
            None => {
                let (fresh, how) = (false, WriteExtent::Expiry);
                self.write(name, Written { content, due_ms, expiry, fresh, how })?;
            }
        }
        Ok(())
    }

    /// Publishes a message, after all writes.
    pub(crate) fn publish(&mut self, channel: &Bytes, message: &Bytes) -> Result<(), Error> {
        let channel = Channel::parse(channel).map_err(|bad| Error::bad_text("this channel", bad));
        let message = Message::parse(message).map_err(|bad| Error::bad_text("this message", bad));
        let (channel, message) = (channel?, message?);
        if self.publish.len() >= Limits::DEFAULT.published_max {
            return Err(size::refused(InvalidField::TooManyPublished));
        }
        let bytes = channel.as_bytes().len().saturating_add(message.as_bytes().len());
        self.written_bytes = self.has_room(self.written_bytes, bytes)?;
        self.publish.push((channel, message));
        Ok(())
    }

    /// The transaction of what was written, conditional on what was read; `None` if nothing was
    /// written.
    pub(crate) fn into_transaction(self) -> Option<Transaction> {
        let seen = self.seen;
        let writes: Vec<Write> = self
            .written
            .into_iter()
            .filter_map(|(name, written)| {
                let (before, _) = seen.keys.get(&name)?;
                Some(Write { to: to(before, written)?, name })
            })
            .collect();
        if writes.is_empty() && self.publish.is_empty() {
            return None;
        }
        let stamp = |name| seen.keys.get(&name).map(|(_, stamp)| (name, *stamp));
        let listing = seen.listing.as_ref().filter(|_| self.used_all);
        Some(Transaction {
            door: Door::Redis,
            seen: self.used.into_iter().filter_map(stamp).collect(),
            seen_all: listing.map(|listing| listing.changed),
            writes,
            publish: self.publish,
        })
    }
}

fn content(key: &Key) -> Content {
    match key {
        Key::Absent => Content::Absent,
        Key::Text(text) => Content::Text(text.value.clone()),
        Key::Object(object) => Content::Object(object.object.clone()),
    }
}

/// What a write becomes in the core; `None` if the key was absent before and still is.
fn to(before: &Key, written: Written) -> Option<WriteOp> {
    let Written { content, expiry, fresh, how, .. } = written;
    Some(match (content, how) {
        (Content::Absent, _) => match before {
            Key::Absent => return None,
            Key::Text(_) | Key::Object(_) => WriteOp::Gone { forced: false },
        },
        (_, WriteExtent::Expiry) => WriteOp::Expiring(expiry),
        (Content::Text(value), WriteExtent::Label) => WriteOp::Relabel { value, expiry },
        (Content::Text(value), WriteExtent::Whole) => WriteOp::Text { value, expiry, fresh },
        (Content::Object(object), _) => {
            WriteOp::Object { object: Object::clone(&object), expiry, fresh }
        }
    })
}

fn held(name: &LockName, text: &TextKey, why: Untouched) -> Error {
    Error::refused(&Refusal::Held {
        name: name.clone(),
        token: text.token,
        label: Some(text.value.clone()),
        door: text.door,
        why,
    })
}
