//! The flags that `lock` and `acquire` share, and the wait in line.

use crate::duration;
use crate::lock::Signals;
use crate::server_flags::own_label;
use clap::Args;
use holdfast_client::{Client, Error, Guard};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long a reply may take beyond the end of the wait: longer than an election.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait for the reply to an interrupted acquire: a lock granted by then is released
/// properly.
const INTERRUPTED_TIMEOUT: Duration = Duration::from_millis(300);

/// How an acquire ended.
pub(crate) enum Acquired {
    /// It was granted or refused.
    Answered(Result<Guard, Error>),
    /// This signal came first. Release the guard, if there is one, then close the session.
    Interrupted(i32, Option<Guard>),
}

/// The flags for waiting in line.
#[derive(Debug, Args)]
pub(crate) struct AcquireFlags {
    /// How long to wait in line. Default: forever
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "try_once")]
    wait: Option<Duration>,
    /// Don't wait: exit with 75 if it is not free
    #[arg(long = "try")]
    try_once: bool,
    /// Share the lock with other shared holders
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take one of this many permits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    /// A note on the lock: the next holder gets it if this one dies
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// The holder's label. Default: HOST:PID
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

impl AcquireFlags {
    /// How long to wait in line; `None` is forever.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if self.try_once { Some(Duration::ZERO) } else { self.wait }
    }

    pub(crate) fn label(&self) -> String {
        self.label.clone().unwrap_or_else(own_label)
    }

    /// Waits in line until the lock is granted or refused, no server answers, or a signal arrives.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        names: &[impl AsRef<[u8]>],
        more: impl Fn(holdfast_client::Lock) -> holdfast_client::Lock,
        signals: &mut Signals,
    ) -> Acquired {
        let mut acquiring = pin!(self.served(client, names, more));
        tokio::select! {
            answer = &mut acquiring => Acquired::Answered(answer),
            signal = signals.end() => {
                let answer = timeout(INTERRUPTED_TIMEOUT, acquiring).await;
                Acquired::Interrupted(signal, answer.ok().and_then(Result::ok))
            }
        }
    }

    async fn served(
        &self,
        client: &Client,
        names: &[impl AsRef<[u8]>],
        more: impl Fn(holdfast_client::Lock) -> holdfast_client::Lock,
    ) -> Result<Guard, Error> {
        let began = Instant::now();
        loop {
            let left = self.wait().map(|wait| wait.saturating_sub(began.elapsed()));
            let lock = more(self.lock(client.locks(names), left));
            let patience = left.map_or(Duration::MAX, |left| left.saturating_add(ANSWER_TIMEOUT));
            match timeout(patience, lock.acquire()).await {
                // The place in line was lost with the session: get in line again.
                Ok(Err(Error::SessionLost)) => {}
                Ok(served) => return served,
                Err(_) => return Err(Error::Unreachable("the cluster does not answer".to_owned())),
            }
        }
    }

    fn lock(&self, lock: holdfast_client::Lock, left: Option<Duration>) -> holdfast_client::Lock {
        let mut lock = match left {
            None => lock,
            Some(left) => lock.wait(left),
        };
        if self.shared {
            lock = lock.shared();
        }
        if let Some(permits) = self.permits {
            lock = lock.permit_of(permits);
        }
        if let Some(note) = &self.note {
            lock = lock.note(note);
        }
        lock.label(self.label())
    }
}
