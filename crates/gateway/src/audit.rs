//! What is recorded of clients: what a client repeats is recorded once in a while, so that nobody
//! can push others out of the record.

use crate::Caller;
use holdfast_core::{AuditAction, AuditEntry, Label, UserName};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How often the same thing is recorded of the same client.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Clients that are remembered. With the largest number, all stay near 1 MB.
const REMEMBERED_MAX: usize = 4_096;

/// An entry of the audit; `None` if one of the texts is too long.
pub fn audit_entry(action: AuditAction, subject: &[u8], detail: &str) -> Option<AuditEntry> {
    let (subject, detail) = (Label::parse(subject).ok()?, Label::parse(detail).ok()?);
    Some(AuditEntry { action, subject, detail })
}

/// Refused rights and failed logins that were recorded lately.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last: BTreeMap<(Option<IpAddr>, Option<UserName>, AuditAction), Duration>,
}

impl Repeats {
    /// Whether to record this now.
    pub(crate) fn is_news(&mut self, caller: &Caller, entry: &AuditEntry, now: Duration) -> bool {
        if !matches!(entry.action, AuditAction::RightRefused | AuditAction::LoginFailed) {
            return true;
        }
        let key = (caller.address(), caller.user().cloned(), entry.action);
        let due = self.last.get(&key).is_none_or(|last| now.saturating_sub(*last) >= AGAIN_AFTER);
        if due {
            if self.last.len() >= REMEMBERED_MAX {
                self.last.retain(|_, last| now.saturating_sub(*last) < AGAIN_AFTER);
            }
            if self.last.len() >= REMEMBERED_MAX {
                return false;
            }
            self.last.insert(key, now);
        }
        due
    }
}
