//! A lock held by the wrapper, on Holdfast servers (`native.rs`) or another engine (`engine.rs`).

use super::Lock;
use super::engine::{self, EngineLock};
use super::env::Variables;
use super::native::{self, NativeLock};
use super::signals::Signals;
use super::target::LockTarget;
use crate::exit::Problem;
use holdfast_client::Revocation;
use std::time::Duration;

/// How long a release may take: a lock that is not released by then expires by itself.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long closing the connection may take. By then an abandoned acquire has been withdrawn, or
/// released if it was granted in the meantime.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The hint for a lock that was not free in time.
pub(super) const WAIT_HINT: &str =
    "`--wait 30s` waits longer; without `--wait` and `--try` there is no limit";

/// How an acquire ended.
pub(super) enum AcquireOutcome<T> {
    Held(T),
    /// This signal came first, and nothing is held.
    Interrupted(i32),
}

impl<T> AcquireOutcome<T> {
    fn map<U>(self, wrap: impl FnOnce(T) -> U) -> AcquireOutcome<U> {
        match self {
            Self::Held(held) => AcquireOutcome::Held(wrap(held)),
            Self::Interrupted(signal) => AcquireOutcome::Interrupted(signal),
        }
    }
}

pub(super) enum Held {
    Native(NativeLock),
    Engine(EngineLock),
}

impl Held {
    /// Waits for the lock and takes it.
    pub(super) async fn take(
        lock: &Lock,
        signals: &mut Signals,
    ) -> Result<AcquireOutcome<Self>, Problem> {
        Ok(match &lock.target {
            LockTarget::Servers(servers) => {
                native::take(lock, servers, signals).await?.map(Self::Native)
            }
            LockTarget::Engine(engine) => {
                engine::take(lock, engine, signals).await?.map(Self::Engine)
            }
        })
    }

    /// How long the lease is certainly valid if no further renewal succeeds.
    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Native(held) => held.guard.remaining(),
            Self::Engine(held) => held.guard.remaining(),
        }
    }

    /// Resolves, with the reason, when the lease is over or may be.
    pub(super) async fn lost(&self) -> String {
        match self {
            Self::Native(held) => held.guard.lost().await.to_string(),
            Self::Engine(held) => held.guard.lost().await.to_string(),
        }
    }

    /// Resolves when an operator asks for the lock. Never on another engine: none can do that.
    pub(super) async fn asked_to_let_go(&self) -> Revocation {
        match self {
            Self::Native(held) => held.guard.asked_to_let_go().await,
            Self::Engine(_) => std::future::pending().await,
        }
    }

    /// The command's environment variables.
    pub(super) fn variables(&self) -> Variables {
        match self {
            Self::Native(held) => held.variables(),
            Self::Engine(held) => held.variables(),
        }
    }

    /// Prints how the previous holder ended, if it died.
    pub(super) fn print_ending(&self) {
        match self {
            Self::Native(held) => held.print_ending(),
            Self::Engine(held) => held.print_ending(),
        }
    }

    pub(super) async fn release(self) {
        match self {
            Self::Native(held) => held.release().await,
            Self::Engine(held) => held.release().await,
        }
    }

    /// Stops the renewal without a release, so that the lease runs out and the next holder learns
    /// of it. `command_ended`: nothing of the command is left. A signal ends the wait, and is
    /// returned.
    pub(super) async fn abandon(self, command_ended: bool, signals: &mut Signals) -> Option<i32> {
        match self {
            Self::Native(held) => held.abandon(signals).await,
            Self::Engine(held) => held.abandon(command_ended, signals).await,
        }
    }
}
