//! One object for each resource, replaced only if it is still the one that was read.

use super::layout::other_layout;
use super::name::path_of;
use super::put::{Put, Uncertainty, put, settle};
use super::record::Record;
use super::{Change, Layout, ObjectFence, damaged, unavailable};
use crate::{Error, Token};
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, UpdateVersion};

impl ObjectFence {
    /// The object, and the version that a replacement must name.
    pub(super) async fn current(
        &self,
        resource: &str,
    ) -> Result<Option<(Record, UpdateVersion)>, Error> {
        let got = match self.store.get(&path_of(resource)?).await {
            Ok(got) => got,
            Err(StoreError::NotFound { .. }) => {
                if self.numbers(resource).await?.is_empty() {
                    return Ok(None);
                }
                return Err(other_layout(&self.store, resource, Layout::Versioned));
            }
            Err(error) => return Err(unavailable(&self.store, error)),
        };
        let version =
            UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
        let bytes = got.bytes().await.map_err(|error| unavailable(&self.store, error))?;
        let record = Record::decode(&bytes).map_err(|reason| damaged(resource, reason))?;
        Ok(Some((record, version)))
    }

    /// One attempt. `None` means that another writer was faster: retry.
    pub(super) async fn replace(
        &self,
        resource: &str,
        token: Token,
        change: &Change,
    ) -> Result<Option<Record>, Error> {
        let (before, mode) = match self.current(resource).await? {
            Some((before, version)) => (Some(before), PutMode::Update(version)),
            None => (None, PutMode::Create),
        };
        let record = change.apply(resource, token, before.as_ref())?;
        let doubt = match put(&self.store, &path_of(resource)?, record.encode(), mode).await {
            Put::Done(_) => return Ok(Some(record)),
            Put::Unsupported(reason) => {
                return Err(Error::Unsupported { store: self.store.to_string(), reason });
            }
            Put::Failed(error) => return Err(unavailable(&self.store, error)),
            Put::Uncertainty(Uncertainty::Unmet { certain: true }) => return Ok(None),
            Put::Uncertainty(doubt) => doubt,
        };
        let current = self.current(resource).await.map(|found| found.map(|(record, _)| record));
        settle(&self.store, record, doubt, current)
    }
}
