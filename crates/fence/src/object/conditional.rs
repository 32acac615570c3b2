//! One object for each resource, replaced only if it is still the one that was read.

use super::record::Record;
use super::{Change, ObjectFence, Put, damaged, nonce, path, unavailable};
use crate::{Error, Fenced, Token};
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, UpdateVersion};

impl ObjectFence {
    /// The object, and the version that a replacement must name.
    pub(super) async fn current(
        &self,
        resource: &str,
    ) -> Result<Option<(Record, UpdateVersion)>, Error> {
        let got = match self.store.get(&path(resource.into())?).await {
            Ok(got) => got,
            Err(StoreError::NotFound { .. }) => return Ok(None),
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
    ) -> Result<Option<Fenced>, Error> {
        let current = self.current(resource).await?;
        let before = current.as_ref().map(|(record, _)| record);
        let seen = before.map(|record| record.highest).unwrap_or_default();
        let highest = seen.admit(resource, token)?;
        let value = change.value(before);
        if matches!(change, Change::Raise) && highest == seen {
            return Ok(Some(Fenced { highest, value }));
        }

        let record = Record { highest, floor: 0, nonce: nonce()?, value };
        let mode = match current {
            Some((_, version)) => PutMode::Update(version),
            None => PutMode::Create,
        };
        let lost = match self.put(&path(resource.into())?, &record, mode).await {
            Put::Done(_) => return Ok(Some(record.into_fenced())),
            Put::Unsupported(reason) => {
                return Err(Error::Unsupported { store: self.store.to_string(), reason });
            }
            Put::Failed(error) => return Err(unavailable(&self.store, error)),
            Put::Unmet => None,
            Put::Unknown(error) => Some(error),
        };
        // The store's client retries a put whose reply is lost. If the first one took effect, the
        // second fails its condition because of it.
        let found = match (self.current(resource).await, &lost) {
            (Ok(found), _) => found,
            (Err(error), None) => return Err(error),
            (Err(_), Some(_)) => None,
        };
        if found.is_some_and(|(found, _)| found.nonce == record.nonce) {
            return Ok(Some(record.into_fenced()));
        }
        match lost {
            None => Ok(None),
            Some(error) => {
                Err(Error::Unknown { store: self.store.to_string(), source: error.into() })
            }
        }
    }
}
