//! A held lock: a node that is first in its line.

use super::line::Place;
use super::session::{ErrorClass, Sessions, meaning, refused, retry};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity, reached};
use crate::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use zookeeper_client::Error as ZkError;

/// The session is kept alive for all its locks at once, so the end of each lease is enforced here:
/// a task deletes the node if nobody extends the lease in time, or if a release did not get
/// through.
pub(super) struct ZooKeeperHold {
    /// For deleting a node whose session may be over only by this process's clock.
    sessions: Arc<Sessions>,
    place: Place,
    /// The TTL that the lock was taken with, and is renewed with.
    ttl: Duration,
    lease: Arc<watch::Sender<Lease>>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    ends: Moment,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// The node is known to be gone.
    Gone,
    /// The node must be deleted: the lease ran out, or its hold was dropped.
    Over,
}

impl ZooKeeperHold {
    pub(super) fn new(sessions: Arc<Sessions>, place: Place, ttl: Duration) -> Self {
        let ends = Moment::now().plus(place.session.lease(ttl));
        let lease = Arc::new(watch::Sender::new(Lease { ends, phase: Phase::Held }));
        tokio::spawn(watch_over(place.clone(), lease.clone()));
        Self { sessions, place, ttl, lease }
    }

    /// Ends the phase `Held`.
    fn end(&self, phase: Phase) {
        self.lease.send_if_modified(|lease| {
            let held = lease.phase == Phase::Held;
            if held {
                lease.phase = phase;
            }
            held
        });
    }

    /// Confirms through the leader that the node exists.
    async fn confirm(&self) -> Result<(), Error> {
        let (client, path) = (&self.place.session.client, self.place.path());
        let stat = retry(|| {
            let (synced, stat) = (client.sync(&path), client.check_stat(&path));
            async move {
                synced.await?;
                stat.await
            }
        });
        match self.place.session.limited(stat).await? {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Error::NotHeld("somebody deleted its node".to_owned())),
            Err(error) => Err(not_held(&error)),
        }
    }
}

/// What an error means for a held lock.
fn not_held(error: &ZkError) -> Error {
    match (error, meaning(error)) {
        (ZkError::NoNode, _) => Error::NotHeld("its node is gone".to_owned()),
        (_, ErrorClass::Definite) => refused(error),
        (_, ErrorClass::SessionOver | ErrorClass::Unknown) => {
            Error::Unreachable(format!("ZooKeeper: {error}"))
        }
    }
}

fn ran_out() -> Error {
    Error::NotHeld("the lease has run out".to_owned())
}

async fn watch_over(place: Place, lease: Arc<watch::Sender<Lease>>) {
    let mut changes = lease.subscribe();
    loop {
        let Lease { ends, phase } = *changes.borrow_and_update();
        match phase {
            Phase::Held => {}
            Phase::Gone => return,
            Phase::Over => return place.leave().await,
        }
        tokio::select! {
            // This can't fail: `lease` keeps the sender alive.
            _ = changes.changed() => {}
            () = reached(Some(ends)) => {
                lease.send_if_modified(|lease| {
                    let over = lease.phase == Phase::Held && lease.ends.has_passed();
                    if over {
                        lease.phase = Phase::Over;
                    }
                    over
                });
            }
            () = place.session.over() => return,
        }
    }
}

impl Drop for ZooKeeperHold {
    fn drop(&mut self) {
        self.end(Phase::Over);
    }
}

impl Hold for ZooKeeperHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            if ttl > self.ttl {
                self.place.session.check_unrenewed(ttl)?;
            }
            let sent = Moment::now();
            self.confirm().await?;
            let validity = self.place.session.validity(sent, ttl);
            let ends = Moment::now().plus(self.place.session.lease(ttl));
            let mut extended = false;
            self.lease.send_if_modified(|lease| {
                extended = lease.phase == Phase::Held;
                if extended {
                    lease.ends = ends;
                }
                extended
            });
            if extended { Ok(validity) } else { Err(ran_out()) }
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let path = self.place.path();
            // This process gives up a session that it has not reached for too long. The servers may
            // keep it longer, by another timeout if they were restarted: then its node is still
            // there.
            let other = match self.place.session.is_over() {
                true => Some(self.sessions.any().await?),
                false => None,
            };
            let session = other.as_ref().unwrap_or(&self.place.session);
            let deleted = session.limited(session.client.delete(&path, None)).await?;
            let over = other.is_some() || self.lease.borrow().phase == Phase::Over;
            if over && matches!(deleted, Ok(()) | Err(ZkError::NoNode)) {
                self.end(Phase::Gone);
                return Err(ran_out());
            }
            let released = deleted.map_err(|error| not_held(&error));
            if matches!(released, Ok(()) | Err(Error::NotHeld(_))) {
                // Nodes that a retried create may have left are removed in the background.
                self.end(if self.place.repeated { Phase::Over } else { Phase::Gone });
            }
            released
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move {
            self.confirm().await?;
            let Lease { ends, phase } = *self.lease.borrow();
            if phase == Phase::Held { Ok(ends.remaining()) } else { Err(ran_out()) }
        })
    }

    /// The node is deleted with this process's session.
    fn proof(&self) -> Option<String> {
        None
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async move {
            self.place.session.over().await;
            "the ZooKeeper session has expired".to_owned()
        })
    }
}
