//! Taking a lock: a lease, a key in line, and a watch on the key ahead of it.

use super::calls::{LockKeys, PAGE};
use super::client::{Client, Failure};
use super::hold::EtcdHold;
use super::inspect::label;
use super::proto::{KeyValue, PutRequest};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request, Validity};
use crate::error::Error;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::Code;

/// How many times per TTL a waiter renews its own lease.
const RENEWALS_PER_TTL: u32 = 3;

/// A waiter looks again after this long, whatever the watch reports.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The pause between attempts to remove the key of a waiter that has left.
const LEAVE_PAUSE: Duration = Duration::from_secs(1);

/// etcd checks for expired leases twice a second and revokes them through its log.
const EXPIRY_SLACK: Duration = Duration::from_secs(2);

/// etcd's TTLs are whole seconds. Rounded up: a lease never ends earlier than requested.
pub(super) fn whole_seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// For a lease that was granted or renewed by a request sent at `sent`. `granted` (in seconds) may
/// be longer than the requested `ttl`, but the holder counts on `ttl` only.
pub(super) fn validity(sent: Moment, ttl: Duration, granted: i64) -> Validity {
    let granted = Duration::from_secs(u64::try_from(granted).unwrap_or(0)).max(ttl);
    let Validity { valid_until, .. } = Validity::of_ttl(sent, ttl);
    Validity { valid_until, over_by: Moment::now().plus(granted + granted / 10 + EXPIRY_SLACK) }
}

/// How waiting in line ended.
enum WaitResult {
    Held {
        granted: i64,
        sent: Moment,
        create_revision: i64,
    },
    Busy {
        holder: Option<String>,
    },
    /// The lease expired while waiting: this process was suspended, or etcd was unreachable.
    Expired,
}

pub(super) async fn acquire(client: &Arc<Client>, request: &Request) -> Result<Acquired, Error> {
    loop {
        let sent = Moment::now();
        let (lease, granted) = client.grant(whole_seconds(request.ttl)).await?;
        let place = Place::new(client, request, lease);
        let error = match place.wait(sent, granted).await {
            Ok(WaitResult::Held { granted, sent, create_revision }) => {
                let hold = EtcdHold::held(client.clone(), place.key, place.suffix, place.lease);
                return Ok(Acquired::Held(Held {
                    hold: Arc::new(hold),
                    token: Some(Token::new(u64::try_from(create_revision).unwrap_or(0))),
                    ending: None,
                    validity: validity(sent, request.ttl, granted),
                }));
            }
            Ok(WaitResult::Busy { holder }) => {
                place.leave().await?;
                return Ok(Acquired::Busy { holder });
            }
            Ok(WaitResult::Expired) => {
                place.leave().await?;
                if request.is_given_up() {
                    return Ok(Acquired::Busy { holder: None });
                }
                continue;
            }
            Err(failure) => failure,
        };
        place.leave_after(&error).await?;
        return Err(error.into());
    }
}

/// A place in line: a lease, and a key attached to it.
struct Place<'a> {
    client: &'a Arc<Client>,
    request: &'a Request,
    keys: LockKeys,
    lease: i64,
    suffix: String,
    key: Vec<u8>,
}

impl<'a> Place<'a> {
    fn new(client: &'a Arc<Client>, request: &'a Request, lease: i64) -> Self {
        let (keys, suffix) = (LockKeys::of(&request.name), format!("{lease:x}"));
        let key = keys.key(&suffix);
        Self { client, request, keys, lease, suffix, key }
    }

    /// Waits with a lease of `granted` seconds that was requested at `sent`.
    async fn wait(&self, sent: Moment, granted: i64) -> Result<WaitResult, Failure> {
        let put = PutRequest {
            key: self.key.clone(),
            value: self.request.label.clone().into_bytes(),
            lease: self.lease,
        };
        let entered = match self.client.enter(&self.keys, put).await {
            Ok(entered) => entered,
            Err(failure) if is_gone(&failure) => return Ok(WaitResult::Expired),
            Err(failure) => return Err(failure),
        };
        let create_revision = entered.create_revision;
        let first = entered.line.first().filter(|_| entered.complete);
        // If it took long to get here, the lease is renewed first.
        let is_fresh = !sent.plus(self.request.ttl / 2).has_passed();
        if is_fresh && first.is_some_and(|first| first.key == self.key) {
            return Ok(WaitResult::Held { granted, sent, create_revision });
        }
        let mut holder = first.filter(|first| first.key != self.key).map(label);
        loop {
            let found = self.client.predecessor(&self.keys, create_revision).await?;
            let Some((predecessor, revision)) = found else {
                // The lease may be nearly over by now, or gone.
                let sent = Moment::now();
                let Some(granted) = self.renew().await? else { return Ok(WaitResult::Expired) };
                return Ok(WaitResult::Held { granted, sent, create_revision });
            };
            if self.request.is_given_up() {
                return Ok(WaitResult::Busy {
                    holder: holder.or_else(|| Some(label(&predecessor))),
                });
            }
            if !self.wait_for(&predecessor, revision).await? {
                return Ok(WaitResult::Expired);
            }
            // Only callers that give up want the holder's label.
            if self.request.is_given_up() {
                let line = self.client.line(&self.keys, PAGE).await?;
                holder = line.first().filter(|first| first.key != self.key).map(label);
            }
        }
    }

    /// Waits until the key ahead is gone, the wait is over, or it is time to look again. Returns
    /// false if our own lease is over.
    async fn wait_for(&self, predecessor: &KeyValue, revision: i64) -> Result<bool, Failure> {
        let member = self.client.current();
        let look_again = Moment::now().plus(LOOK_EVERY);
        let deleted = self.client.deleted(&predecessor.key, revision);
        tokio::pin!(deleted);
        loop {
            tokio::select! {
                biased;
                () = self.request.given_up() => return Ok(true),
                () = &mut deleted => return Ok(true),
                () = sleep(self.request.ttl / RENEWALS_PER_TTL) => {}
            }
            if self.renew().await?.is_none() {
                return Ok(false);
            }
            // When a member fails, its watches go with it.
            if self.client.current() != member || look_again.has_passed() {
                return Ok(true);
            }
        }
    }

    /// Renews the lease. Returns the seconds granted, or `None` if the lease or its key is gone.
    async fn renew(&self) -> Result<Option<i64>, Failure> {
        let granted = self.client.keep_alive(self.lease).await?;
        let key = self.client.get(&self.key).await?;
        Ok(key.filter(|_| granted > 0).map(|_| granted))
    }

    /// Leaves the line: revoking the lease deletes its key, and a put that is still in flight finds
    /// no lease. Continues in the background if etcd does not answer.
    async fn leave(&self) -> Result<(), Error> {
        self.leave_within(self.client.timeout()).await
    }

    /// Leaves the line after an error.
    async fn leave_after(&self, failure: &Failure) -> Result<(), Error> {
        let lost = matches!(failure, Failure::Lost(_));
        // After a timeout there is little hope of a reply now.
        self.leave_within(if lost { LEAVE_PAUSE } else { self.client.timeout() }).await
    }

    async fn leave_within(&self, limit: Duration) -> Result<(), Error> {
        let (client, lease) = (self.client.clone(), self.lease);
        let over_by = Validity::unsure(self.request.ttl.max(Duration::from_secs(1)) + EXPIRY_SLACK);
        let mut leaving = self.request.finish_later(async move {
            let mut result = client.revoke(lease).await;
            while matches!(result, Err(Failure::Lost(_))) && !over_by.has_passed() {
                sleep(LEAVE_PAUSE.min(over_by.remaining())).await;
                result = client.revoke(lease).await;
            }
        });
        match timeout(limit, &mut leaving).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Unsure {
                until: over_by.wall_clock(),
                cause: "etcd does not answer".to_owned(),
            }),
        }
    }
}

/// Whether etcd says that the lease does not exist.
fn is_gone(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { status, .. } if status.code() == Code::NotFound)
}
