//! A folder of numbered versions for each resource: `KEY/00000000000000000001` and so on.
//!
//! A version is created and never changed. It holds the tokens and the whole value. To change the
//! resource, a writer reads the highest version `n`, decides, and creates `n + 1`; if that exists,
//! another writer was faster, and it starts over. So each version was decided from the one before it.
//!
//! Old versions are removed, but a number must not be used twice: a writer that read `n` and was then
//! paused would create `n + 1` after it was removed, and take that for success. Therefore each version
//! records a floor, and a version is removed only once there is another whose floor is above it. After
//! creating a version, a writer reads the highest version's floor: if its own number is below, that
//! number had been used before, and nothing has been written.

use super::record::Record;
use super::{Change, ObjectFence, Put, damaged, nonce, path, unavailable};
use crate::{Error, Fenced, Token};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode};

/// How many versions are kept below the highest, so that a reader that has just listed them still
/// finds the one it chose.
const KEPT: u64 = 8;
/// Decimal digits of the highest `u64`.
const DIGITS: usize = 20;
/// How often to list again while others write. Each time, another writer has made progress.
const LISTINGS_MAX: u32 = 100;

impl ObjectFence {
    /// The highest version, and its number.
    pub(super) async fn latest(&self, resource: &str) -> Result<Option<(u64, Record)>, Error> {
        let mut number = self.numbers(resource).await?.last().copied();
        for _ in 0..LISTINGS_MAX {
            let record = match number {
                Some(number) => self.version(resource, number).await?,
                None => None,
            };
            // A listing concurrent with writers may miss what they create.
            let again = self.numbers(resource).await?.last().copied();
            if again == number && (number.is_none() || record.is_some()) {
                return Ok(number.zip(record));
            }
            number = again;
        }
        Err(Error::Busy { resource: resource.into() })
    }

    /// One attempt. `None` means that another writer was faster: retry.
    pub(super) async fn append(
        &self,
        resource: &str,
        token: Token,
        change: &Change,
    ) -> Result<Option<Fenced>, Error> {
        let latest = self.latest(resource).await?;
        let before = latest.as_ref().map(|(_, record)| record);
        let seen = before.map(|record| record.highest).unwrap_or_default();
        let highest = seen.admit(resource, token)?;
        let value = change.value(before);
        if matches!(change, Change::Raise) && highest == seen {
            return Ok(Some(Fenced { highest, value }));
        }

        let number = latest.as_ref().map_or(0, |(number, _)| *number).saturating_add(1);
        let floor = before.map_or(1, |record| record.floor).max(number.saturating_sub(KEPT));
        let record = Record { highest, floor, nonce: nonce()?, value };
        let mut lost = None;
        let mut created = false;
        match self.put(&location(resource, number)?, &record, PutMode::Create).await {
            Put::Done(_) => created = true,
            Put::Unmet => {}
            Put::Unsupported(reason) => {
                return Err(Error::Unsupported { store: self.store.to_string(), reason });
            }
            Put::Failed(error) => return Err(unavailable(&self.store, error)),
            Put::Unknown(error) => lost = Some(error),
        }
        if !created {
            // If the reply was lost, the version there may be ours.
            let found = self.version(resource, number).await.unwrap_or(None);
            created = found.is_some_and(|found| found.nonce == record.nonce);
        }
        if created && self.is_first(resource, number).await? {
            self.remove_below(resource, floor).await;
            return Ok(Some(record.into_fenced()));
        }
        match lost {
            Some(error) if !created => {
                Err(Error::Unknown { store: self.store.to_string(), source: error.into() })
            }
            _ => Ok(None),
        }
    }

    /// Whether this number, which was just created, had never been used before.
    async fn is_first(&self, resource: &str, number: u64) -> Result<bool, Error> {
        let latest = self.latest(resource).await.map_err(|error| Error::Unknown {
            store: self.store.to_string(),
            source: error.into(),
        })?;
        Ok(latest.is_some_and(|(_, highest)| highest.floor <= number))
    }

    /// What can't be removed now is removed after a later write.
    async fn remove_below(&self, resource: &str, floor: u64) {
        let numbers = self.numbers(resource).await.unwrap_or_default();
        for number in numbers.into_iter().filter(|number| *number < floor) {
            if let Ok(location) = location(resource, number) {
                let _ = self.store.delete(&location).await;
            }
        }
    }

    /// The numbers of the existing versions, ascending.
    async fn numbers(&self, resource: &str) -> Result<Vec<u64>, Error> {
        let folder = path(resource.into())?;
        let listed = match self.store.list_with_delimiter(Some(&folder)).await {
            Ok(listed) => listed.objects,
            Err(StoreError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(unavailable(&self.store, error)),
        };
        let number = |name: &str| {
            let digits = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
            if digits { name.parse().ok() } else { None }
        };
        let names = listed.iter().filter_map(|object| object.location.filename());
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn version(&self, resource: &str, number: u64) -> Result<Option<Record>, Error> {
        let got = match self.store.get(&location(resource, number)?).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => match Record::decode(&bytes) {
                Ok(record) => Ok(Some(record)),
                Err(reason) => Err(damaged(resource, reason)),
            },
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(&self.store, error)),
        }
    }
}

fn location(resource: &str, number: u64) -> Result<Path, Error> {
    path(format!("{resource}/{number:0DIGITS$}"))
}
