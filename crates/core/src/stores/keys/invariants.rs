//! The invariants of keys, which must hold after every command.

use super::{Keys, StoredObject};
use crate::lines::{StoreAccess, check_index, ensure};

impl Keys {
    /// Checks everything; returns the first violation.
    pub(crate) fn check(&self, lines: &impl StoreAccess) -> Result<(), String> {
        let data = &self.data;
        check_index("objects", &self.objects, &data.objects)?;
        let due = data.due();
        ensure(due == self.due, || format!("ends {:?}, should be {due:?}", self.due))?;
        let listed = self.order.page(b"", None, usize::MAX);
        ensure(listed.len() == data.objects.len(), || format!("{} objects listed", listed.len()))?;
        for (_, stored) in data.objects.iter() {
            self.check_object(stored, lines)
                .map_err(|wrong| format!("object {}: {wrong}", stored.name))?;
        }
        let len = data.objects.len();
        ensure(len <= lines.limits().objects_max, || format!("beyond a bound: {len} objects"))
    }

    fn check_object(&self, stored: &StoredObject, lines: &impl StoreAccess) -> Result<(), String> {
        let StoredObject { name, object, version, .. } = stored;
        ensure(!object.is_empty(), || "empty".to_owned())?;
        ensure(*version <= self.data.changes, || "above the number of changes".to_owned())?;
        let line = lines.line(name).is_some_and(|line| line.has_tickets());
        ensure(!line, || "a ticket is in line under the same name".to_owned())?;
        let limits = lines.limits();
        let (max_len, max_bytes) = (limits.object_elements_max, limits.object_bytes_max);
        ensure(object.len() <= max_len && object.bytes() <= max_bytes, || "too large".to_owned())
    }
}
