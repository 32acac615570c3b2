//! The memory that records take, counted for one bound on all of them.

use crate::level::REQUESTS_LEVEL;

/// What a record takes beyond the few hundred bytes that its kind's own bound accounts for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of names, labels, notes, reasons, values and objects.
    pub(crate) texts: usize,
    /// Roughly what everything else takes that may be numerous. Counted since level
    /// [`REQUESTS_LEVEL`].
    pub(crate) rest: usize,
}

impl Weight {
    pub(crate) const NONE: Self = Self { texts: 0, rest: 0 };

    pub(crate) fn texts(texts: usize) -> Self {
        Self { texts, rest: 0 }
    }

    pub(crate) fn rest(rest: usize) -> Self {
        Self { texts: 0, rest }
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            texts: self.texts.saturating_add(more.texts),
            rest: self.rest.saturating_add(more.rest),
        }
    }

    pub(crate) fn without(self, less: Self) -> Self {
        Self {
            texts: self.texts.saturating_sub(less.texts),
            rest: self.rest.saturating_sub(less.rest),
        }
    }

    /// How many bytes count at a behaviour level.
    pub(crate) fn counted(self, level: u16) -> usize {
        let rest = if level >= REQUESTS_LEVEL { self.rest } else { 0 };
        self.texts.saturating_add(rest)
    }
}
