//! The servers of the URL, and what a majority of them says.

use super::reply::Fault;
use super::server::Server;
use super::wakeup::{Listening, Wakeups};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Shorter limits would fail on a busy machine.
const LIMIT_MIN: Duration = Duration::from_millis(50);

pub(super) struct Quorum {
    servers: Vec<Arc<Server>>,
    wakeups: Wakeups,
    timeout: Duration,
}

/// One reply per server; `None` if the round was decided before it arrived.
pub(super) type Answers<T> = Vec<Option<Result<T, Fault>>>;

impl Quorum {
    pub(super) fn new(servers: Vec<Server>, timeout: Duration) -> Self {
        let wakeups = Wakeups::new(servers.iter().map(|server| server.client().clone()).collect());
        Self { servers: servers.into_iter().map(Arc::new).collect(), wakeups, timeout }
    }

    pub(super) fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Listens for releases of a lock.
    pub(super) fn listen(&self, name: &str) -> Listening {
        self.wakeups.listen(name)
    }

    pub(super) fn is_single(&self) -> bool {
        self.servers.len() == 1
    }

    pub(super) fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// How many servers may say no while a majority is still possible.
    pub(super) fn minority(&self) -> usize {
        self.servers.len() - self.majority()
    }

    /// The time limit of one call: a quarter of the timeout, so that an operation can reconnect,
    /// retry and clean up within it.
    pub(super) fn limit(&self) -> Duration {
        (self.timeout / 4).max(LIMIT_MIN)
    }

    /// How long an acquire continues without any reply. Leaves time to clean up.
    pub(super) fn round_timeout(&self) -> Duration {
        self.timeout / 2
    }

    /// Calls all servers at once, until `decided` says that no other reply could matter. Calls that
    /// have not returned by then continue in the background, within their limits.
    pub(super) async fn ask<T, F>(
        &self,
        call: impl Fn(Arc<Server>) -> F,
        decided: impl Fn(&Answers<T>) -> bool,
    ) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let mut answers: Answers<T> = Vec::new();
        answers.resize_with(self.servers.len(), || None);
        let mut calls = JoinSet::new();
        for (place, server) in self.servers.iter().enumerate() {
            let call = call(server.clone());
            calls.spawn(async move { (place, call.await) });
        }
        while let Some(joined) = calls.join_next().await {
            // A call that panicked counts as unanswered.
            let Ok((place, answer)) = joined else { continue };
            if let Some(known) = answers.get_mut(place) {
                *known = Some(answer);
            }
            if decided(&answers) {
                calls.detach_all();
                break;
            }
        }
        answers
    }

    /// Fails unless a majority answers.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        // There is nothing to retry or clean up.
        let limit = self.timeout.mul_f32(0.9).max(LIMIT_MIN);
        let ping = |server: Arc<Server>| async move { server.ping(limit).await };
        let enough = |answers: &Answers<()>| count(answers, |()| true) >= self.majority();
        let answers = self.ask(ping, enough).await;
        if enough(&answers) { Ok(()) } else { Err(fault(&answers).error) }
    }
}

/// How many replies match.
pub(super) fn count<T>(answers: &Answers<T>, kind: impl Fn(&T) -> bool) -> usize {
    answers.iter().filter(|answer| matches!(answer, Some(Ok(answer)) if kind(answer))).count()
}

/// Why there was no majority. A refusal, if there is one, says more than silence.
pub(super) fn fault<T>(answers: &Answers<T>) -> Fault {
    let faults = || answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err());
    let refusal = faults().find(|fault| matches!(fault.error, Error::Refused(_)));
    let may_have_happened = faults().any(|fault| fault.may_have_happened);
    let error = match refusal.or_else(|| faults().next()) {
        Some(fault) => fault.error.clone(),
        None => Error::Unreachable("no majority of the Redis servers answered".to_owned()),
    };
    Fault { error, may_have_happened }
}
