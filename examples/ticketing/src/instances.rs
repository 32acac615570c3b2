//! Several instances on one database. All of them must use the same locks: otherwise two clients could
//! each hold "the" lock of a seat. What that means, and what happens when the locks change, is told in
//! `line.rs`; here is how an instance takes part.
//!
//! It joins when the database has agreed on the line that it sees in its lock service, and from then on
//! looks at both every two seconds. It also holds a lock of its own, its witness: as long as the lock
//! service remembers that, it has not lost its data.

use crate::line::Line;
use crate::seat_locks::{LockError, SeatLocks};
use crate::settings::LockType;
use crate::store::{OtherInstance, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// How often an instance says that it lives, and looks at its lock service.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// How long one look at the lock service may take: signs of life must not wait for it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a new instance waits for the others to name a line that has lost its lock. They do so with
/// their next heartbeat.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(6);

/// This instance, among the others.
pub(crate) struct Membership {
    store: Arc<Store>,
    seats: Option<Arc<SeatLocks>>,
    id: String,
    lock_type: LockType,
    lock_url: String,
    /// The line that was last seen in the lock service.
    seen: Mutex<String>,
    /// Since when nobody was found who knows whether the lock service has lost its data; `None` if that is
    /// known.
    in_doubt_since: Mutex<Option<Instant>>,
    /// The line that this instance writes for.
    pub(crate) line: Arc<Line>,
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
        let told = |error: LockError| error.to_string();
        let line = match &seats {
            Some(seats) => {
                let witness = seats.take_witness(id).await.map_err(told)?;
                let line = first_look(store, seats, id).await?;
                seats.keep_witness(witness);
                line
            }
            // The controls have lines without locks.
            None => lock_type.to_string(),
        };
        let member = Arc::new(Self {
            store: store.clone(),
            seats,
            id: id.to_owned(),
            lock_type,
            lock_url: lock_url.to_owned(),
            seen: Mutex::new(line.clone()),
            in_doubt_since: Mutex::default(),
            line: Arc::new(Line::new(line)),
        });
        // Before it looks at others: of two that start together, at least one sees the other.
        member.note().await.map_err(|error| error.to_string())?;
        // And while it looks: otherwise each of the two would take the other for dead.
        let agreed = tokio::select! {
            agreed = member.agree() => agreed,
            failed = member.keep_noting() => Err(failed.to_string()),
        };
        if agreed.is_err() {
            member.leave().await;
        }
        agreed.map(|()| member)
    }

    /// Waits until the database has agreed on this instance's line; an error if a live instance sees
    /// another one.
    async fn agree(&self) -> Result<(), String> {
        let failed = |error: StoreError| error.to_string();
        let line = self.seen.lock().await.clone();
        while !self.agree_on(&line).await.map_err(failed)? {
            for other in self.others().await.map_err(failed)? {
                if lives(&self.store, &self.id, &other).await.map_err(failed)? {
                    return Err(refusal(self.lock_type, &self.lock_url, &other));
                }
            }
        }
        Ok(())
    }

    /// Whether this line protects the tickets. If it does so from now on, the locks of reservations that this
    /// has ended are released: a service that has lost only some of its locks may still have them.
    async fn agree_on(&self, line: &str) -> Result<bool, StoreError> {
        let before = self.store.setting("line").await?;
        let changes = before.is_some_and(|before| before != line);
        let leases = if changes { self.store.leases().await? } else { Vec::new() };
        let agreed = self.store.agree_on(line).await?;
        if agreed && let Some(seats) = self.seats.clone() {
            tokio::spawn(async move {
                for lease in leases {
                    seats.release(&lease).await;
                }
            });
        }
        Ok(agreed)
    }

    /// Live instances that see another line.
    async fn others(&self) -> Result<Vec<OtherInstance>, StoreError> {
        let line = self.seen.lock().await.clone();
        let others = self.store.other_instances(&self.id).await?.into_iter();
        Ok(others.filter(|other| other.line != line).collect())
    }

    /// Says that it lives, until the database fails.
    async fn keep_noting(&self) -> StoreError {
        loop {
            sleep(BEAT_EVERY).await;
            if let Err(error) = self.note().await {
                return error;
            }
        }
    }

    /// Says that it lives and looks at its lock service, again and again.
    pub(crate) async fn stay(self: Arc<Self>) {
        loop {
            let _ = timeout(BEAT_EVERY, self.line.doubted.notified()).await;
            if let Err(error) = self.beat().await {
                tracing::warn!("other instances don't see this one: {error}");
            }
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let late = |_| Err(LockError::new(format!("no answer within {}s", LOOK_TIMEOUT.as_secs())));
        let looked = timeout(LOOK_TIMEOUT, self.look()).await.unwrap_or_else(late);
        if let Err(error) = &looked {
            // Requests find out for themselves, and the line stays what it was.
            tracing::warn!("{error}");
        }
        self.line.set_trouble(looked.err().map(|error| error.to_string()));
        self.note().await?;
        let line = self.seen.lock().await.clone();
        let state = if self.agree_on(&line).await? {
            Ok(line)
        } else {
            let others = self.others().await?;
            Err(others.first().map_or_else(
                || "the locks of this shop are being changed".to_owned(),
                |other| refusal(self.lock_type, &self.lock_url, other),
            ))
        };
        match (&self.line.id(), &state) {
            (before, now) if before == now => {}
            (Ok(_), Ok(_)) => {
                tracing::warn!(
                    "the lock service is another one, has lost its data, or has ended all sessions: \
                     reservations have ended"
                )
            }
            (Err(_), Ok(_)) => tracing::info!("this instance sells again"),
            (_, Err(why)) => tracing::error!("this instance does not sell: {why}"),
        }
        self.line.set(state);
        Ok(())
    }

    /// Sees which line the lock service has now.
    async fn look(&self) -> Result<(), LockError> {
        let Some(seats) = &self.seats else { return Ok(()) };
        let mut seen = self.seen.lock().await;
        // Before the look: a service that shows the line after it has given the witness will remember both.
        let lost = !seats.witness_lives();
        let witness = if lost { Some(seats.take_witness(&self.id).await?) } else { None };
        let line = match seats.line_id().await? {
            Some(line) => line,
            // The instance that held the lock of the line has left; or the service has lost its data.
            None if seats.remembers(&self.id).await? => seats.line_id_or(&seen).await?,
            None => self.ask_others(seats).await?,
        };
        if let Some(witness) = witness {
            seats.keep_witness(witness);
        }
        *self.in_doubt_since.lock().await = None;
        *seen = line;
        Ok(())
    }

    /// The line of a service that remembers neither the line nor this instance. If locks live by sessions,
    /// the session may have ended and not the service's data: another instance may have a session that has
    /// not, and then names the line.
    async fn ask_others(&self, seats: &SeatLocks) -> Result<String, LockError> {
        let failed = |error: StoreError| LockError::new(error.to_string());
        if !seats.promises().detachable.holds {
            if let Some(line) = seats.line_id_ahead().await? {
                return Ok(line);
            }
            let mut since = self.in_doubt_since.lock().await;
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() < OTHERS_TIMEOUT
                && is_named_by_others(&self.store, &self.id).await.map_err(failed)?
            {
                return Err(LockError::new("it has ended this instance's session"));
            }
        }
        seats.line_id_or(&crate::random_hex()).await
    }

    async fn note(&self) -> Result<(), StoreError> {
        let (lock_type, line) = (self.lock_type.to_string(), self.seen.lock().await.clone());
        self.store.note_instance(&self.id, &lock_type, &line, &self.lock_url).await
    }

    pub(crate) async fn leave(&self) {
        let _ = self.store.forget_instance(&self.id).await;
        if let Some(seats) = &self.seats {
            seats.release_witness().await;
        }
    }
}

/// The line of the lock service, as a new instance finds it.
async fn first_look(store: &Store, seats: &SeatLocks, id: &str) -> Result<String, String> {
    let told = |error: LockError| error.to_string();
    let give_up = Instant::now() + OTHERS_TIMEOUT;
    loop {
        if let Some(line) = seats.line_id().await.map_err(told)? {
            return Ok(line);
        }
        let named = is_named_by_others(store, id).await.map_err(|error| error.to_string())?;
        if !named || Instant::now() >= give_up {
            return seats.line_id_or(&crate::random_hex()).await.map_err(told);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Whether other instances live that see the line which protects the tickets.
async fn is_named_by_others(store: &Store, id: &str) -> Result<bool, StoreError> {
    let current = store.setting("line").await?;
    let others = store.other_instances(id).await?;
    Ok(others.iter().any(|other| Some(&other.line) == current.as_ref()))
}

/// Whether it shows another sign of life: one that has just crashed does not.
async fn lives(store: &Store, id: &str, other: &OtherInstance) -> Result<bool, StoreError> {
    loop {
        sleep(Duration::from_millis(500)).await;
        let others = store.other_instances(id).await?;
        match others.into_iter().find(|now| now.id == other.id) {
            None => return Ok(false),
            // It has found the same line in the meantime.
            Some(now) if now.line != other.line => return Ok(false),
            Some(now) if now.seen_at_ms != other.seen_at_ms => return Ok(true),
            Some(_) => {}
        }
    }
}

fn refusal(lock_type: LockType, lock_url: &str, other: &OtherInstance) -> String {
    let OtherInstance { id, lock_type: theirs, lock_url: their_url, .. } = other;
    if *theirs == lock_type.to_string() && their_url == lock_url {
        return format!(
            "instance {id} has the same LOCK_TYPE and LOCK_URL, and yet sees other locks there: a seat could \
             be sold twice. If the lock service was restarted, they agree within half a minute; otherwise \
             see that the address means one service everywhere"
        );
    }
    let what = format!(
        "instance {id} runs on this database with LOCK_TYPE={theirs}, and its locks are not those of \
         LOCK_TYPE={lock_type}: a seat could be sold twice"
    );
    if their_url.is_empty() {
        return format!("{what}. Start this one with LOCK_TYPE={theirs}, or stop the other");
    }
    format!(
        "{what}. Start this one with LOCK_TYPE={theirs} LOCK_URL={their_url}, or stop the other"
    )
}

/// Why the embedded Holdfast does not start, and how to share the one that runs.
pub(crate) async fn explain_embedded(store: &Store, lock_type: LockType, error: &str) -> String {
    let others = store.other_instances("").await.unwrap_or_default();
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
