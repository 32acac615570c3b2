//! Publish/subscribe commands.

use super::Command;
use super::args::{exactly, is};
use super::table::{NOWHERE, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Publish/subscribe commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PubSub {
    /// `SUBSCRIBE`.
    Subscribe(Vec<Bytes>),
    /// `PSUBSCRIBE`.
    PSubscribe(Vec<Bytes>),
    /// `UNSUBSCRIBE`; empty means all.
    Unsubscribe(Vec<Bytes>),
    /// `PUNSUBSCRIBE`; empty means all.
    PUnsubscribe(Vec<Bytes>),
    /// `PUBLISH`.
    Publish(Bytes, Bytes),
    /// `PUBSUB CHANNELS`.
    Channels(Option<Bytes>),
    /// `PUBSUB NUMSUB`.
    NumSub(Vec<Bytes>),
    /// `PUBSUB NUMPAT`.
    NumPat,
}

const FLAGS: &str = "pubsub noscript loading stale";

pub(super) const TABLE: &[Spec] = &[
    spec("subscribe", -2, FLAGS, NOWHERE, "pubsub", "Listen to channels", |a| {
        Ok(Command::PubSub(PubSub::Subscribe(a.to_vec())))
    }),
    spec(
        "psubscribe",
        -2,
        FLAGS,
        NOWHERE,
        "pubsub",
        "Listen to channels that match patterns",
        |a| Ok(Command::PubSub(PubSub::PSubscribe(a.to_vec()))),
    ),
    spec("unsubscribe", -1, FLAGS, NOWHERE, "pubsub", "Stop listening to channels", |a| {
        Ok(Command::PubSub(PubSub::Unsubscribe(a.to_vec())))
    }),
    spec("punsubscribe", -1, FLAGS, NOWHERE, "pubsub", "Stop listening to patterns", |a| {
        Ok(Command::PubSub(PubSub::PUnsubscribe(a.to_vec())))
    }),
    spec(
        "publish",
        3,
        "pubsub loading stale fast",
        NOWHERE,
        "pubsub",
        "Send a message to a channel",
        |a| {
            let [channel, message] = exactly(a, "publish")?;
            Ok(Command::PubSub(PubSub::Publish(channel.clone(), message.clone())))
        },
    ),
    spec(
        "pubsub",
        -2,
        "pubsub loading stale",
        NOWHERE,
        "pubsub",
        "List the subscribers on this node",
        pubsub,
    ),
];

fn pubsub(a: &[Bytes]) -> Result<Command, Error> {
    let [what, rest @ ..] = a else { return Err(Error::arity("pubsub")) };
    Ok(Command::PubSub(if is(what, "channels") {
        match rest {
            [] => PubSub::Channels(None),
            [pattern] => PubSub::Channels(Some(pattern.clone())),
            _ => return Err(Error::arity("pubsub|channels")),
        }
    } else if is(what, "numsub") {
        PubSub::NumSub(rest.to_vec())
    } else if is(what, "numpat") {
        if !rest.is_empty() {
            return Err(Error::arity("pubsub|numpat"));
        }
        PubSub::NumPat
    } else if is(what, "shardnumsub") || is(what, "shardchannels") {
        // Cluster clients ask for these, and recognise an older server by the wording of this
        // error.
        return Err(Error::unknown_command(what, rest));
    } else {
        return Err(Error::unknown_subcommand("pubsub", what));
    }))
}
