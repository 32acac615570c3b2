//! The latest records of who did what, in one bounded ring.

use super::Access;
use crate::access::{Actor, AuditEntry, AuditRecord, UserName};
use crate::effect::Effect;
use crate::limits::Limits;
use crate::lines::StoreAccess;
use crate::refusal::Refusal;
use crate::text::Label;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a record takes, besides its texts.
const RECORD_BYTES: usize = 160;

/// The ring, which snapshots share with the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    records: VecDeque<Arc<AuditRecord>>,
    /// Roughly what the records take.
    bytes: usize,
    next_number: u64,
}

fn bytes_of(record: &AuditRecord) -> usize {
    let user = record.by.user.as_ref().map_or(0, |user| UserName::as_str(user).len());
    let refused = record.refused.as_ref().map_or(0, |why| why.as_bytes().len());
    let AuditEntry { subject, detail, .. } = &record.entry;
    [user, refused, subject.as_bytes().len(), detail.as_bytes().len()]
        .into_iter()
        .fold(RECORD_BYTES, usize::saturating_add)
}

impl Audit {
    /// A ring of these records, oldest first.
    pub(crate) fn of(records: Vec<Arc<AuditRecord>>, next_number: u64) -> Self {
        let bytes = records.iter().map(|record| bytes_of(record));
        let bytes = bytes.fold(0, usize::saturating_add);
        Self { records: records.into(), bytes, next_number }
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &AuditRecord> {
        self.records.iter().map(AsRef::as_ref)
    }

    /// Oldest first, shared.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<AuditRecord>> {
        self.records.iter()
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    fn add(&mut self, record: Arc<AuditRecord>, limits: &Limits) {
        self.next_number = self.next_number.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes_of(&record));
        self.records.push_back(record);
        while self.records.len() > limits.audit_max || self.bytes > limits.audit_bytes_max {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
        }
    }
}

impl Access {
    /// Records what somebody did, or why it was refused.
    pub(crate) fn record(
        &mut self,
        by: Actor,
        entry: AuditEntry,
        refused: Option<&Refusal>,
        lines: &impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let shortened = |text: String| {
            let mut end = text.len().min(Label::BYTES_MAX);
            while !text.is_char_boundary(end) {
                end = end.saturating_sub(1);
            }
            Label::parse(text.get(..end)?).ok()
        };
        let record = Arc::new(AuditRecord {
            number: self.audit.next_number,
            at_ms: lines.now_ms(),
            wall_ms: lines.wall_ms(),
            by,
            entry,
            refused: refused.and_then(|refusal| shortened(refusal.to_string())),
        });
        effects.push(Effect::Audited(record.clone()));
        self.audit.add(record, lines.limits());
    }
}
