//! What a holder should know, event by event.

use crate::error::How;
use crate::fate::{Fate, Health, Revocation};
use tokio::sync::watch;

/// Something that a holder should know.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// use holdfast_client::News;
///
/// let guard = client.lock("seat-12A").acquire().await?;
/// client.clone().close().await;
/// assert!(matches!(guard.events().next().await, Some(News::Lost(_))));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The lease was not confirmed for a while: see [`Health::Jeopardy`].
    Jeopardy,
    /// It is confirmed again.
    Good,
    /// Somebody asks the holder to let go.
    Revocation(Revocation),
    /// The lease is over: stop. Nothing follows.
    Lost(How),
}

/// What becomes of a lease, event by event; see [`crate::Guard::events`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let guard = client.lock("seat-12A").acquire().await?;
/// let mut events = guard.events();
/// client.clone().close().await;
/// assert!(events.next().await.is_some(), "the lock is lost");
/// assert!(events.next().await.is_none(), "nothing follows");
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Events<'a> {
    fate: &'a Fate,
    health: watch::Receiver<Health>,
    revocation: watch::Receiver<Option<Revocation>>,
    told: Health,
}

impl<'a> Events<'a> {
    pub(crate) fn of(fate: &'a Fate) -> Self {
        let (health, mut revocation) = (fate.health.subscribe(), fate.revocation.subscribe());
        // One that came before counts too.
        revocation.mark_changed();
        Self { fate, health, revocation, told: Health::Good }
    }

    /// What happens next; none after the end.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            if matches!(self.told, Health::Lost(_)) {
                return None;
            }
            let now = self.fate.health();
            if std::mem::replace(&mut self.told, now) != now {
                return Some(match now {
                    Health::Good => News::Good,
                    Health::Jeopardy => News::Jeopardy,
                    Health::Lost(how) => News::Lost(how),
                });
            }
            if self.revocation.has_changed().unwrap_or(false)
                && let Some(asked) = self.revocation.borrow_and_update().clone()
            {
                return Some(News::Revocation(asked));
            }
            tokio::select! {
                // Neither can fail: the senders are with the fate.
                _ = self.health.changed() => {}
                _ = self.revocation.changed() => self.revocation.mark_changed(),
                _ = self.fate.lost() => {}
            }
        }
    }
}
