//! A held lock: a key, and the lease it is attached to.

use super::acquire::{validity, whole_seconds};
use super::client::Client;
use super::proto::{KeyValue, PutRequest};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

pub(super) struct EtcdHold {
    client: Arc<Client>,
    key: Vec<u8>,
    /// The key's first lease in hex: unique to the acquisition.
    proof: String,
    /// The key's current lease; zero if unknown. Locked while it changes.
    lease: Mutex<i64>,
}

fn over() -> Error {
    Error::NotHeld("the lease has run out or was revoked".to_owned())
}

impl EtcdHold {
    pub(super) fn held(client: Arc<Client>, key: Vec<u8>, proof: String, lease: i64) -> Self {
        Self { client, key, proof, lease: Mutex::new(lease) }
    }

    pub(super) fn attached(client: Arc<Client>, key: Vec<u8>, proof: String) -> Self {
        Self { client, key, proof, lease: Mutex::new(0) }
    }

    /// Moves the key to a lease with the new TTL, because a lease's TTL can't be changed. A lease
    /// left over from an interrupted move has no key, and expires by itself.
    async fn move_to_longer_lease(&self, key: KeyValue, ttl: Duration) -> Result<i64, Error> {
        let mut known = self.lease.lock().await;
        let (lease, granted) = self.client.grant(whole_seconds(ttl)).await?;
        let put = PutRequest { key: self.key.clone(), value: key.value, lease };
        // Until the reply arrives, the key may be attached to either.
        let was_known = std::mem::take(&mut *known) != 0;
        let moved = self.client.move_key(put, key.mod_revision).await?;
        if moved != Some(lease) {
            // Best effort: no key is attached to it.
            drop(self.client.revoke(lease).await);
            let elsewhere = || Error::Unreachable("the lease was moved meanwhile".to_owned());
            return Err(moved.map_or_else(over, |_| elsewhere()));
        }
        if was_known {
            *known = lease;
        }
        drop(self.client.revoke(key.lease).await);
        Ok(granted)
    }

    /// Why the lease of a key is gone: the key is gone with it, or was moved to another lease,
    /// possibly by another process.
    async fn without_lease(&self) -> Error {
        match self.client.get(&self.key).await {
            Ok(None) => over(),
            Ok(Some(_)) => Error::Unreachable("the lease was moved meanwhile".to_owned()),
            Err(failure) => failure.into(),
        }
    }
}

impl Hold for EtcdHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            let key = self.client.get(&self.key).await?.ok_or_else(over)?;
            let mut granted = self.client.keep_alive(key.lease).await?;
            if granted <= 0 {
                return Err(self.without_lease().await);
            }
            if granted < whole_seconds(ttl) {
                granted = self.move_to_longer_lease(key, ttl).await?;
            }
            Ok(validity(sent, ttl, granted))
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let mut known = self.lease.lock().await;
            let lease = match *known {
                0 => self.client.get(&self.key).await?.ok_or_else(over)?.lease,
                lease => lease,
            };
            if self.client.revoke(lease).await? {
                return Ok(());
            }
            *known = 0;
            Err(self.without_lease().await)
        })
    }

    /// A late renewal only prolongs a lease. A late move must not happen, so the key is put once
    /// more: the move then finds that the key was modified.
    fn settle(&self) -> Step<'_, Option<Moment>> {
        Box::pin(async move {
            let _known = self.lease.lock().await;
            let Some(key) = self.client.get(&self.key).await? else { return Ok(None) };
            let put = PutRequest { key: key.key, value: key.value, lease: key.lease };
            match self.client.move_key(put, key.mod_revision).await? {
                Some(lease) if lease != key.lease => {
                    Err(Error::Unreachable("the lease was moved meanwhile".to_owned()))
                }
                _ => Ok(None),
            }
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move {
            let key = self.client.get(&self.key).await?.ok_or_else(over)?;
            let left = self.client.time_to_live(key.lease).await?.ok_or_else(over)?;
            Ok(Duration::from_secs(left))
        })
    }

    fn proof(&self) -> Option<String> {
        Some(self.proof.clone())
    }
}
