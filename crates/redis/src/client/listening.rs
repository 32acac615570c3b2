//! A connection's subscriptions.

use super::{Client, Plan};
use crate::error::Error;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::Channel;

/// Channels and patterns that one connection may subscribe to.
const SUBSCRIBED_MAX: usize = 1_024;

impl Client {
    pub(super) fn subscribe(&mut self, names: &[Bytes], patterns: bool) -> Result<Plan, Error> {
        let has = self.channels.len().saturating_add(self.patterns.len());
        if has.saturating_add(names.len()) > SUBSCRIBED_MAX {
            return Err(Error::fixed("ERR too many subscriptions on one connection"));
        }
        for name in names {
            Channel::parse(name).map_err(|bad| Error::bad_text("this channel", bad))?;
        }
        let word = if patterns { "psubscribe" } else { "subscribe" };
        let mut replies = Vec::new();
        for name in names {
            let name = Bytes::copy_from_slice(name);
            if patterns { &mut self.patterns } else { &mut self.channels }.insert(name.clone());
            replies.push(self.subscription(word, Reply::Bulk(name)));
        }
        Ok(Plan::Reply(replies))
    }

    pub(super) fn unsubscribe(&mut self, names: &[Bytes], patterns: bool) -> Vec<Reply> {
        let word = if patterns { "punsubscribe" } else { "unsubscribe" };
        let has = if patterns { &self.patterns } else { &self.channels };
        let names: Vec<Bytes> =
            if names.is_empty() { has.iter().cloned().collect() } else { names.to_vec() };
        if names.is_empty() {
            return vec![self.subscription(word, Reply::Null)];
        }
        let mut replies = Vec::new();
        for name in names {
            if patterns { &mut self.patterns } else { &mut self.channels }.remove(&name);
            replies.push(self.subscription(word, Reply::Bulk(name)));
        }
        replies
    }

    fn subscription(&self, word: &str, name: Reply) -> Reply {
        let count = self.channels.len().saturating_add(self.patterns.len());
        Reply::Push(vec![Reply::bulk(word), name, Reply::count(count)])
    }

    /// The client's copies of a message: one for its channel, and one for each matching pattern.
    pub fn deliver(&self, channel: &[u8], message: &[u8]) -> Vec<Reply> {
        let mut messages = Vec::new();
        if self.channels.contains(channel) {
            messages.push(Reply::Push(vec![
                Reply::bulk("message"),
                Reply::bulk(channel),
                Reply::bulk(message),
            ]));
        }
        let fits = self.patterns.iter().filter(|pattern| crate::glob::matches(pattern, channel));
        messages.extend(fits.map(|pattern| {
            Reply::Push(vec![
                Reply::bulk("pmessage"),
                Reply::Bulk(pattern.clone()),
                Reply::bulk(channel),
                Reply::bulk(message),
            ])
        }));
        messages
    }
}
