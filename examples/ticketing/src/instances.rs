//! Several instances on one database. All of them must use the same locks: otherwise two clients could
//! each hold "the" lock of a seat.
//!
//! Whether two lock services are one is not a matter of their addresses: Redis's protocol on one port and
//! Holdfast's on another may be the same line. So each instance holds a lock as long as it lives, its
//! witness, and notes the lock's name in the database. A new instance tries to take the witnesses of the
//! others: if it gets one, its locks are not theirs, and it does not start.

use crate::seat_locks::SeatLocks;
use crate::settings::LockType;
use crate::store::{OtherInstance, Store, StoreError};
use holdfast_locks::Guard;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// How often an instance says that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// An instance that was silent for so long is dead. Shorter than its witness lives.
const DEAD_AFTER_MS: i64 = 10_000;

/// This instance, among the others.
pub(crate) struct Membership {
    store: Arc<Store>,
    seats: Option<Arc<SeatLocks>>,
    id: String,
    lock_type: LockType,
    lock_url: String,
    /// `None` if there are no locks, or the witness is lost.
    witness: Mutex<Option<Guard>>,
    /// Whether others were there when it came.
    alone: bool,
}

impl Membership {
    /// Joins the other instances, or says why it can't.
    pub(crate) async fn join(
        store: &Arc<Store>,
        seats: Option<Arc<SeatLocks>>,
        id: &str,
        lock_type: LockType,
        lock_url: &str,
    ) -> Result<Arc<Self>, String> {
        let failed = |error: StoreError| error.to_string();
        let witness = match &seats {
            Some(seats) => seats.take_witness(id).await.map_err(|error| error.to_string())?,
            None => None,
        };
        // Before it looks at others: of two that start together, at least one sees the other.
        store.note_instance(id, &lock_type.to_string(), id, lock_url).await.map_err(failed)?;
        // And while it looks: otherwise each of the two would take the other for dead.
        let looking = tokio::select! {
            looked = is_alone(store, seats.as_deref(), id, lock_type) => looked,
            failed = keep_noting(store, id, lock_type, lock_url) => Err(failed.to_string()),
        };
        let alone = match looking {
            Ok(alone) => alone,
            Err(why) => {
                let _ = store.forget_instance(id).await;
                return Err(why);
            }
        };
        Ok(Arc::new(Self {
            store: store.clone(),
            seats,
            id: id.to_owned(),
            lock_type,
            lock_url: lock_url.to_owned(),
            witness: Mutex::new(witness),
            alone,
        }))
    }

    /// Notes which locks count. If they are others than before, no old reservation and no old token
    /// counts any more.
    pub(crate) async fn agree_on(&self, line: &str) -> Result<(), StoreError> {
        let before = self.store.setting("line").await?;
        if self.alone && before.as_deref() != Some(line) {
            self.store.change_line(line).await?;
        }
        Ok(())
    }

    /// Says that it lives, again and again.
    pub(crate) async fn stay(self: Arc<Self>) {
        loop {
            sleep(BEAT_EVERY).await;
            if let Err(error) = self.beat().await {
                tracing::warn!("other instances don't see this one: {error}");
            }
        }
    }

    async fn beat(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut witness = self.witness.lock().await;
        if let Some(seats) = &self.seats
            && witness.as_ref().is_none_or(Guard::is_lost)
        {
            // The lock service has forgotten it, or was away for too long.
            *witness = seats.take_witness(&self.id).await?;
        }
        drop(witness);
        let lock_type = self.lock_type.to_string();
        Ok(self.store.note_instance(&self.id, &lock_type, &self.id, &self.lock_url).await?)
    }

    pub(crate) async fn leave(&self) {
        let _ = self.store.forget_instance(&self.id).await;
        if let Some(witness) = self.witness.lock().await.take() {
            let _ = witness.release().await;
        }
    }
}

/// Says that an instance lives, until the database fails.
async fn keep_noting(store: &Store, id: &str, lock_type: LockType, lock_url: &str) -> StoreError {
    loop {
        sleep(BEAT_EVERY).await;
        if let Err(error) = store.note_instance(id, &lock_type.to_string(), id, lock_url).await {
            return error;
        }
    }
}

/// Whether there is no other instance; an error if one uses other locks.
async fn is_alone(
    store: &Store,
    seats: Option<&SeatLocks>,
    id: &str,
    lock_type: LockType,
) -> Result<bool, String> {
    let failed = |error: StoreError| error.to_string();
    let mut alone = true;
    for other in store.other_instances(id, DEAD_AFTER_MS).await.map_err(failed)? {
        if shares_locks(seats, lock_type, &other).await? {
            alone = false;
        } else if lives(store, id, &other).await.map_err(failed)? {
            return Err(refusal(lock_type, &other));
        }
    }
    Ok(alone)
}

/// Whether the other's witness is held in the locks of this instance.
async fn shares_locks(
    seats: Option<&SeatLocks>,
    lock_type: LockType,
    other: &OtherInstance,
) -> Result<bool, String> {
    let other_has_none = other.lock_url.is_empty();
    let Some(seats) = seats else { return Ok(other.lock_type == lock_type.to_string()) };
    if other_has_none {
        return Ok(false);
    }
    match seats.take_witness(&other.witness).await.map_err(|error| error.to_string())? {
        None => Ok(true),
        Some(guard) => {
            let _ = guard.release().await;
            Ok(false)
        }
    }
}

/// Whether it shows another sign of life: one that has just crashed does not.
async fn lives(store: &Store, id: &str, other: &OtherInstance) -> Result<bool, StoreError> {
    loop {
        sleep(Duration::from_millis(500)).await;
        let others = store.other_instances(id, DEAD_AFTER_MS).await?;
        match others.into_iter().find(|now| now.id == other.id) {
            None => return Ok(false),
            Some(now) if now.seen_at_ms != other.seen_at_ms => return Ok(true),
            Some(_) => {}
        }
    }
}

fn refusal(lock_type: LockType, other: &OtherInstance) -> String {
    let OtherInstance { id, lock_type: theirs, lock_url, .. } = other;
    let what = format!(
        "instance {id} runs on this database with LOCK_TYPE={theirs}, and its locks are not those of \
         LOCK_TYPE={lock_type}: a seat could be sold twice"
    );
    if lock_url.is_empty() {
        return format!("{what}. Start this one with LOCK_TYPE={theirs}, or stop the other");
    }
    format!("{what}. Start this one with LOCK_TYPE={theirs} LOCK_URL={lock_url}, or stop the other")
}

/// Why the embedded Holdfast does not start, and how to share the one that runs.
pub(crate) async fn explain_embedded(store: &Store, lock_type: LockType, error: &str) -> String {
    let others = store.other_instances("", DEAD_AFTER_MS).await.unwrap_or_default();
    let running = others.iter().find(|other| !other.lock_url.is_empty());
    let Some(OtherInstance { id, lock_type: theirs, lock_url, .. }) = running else {
        return format!("the embedded Holdfast does not start: {error}");
    };
    let url = if *theirs == lock_type.to_string() {
        format!("LOCK_URL={lock_url}")
    } else {
        format!("LOCK_TYPE={theirs} LOCK_URL={lock_url}")
    };
    format!(
        "instance {id} runs on this database with an embedded Holdfast. Share it: start this one with \
         {url}"
    )
}
