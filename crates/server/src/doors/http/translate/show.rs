//! Replies as JSON.

pub(crate) use crate::doors::http::codec::text::show as text;
use holdfast_core::{Ending, Grant, Lease, LockName, LockView, Mode, Secret, TicketView};
use serde_json::{Value, json};

pub(crate) fn secret(secret: &Secret) -> String {
    secret.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit { .. } => "permit",
    }
}

pub(crate) fn ending(ending: &Ending) -> Value {
    json!({
        "how": ending.how.to_string(),
        "token": ending.token.0,
        "label": ending.label.as_ref().map(|label| text(label.as_bytes())),
        "note": ending.note.as_ref().map(|note| text(note.as_bytes())),
        "reason": ending.forced.as_ref().map(|forced| text(forced.reason.as_bytes())),
        "by": ending.forced.as_ref().map(|forced| text(forced.by.as_bytes())),
    })
}

/// A grant, as its holder sees it.
pub(crate) fn grant(grant: &Grant) -> Value {
    let after = grant.after.as_deref().unwrap_or_default();
    let of_first = after.first();
    let of_each = after.iter().map(|after| {
        json!({
            "name": text(after.name.as_bytes()),
            "ended": after.last.as_deref().map(ending),
            "needs_recovery": after.recover.as_deref().map(ending),
        })
    });
    let names: Vec<String> =
        grant.names.as_slice().iter().map(|name| text(name.as_bytes())).collect();
    let several = names.len() > 1;
    let mut value = json!({
        "fencing_token": grant.token.0,
        "secret": grant.secret.as_ref().map(secret),
        "names": names,
        "mode": mode(grant.mode),
        "ttl_ms": ttl_ms(grant.lease),
        "waited_ms": grant.waited_ms,
        "ended": of_first.and_then(|after| after.last.as_deref()).map(ending),
        "needs_recovery": of_first.and_then(|after| after.recover.as_deref()).map(ending),
    });
    if let (true, Some(fields)) = (several, value.as_object_mut()) {
        fields.insert("after".to_owned(), of_each.collect());
    }
    value
}

fn ttl_ms(lease: Lease) -> Option<u64> {
    match lease {
        Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => Some(ttl_ms),
        Lease::Session | Lease::Permanent => None,
    }
}

fn lease(lease: Lease) -> &'static str {
    match lease {
        Lease::Session => "session",
        Lease::Deadline { .. } | Lease::Unconfirmed { .. } => "deadline",
        Lease::Permanent => "permanent",
    }
}

/// A ticket, as any client may see it: without its secret.
pub(crate) fn ticket(ticket: &TicketView, now_ms: u64) -> Value {
    json!({
        "token": ticket.token.0,
        "label": ticket.label.as_ref().map(|label| text(label.as_bytes())),
        "note": ticket.note.as_ref().map(|note| text(note.as_bytes())),
        "session": ticket.session.map(|session| session.0),
        "mode": mode(ticket.mode),
        "lease": lease(ticket.lease),
        "door": format!("{:?}", ticket.door).to_lowercase(),
        "for_ms": ticket.for_ms,
        "ends_in_ms": ticket.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        "let_go_in_ms": ticket.revoked_until_ms.map(|until_ms| until_ms.saturating_sub(now_ms)),
        "holding": ticket.claims.iter().map(|token| token.0).collect::<Vec<_>>(),
        "names": ticket.names.as_slice().iter().map(|n| text(n.as_bytes())).collect::<Vec<_>>(),
    })
}

pub(crate) fn lock(lock: &LockView, now_ms: u64) -> Value {
    let tickets = |tickets: &[TicketView]| -> Vec<Value> {
        tickets.iter().map(|view| ticket(view, now_ms)).collect()
    };
    json!({
        "name": text(lock.name.as_bytes()),
        "permits": lock.permits,
        "holding": lock.holding,
        "holders": tickets(&lock.holders),
        "waiting": lock.waiting,
        "waiters": tickets(&lock.waiters),
        "ended": lock.last.as_deref().map(ending),
        "needs_recovery": lock.needs_recovery.as_deref().map(ending),
        "delayed_for_ms": lock.delayed_until_ms.map(|until_ms| until_ms.saturating_sub(now_ms)),
    })
}

/// A lock that nobody holds or waits for.
pub(crate) fn nobody(name: &LockName) -> Value {
    json!({
        "name": text(name.as_bytes()),
        "permits": null,
        "holding": 0,
        "holders": [],
        "waiting": 0,
        "waiters": [],
        "ended": null,
        "needs_recovery": null,
        "delayed_for_ms": null,
    })
}
