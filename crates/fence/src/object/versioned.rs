//! A folder of numbered versions for each resource: `KEY/00000000000000000001` and so on.
//!
//! A version is created once and never changed. It holds the tokens and the whole value. To change
//! the resource, a writer reads the highest version `n`, decides, and creates `n + 1`; if that
//! exists, another writer was faster, and it starts over. So each version was decided from the one
//! before it.
//!
//! Old versions are removed, which must not let a number be used twice: a writer that read `n` and
//! was then paused might create `n + 1` after it was removed, and take that for success. So after
//! creating a version, a writer looks at the highest one: its nonces tell whose write had the
//! number first. A version below the highest is never read again, so a second one does no harm.

use super::layout::other_layout;
use super::name::{folder_of, path_of, path_of_version, version_number};
use super::put::{Put, Uncertainty, put, settle};
use super::record::Record;
use super::{Change, Layout, ObjectFence, damaged, unavailable};
use crate::{Error, Token};
use object_store::{Error as StoreError, ObjectStoreExt, PutMode};

/// How many versions are kept below the highest, so that a reader that has just listed them still
/// finds the one it chose.
const KEPT: u64 = 8;
/// How often to list again while others write. Each time, another writer has made progress.
const LISTINGS_MAX: u32 = 100;

impl ObjectFence {
    /// The highest version.
    pub(super) async fn latest(&self, resource: &str) -> Result<Option<Record>, Error> {
        folder_of(resource)?;
        let mut number = self.numbers(resource).await?.last().copied();
        for _ in 0..LISTINGS_MAX {
            let record = match number {
                Some(number) => self.version(resource, number).await?,
                None => None,
            };
            // A listing that runs concurrently with writers may miss what they create.
            let again = self.numbers(resource).await?.last().copied();
            if again == number && number.is_none() {
                if !self.is_there(resource).await? {
                    return Ok(None);
                }
                return Err(other_layout(&self.store, resource, Layout::Conditional));
            }
            if again == number && record.is_some() {
                return Ok(record);
            }
            number = again;
        }
        let reason = format!("it changed {LISTINGS_MAX} times while it was read");
        Err(Error::Busy { resource: resource.into(), reason })
    }

    /// One attempt. `None` means that another writer was faster: retry.
    pub(super) async fn append(
        &self,
        resource: &str,
        token: Token,
        change: &Change,
    ) -> Result<Option<Record>, Error> {
        let before = self.latest(resource).await?;
        let record = change.apply(resource, token, before.as_ref())?;
        let path = path_of_version(resource, record.number)?;
        let doubt = match put(&self.store, &path, record.encode(), PutMode::Create).await {
            Put::Done(_) => Uncertainty::Created,
            Put::Unsupported(reason) => {
                return Err(Error::Unsupported { store: self.store.to_string(), reason });
            }
            Put::Failed(error) => return Err(unavailable(&self.store, error)),
            Put::Uncertainty(Uncertainty::Unmet { certain: true }) => return Ok(None),
            Put::Uncertainty(doubt) => doubt,
        };
        let current = self.latest(resource).await;
        let settled = settle(&self.store, record, doubt, current)?;
        if let Some(record) = &settled {
            self.remove_below(resource, record.number.saturating_sub(KEPT)).await;
        }
        Ok(settled)
    }

    /// Versions that can't be removed now are removed after a later write.
    async fn remove_below(&self, resource: &str, floor: u64) {
        let numbers = self.numbers(resource).await.unwrap_or_default();
        for number in numbers.into_iter().filter(|number| *number < floor) {
            if let Ok(path) = path_of_version(resource, number) {
                let _ = self.store.delete(&path).await;
            }
        }
        if let (Some(folder), Ok(path)) = (&self.folder, folder_of(resource)) {
            remove_staged(&folder.join(path.as_ref()), floor);
        }
    }

    /// Whether there is an object where the other layout keeps the resource.
    async fn is_there(&self, resource: &str) -> Result<bool, Error> {
        let path = folder_of(resource)?;
        // `LocalFileSystem` rejects names that look like those of its unfinished files, `NAME#N`.
        let after_hash = path.filename().and_then(|name| name.rsplit_once('#'));
        let like_staged =
            after_hash.is_some_and(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match self.store.head(&path).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(StoreError::Generic { store: "LocalFileSystem", .. }) if like_staged => Ok(false),
            Err(error) => Err(unavailable(&self.store, error)),
        }
    }

    /// The numbers of the existing versions, ascending.
    pub(super) async fn numbers(&self, resource: &str) -> Result<Vec<u64>, Error> {
        let listed = match self.store.list_with_delimiter(Some(&path_of(resource)?)).await {
            Ok(listed) => listed.objects,
            Err(StoreError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(unavailable(&self.store, error)),
        };
        let names = listed.iter().filter_map(|object| object.location.filename());
        let mut numbers: Vec<u64> = names.filter_map(version_number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn version(&self, resource: &str, number: u64) -> Result<Option<Record>, Error> {
        let got = match self.store.get(&path_of_version(resource, number)?).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got.map(|bytes| Record::decode(&bytes)) {
            Ok(Ok(record)) if record.number == number => Ok(Some(record)),
            Ok(Ok(_)) => Err(damaged(resource, "a version has the number of another")),
            Ok(Err(reason)) => Err(damaged(resource, reason)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(&self.store, error)),
        }
    }
}

/// Removes the leftovers of killed writers: `LocalFileSystem` first writes a version as `NUMBER#N`
/// and then links it to its name, and never lists or removes such a file.
fn remove_staged(folder: &std::path::Path, floor: u64) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let staged = name.to_str().and_then(|name| name.split_once('#'));
        let number = staged.and_then(|(number, _)| version_number(number));
        // A writer that is merely slow will find its number taken, and start over.
        if number.is_some_and(|number| number < floor) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
