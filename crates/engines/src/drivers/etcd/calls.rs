//! The etcd calls that locks are made of.

use super::client::{Client, Failure, ROUND_PAUSE, Repeat};
use super::proto;
use crate::clock::Moment;
use proto::compare::{CompareTarget, TargetUnion};
use proto::kv_client::KvClient;
use proto::lease_client::LeaseClient;
use proto::maintenance_client::MaintenanceClient;
use proto::range_request::{SortOrder, SortTarget};
use proto::request_op::Request as Op;
use proto::response_op::Response as OpResponse;
use proto::watch_client::WatchClient;
use proto::{KeyValue, RangeRequest, RangeResponse};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};

/// Keys read at a time when looking for the holder or a predecessor. More than one is needed only
/// if other locks have names below this one (`a/b` below `a`).
pub(super) const PAGE: i64 = 8;

/// The keys of one lock, exactly as etcd's own `concurrency.Mutex` and lock service lay them out:
/// `NAME/LEASE`, with the lease in hex. The one with the lowest create revision holds the lock.
#[derive(Clone)]
pub(super) struct LockKeys {
    prefix: Vec<u8>,
}

impl LockKeys {
    pub(super) fn of(name: &str) -> Self {
        Self { prefix: format!("{name}/").into_bytes() }
    }

    pub(super) fn key(&self, suffix: &str) -> Vec<u8> {
        [&self.prefix, suffix.as_bytes()].concat()
    }

    /// The lease in a key's name; `None` if the key belongs to another lock, whose name starts with
    /// this one's and a slash.
    pub(super) fn suffix<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let suffix = std::str::from_utf8(key.strip_prefix(self.prefix.as_slice())?).ok()?;
        is_lease(suffix).then_some(suffix)
    }

    fn range(&self) -> RangeRequest {
        let mut range_end = self.prefix.clone();
        // Ends in a slash, so the next prefix is one higher.
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        RangeRequest {
            key: self.prefix.clone(),
            range_end,
            sort_order: SortOrder::Ascend as i32,
            sort_target: SortTarget::Create as i32,
            ..RangeRequest::default()
        }
    }
}

/// Whether this is a lease id in the format that etcd uses in keys.
pub(super) fn is_lease(text: &str) -> bool {
    (1..=16).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A lease id of our own choosing, to recognise a grant whose reply was lost.
fn new_lease_id() -> Result<i64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Lost(format!("no random numbers: {error}")))?;
    // Zero would make etcd choose, and negative ids are not portable.
    Ok((i64::from_be_bytes(bytes) & i64::MAX).max(1))
}

/// A key in line, and the rest of the line when it was put there.
pub(super) struct Entered {
    pub(super) create_revision: i64,
    /// The keys of the lock, oldest first, as far as they were read.
    pub(super) line: Vec<KeyValue>,
    /// Whether `line` includes everything up to our own key.
    pub(super) complete: bool,
}

impl Client {
    pub(super) async fn status(&self) -> Result<proto::StatusResponse, Failure> {
        self.call(Repeat::Once, proto::StatusRequest {}, async |channel, request| {
            MaintenanceClient::new(channel).status(request).await
        })
        .await
    }

    /// Checks that requests are accepted at all.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        let message =
            RangeRequest { key: b"\0".to_vec(), serializable: true, ..RangeRequest::default() };
        match self.range(Repeat::Once, message).await {
            Ok(_) => Ok(()),
            // This key is off limits, but those of the locks may not be.
            Err(Failure::Refused { status, .. }) if status.code() == Code::PermissionDenied => {
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Creates a lease; returns its id and the seconds granted. Each request has its own id: one
    /// that arrives late creates a lease that no key is ever attached to, and that expires by
    /// itself.
    pub(super) async fn grant(&self, ttl: i64) -> Result<(i64, i64), Failure> {
        let give_up = Moment::now().plus(self.timeout());
        loop {
            let id = new_lease_id()?;
            let message = proto::LeaseGrantRequest { ttl, id };
            let granted = self
                .call(Repeat::Never, message, async |channel, request| {
                    LeaseClient::new(channel).lease_grant(request).await
                })
                .await;
            match granted {
                Ok(granted) => return Ok((id, granted.ttl)),
                Err(Failure::Lost(_)) if !give_up.has_passed() => {
                    sleep(ROUND_PAUSE.min(give_up.remaining())).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Ends a lease and deletes its keys. Returns false if it did not exist.
    pub(super) async fn revoke(&self, id: i64) -> Result<bool, Failure> {
        let message = proto::LeaseRevokeRequest { id };
        let revoked = self
            .call(Repeat::UntilTimeout, message, async |channel, request| {
                LeaseClient::new(channel).lease_revoke(request).await
            })
            .await;
        match revoked {
            Ok(_) => Ok(true),
            Err(Failure::Refused { status, repeated }) if status.code() == Code::NotFound => {
                if repeated {
                    return Err(Failure::Lost("the answer to the release was lost".to_owned()));
                }
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Renews a lease. Returns its new TTL in seconds, zero if it is gone.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<i64, Failure> {
        let message = proto::LeaseKeepAliveRequest { id };
        let kept = self
            .call(Repeat::UntilTimeout, message, async |channel, request| {
                let (metadata, extensions, message) = request.into_parts();
                let once = tokio_stream::once(message);
                let request = Request::from_parts(metadata, extensions, once);
                let answers = LeaseClient::new(channel).lease_keep_alive(request).await?;
                let (metadata, mut answers, extensions) = answers.into_parts();
                let answer = answers.message().await?;
                let answer = answer.ok_or_else(|| Status::unavailable("the stream ended"))?;
                Ok(tonic::Response::from_parts(metadata, answer, extensions))
            })
            .await?;
        Ok(kept.ttl.max(0))
    }

    /// Seconds until the lease ends; `None` if it is gone.
    pub(super) async fn time_to_live(&self, id: i64) -> Result<Option<u64>, Failure> {
        let message = proto::LeaseTimeToLiveRequest { id };
        let answer = self
            .call(Repeat::UntilTimeout, message, async |channel, request| {
                LeaseClient::new(channel).lease_time_to_live(request).await
            })
            .await?;
        Ok(u64::try_from(answer.ttl).ok())
    }

    async fn range(&self, repeat: Repeat, message: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call(repeat, message, async |channel, request| {
            KvClient::new(channel).range(request).await
        })
        .await
    }

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, Failure> {
        let message = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
        Ok(self.range(Repeat::UntilTimeout, message).await?.kvs.into_iter().next())
    }

    /// The keys of a lock, oldest first, at most `limit`.
    pub(super) async fn line(&self, keys: &LockKeys, limit: i64) -> Result<Vec<KeyValue>, Failure> {
        let message = RangeRequest { limit, ..keys.range() };
        let mut line = self.range(Repeat::UntilTimeout, message).await?.kvs;
        line.retain(|kv| keys.suffix(&kv.key).is_some());
        Ok(line)
    }

    async fn txn(&self, message: proto::TxnRequest) -> Result<proto::TxnResponse, Failure> {
        self.call(Repeat::UntilTimeout, message, async |channel, request| {
            KvClient::new(channel).txn(request).await
        })
        .await
    }

    /// Puts a key in line, unless an earlier attempt did.
    pub(super) async fn enter(
        &self,
        keys: &LockKeys,
        put: proto::PutRequest,
    ) -> Result<Entered, Failure> {
        let own = RangeRequest { key: put.key.clone(), ..RangeRequest::default() };
        let line = RangeRequest { limit: PAGE, ..keys.range() };
        let absent = compare(&put.key, CompareTarget::Create, TargetUnion::CreateRevision(0));
        let answer = self
            .txn(proto::TxnRequest {
                compare: vec![absent],
                success: vec![
                    op(Op::RequestPut(put.clone())),
                    op(Op::RequestRange(own.clone())),
                    op(Op::RequestRange(line.clone())),
                ],
                failure: vec![op(Op::RequestRange(own)), op(Op::RequestRange(line))],
            })
            .await?;
        let mut ranges = answer.responses.into_iter().filter_map(range_of);
        let malformed = || Failure::Lost("etcd's answer is not what was asked for".to_owned());
        let own = ranges.next().and_then(|range| range.kvs.into_iter().next());
        let create_revision = own.ok_or_else(malformed)?.create_revision;
        let range = ranges.next().ok_or_else(malformed)?;
        let mut line = range.kvs;
        let complete = !range.more || line.iter().any(|kv| kv.key == put.key);
        line.retain(|kv| keys.suffix(&kv.key).is_some());
        Ok(Entered { create_revision, line, complete })
    }

    /// The key right before this one in line, if any, and the revision at which it was read.
    pub(super) async fn predecessor(
        &self,
        keys: &LockKeys,
        create_revision: i64,
    ) -> Result<Option<(KeyValue, i64)>, Failure> {
        let mut below = create_revision;
        loop {
            let message = RangeRequest {
                sort_order: SortOrder::Descend as i32,
                max_create_revision: below - 1,
                limit: PAGE,
                ..keys.range()
            };
            let answer = self.range(Repeat::UntilTimeout, message).await?;
            let revision = answer.header.map_or(0, |header| header.revision);
            let Some(last) = answer.kvs.last() else { return Ok(None) };
            below = last.create_revision;
            let found = answer.kvs.into_iter().find(|kv| keys.suffix(&kv.key).is_some());
            if let Some(found) = found {
                return Ok(Some((found, revision)));
            }
            // `max_create_revision` of zero would mean no limit.
            if !answer.more || below <= 1 {
                return Ok(None);
            }
        }
    }

    /// Attaches a key to a lease, possibly a different one than before, unless it was modified
    /// since `seen`. Returns its lease afterwards; `None` if the key is gone.
    pub(super) async fn move_key(
        &self,
        put: proto::PutRequest,
        seen: i64,
    ) -> Result<Option<i64>, Failure> {
        let (key, to) = (put.key.clone(), put.lease);
        let own = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let answer = self
            .txn(proto::TxnRequest {
                compare: vec![compare(&key, CompareTarget::Mod, TargetUnion::ModRevision(seen))],
                success: vec![op(Op::RequestPut(put))],
                failure: vec![op(Op::RequestRange(own))],
            })
            .await?;
        if answer.succeeded {
            return Ok(Some(to));
        }
        let range = answer.responses.into_iter().find_map(range_of);
        Ok(range.and_then(|range| range.kvs.into_iter().next()).map(|kv| kv.lease))
    }

    /// Resolves when a key is deleted after `revision`, or when it is time to look again because
    /// the watch ended.
    pub(super) async fn deleted(&self, key: &[u8], revision: i64) {
        let create = proto::WatchCreateRequest {
            key: key.to_vec(),
            start_revision: revision + 1,
            filters: vec![proto::watch_create_request::FilterType::Noput as i32],
        };
        let union = proto::watch_request::RequestUnion::CreateRequest(create);
        let message = proto::WatchRequest { request_union: Some(union) };
        // The request stream stays open: closing it would end the watch.
        let messages = tokio_stream::once(message).chain(tokio_stream::pending());
        let (index, channel, request) = self.prepare(messages);
        let watch = async {
            let mut client = WatchClient::new(channel);
            let opened = timeout(self.timeout(), client.watch(request)).await;
            let mut answers = opened.map_err(drop)?.map_err(drop)?.into_inner();
            loop {
                let answer = answers.message().await.map_err(drop)?.ok_or(())?;
                let deleted = proto::event::EventType::Delete as i32;
                if answer.canceled || answer.events.iter().any(|event| event.r#type == deleted) {
                    return Ok::<(), ()>(());
                }
            }
        };
        if watch.await.is_err() {
            /// Keeps callers that look again after a failed watch out of a tight loop.
            const PAUSE: Duration = Duration::from_millis(100);
            self.turn_from(index);
            sleep(PAUSE).await;
        }
    }
}

fn op(request: Op) -> proto::RequestOp {
    proto::RequestOp { request: Some(request) }
}

fn range_of(op: proto::ResponseOp) -> Option<RangeResponse> {
    match op.response {
        Some(OpResponse::ResponseRange(range)) => Some(range),
        _ => None,
    }
}

fn compare(key: &[u8], target: CompareTarget, union: TargetUnion) -> proto::Compare {
    let (key, target) = (key.to_vec(), target as i32);
    proto::Compare { result: 0, target, key, target_union: Some(union) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_nested_locks_are_distinguished() {
        let keys = LockKeys::of("a");
        assert_eq!(keys.suffix(b"a/694d81a3b2c40e0f"), Some("694d81a3b2c40e0f"));
        for other in ["a/b/694d81a3b2c40e0f", "a/", "a/xyz", "ab/694d", "a/694d81a3b2c40e0f0"] {
            assert_eq!(keys.suffix(other.as_bytes()), None, "{other}");
        }
    }
}
