//! The audit as log lines, one for each record.

use holdfast_core::AuditRecord;

/// Logs a record, on every node.
pub(crate) fn log(record: &AuditRecord) {
    let AuditRecord { number, by, entry, refused, .. } = record;
    tracing::info!(
        target: "audit",
        number,
        user = by.user.as_ref().map(tracing::field::display),
        address = by.address.map(tracing::field::display),
        door = %by.door,
        action = %entry.action,
        subject = %entry.subject,
        detail = %entry.detail,
        refused = refused.as_ref().map(tracing::field::display),
        "audit"
    );
}
