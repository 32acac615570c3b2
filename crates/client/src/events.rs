//! The events of a guard.

use crate::error::EndReason;
use crate::guard_state::{GuardState, Health, Revocation};

/// An event that a holder should know of.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// use holdfast_client::GuardEvent;
///
/// let guard = client.lock("seat-12A").acquire().await?;
/// client.clone().close().await;
/// assert!(matches!(guard.events().next().await, Some(GuardEvent::Lost(_))));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEvent {
    /// The lease was not confirmed for a while: see [`Health::Jeopardy`].
    Jeopardy,
    /// It is confirmed again.
    Good,
    /// The holder is asked to release.
    Revocation(Revocation),
    /// The lease is over: stop. Nothing follows.
    Lost(EndReason),
}

/// The events of a lease; see [`crate::Guard::events`].
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
    state: &'a GuardState,
    /// What was returned last.
    health: Health,
    revocations: u64,
}

impl<'a> Events<'a> {
    pub(crate) fn of(state: &'a GuardState) -> Self {
        // A revocation from before this call counts too.
        Self { state, health: Health::Good, revocations: 0 }
    }

    /// The next event; `None` after the end.
    pub async fn next(&mut self) -> Option<GuardEvent> {
        loop {
            if matches!(self.health, Health::Lost(_)) {
                return None;
            }
            let now = self.state.health();
            if std::mem::replace(&mut self.health, now) != now {
                return Some(match now {
                    Health::Good => GuardEvent::Good,
                    Health::Jeopardy => GuardEvent::Jeopardy,
                    Health::Lost(how) => GuardEvent::Lost(how),
                });
            }
            if let Some(asked) = self.state.revocation_after(&mut self.revocations) {
                return Some(GuardEvent::Revocation(asked));
            }
            self.state.changed(self.health, self.revocations).await;
        }
    }
}
