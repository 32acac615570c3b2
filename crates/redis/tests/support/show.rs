//! Replies and effects as lines that a person can read.

use holdfast_core::{Effect, TicketStatus};
use holdfast_redis::resp::Reply;

pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Status(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Error(error) => format!("(error) {error}"),
        Reply::Integer(number) => format!("(integer) {number}"),
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Null | Reply::NullArray => "(nil)".to_owned(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            format!("[{}]", items.iter().map(self::reply).collect::<Vec<_>>().join(", "))
        }
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| {
                format!("{}: {}", self::reply(key), self::reply(value))
            };
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Reply::Boolean(yes) => yes.to_string(),
        Reply::Double(number) => format!("(double) {number}"),
        Reply::BigNumber(digits) => format!("(big) {}", digits.escape_ascii()),
    }
}

pub(crate) fn ticket_status(status: &TicketStatus) -> String {
    match status {
        TicketStatus::Held(grant) => format!("holds, token={}", grant.token),
        TicketStatus::Waiting { token, .. } => format!("waits, token={token}"),
        TicketStatus::Over { token, how } => format!("over, token={token} {how}"),
    }
}

pub(crate) fn effect(effect: &Effect) -> Option<String> {
    let name = effect.names().first().map(ToString::to_string).unwrap_or_default();
    Some(match effect {
        Effect::Granted(grant) => {
            let after = grant.after.iter().flat_map(|after| after.iter()).find_map(|after| {
                let last = after.last.as_ref()?;
                Some(format!(" after token={} {}", last.token, last.how))
            });
            let label = grant.label.as_ref().map(ToString::to_string).unwrap_or_default();
            format!(
                "  {name}: token={} is served, {label}{}",
                grant.token,
                after.unwrap_or_default()
            )
        }
        Effect::Ended(ended) => format!("  {name}: token={} is over, {}", ended.token, ended.how),
        Effect::Relabelled { token, label, .. } => {
            format!("  {name}: token={token} calls itself {label}")
        }
        Effect::ObjectChanged { now, .. } => match now {
            Some(kind) => format!("  {name}: is {kind} now"),
            None => format!("  {name}: is gone"),
        },
        Effect::Published { channel, message } => format!("  said in {channel}: {message}"),
        _ => return None,
    })
}
