//! A lock on Holdfast servers, through a session of the native client.

use super::Lock;
use super::env::{self, Variables};
use super::held::{AcquireOutcome, CLOSE_TIMEOUT, RELEASE_TIMEOUT, WAIT_HINT};
use super::signals::Signals;
use crate::acquire_flags::Acquired;
use crate::exit::Problem;
use crate::server_flags::{ServerFlags, own_label, problem};
use crate::stderr::eprint_line;
use holdfast_client::{Client, Error, Guard};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use tokio::time::timeout;

pub(super) struct NativeLock {
    pub(super) guard: Guard,
    client: Client,
    names: Vec<OsString>,
    /// The tokens held by wrappers around this one.
    outside: Vec<u64>,
    servers: ServerFlags,
}

pub(super) async fn take(
    lock: &Lock,
    servers: &ServerFlags,
    signals: &mut Signals,
) -> Result<AcquireOutcome<NativeLock>, Problem> {
    let outside = env::kept_outside(servers)?;
    let label = own_label();
    let client = tokio::select! {
        client = servers.client(lock.ttl, &label) => client?,
        signal = signals.end() => return Ok(AcquireOutcome::Interrupted(signal)),
    };
    let held = |guard, client| {
        let (names, servers) = (lock.names.clone(), servers.clone());
        NativeLock { guard, client, names, outside: outside.clone(), servers }
    };
    match acquire(lock, &client, &outside, signals).await {
        Acquired::Answered(Ok(guard)) => Ok(AcquireOutcome::Held(held(guard, client))),
        Acquired::Answered(Err(error)) => {
            close(client, signals).await;
            Err(not_acquired(lock, error))
        }
        Acquired::Interrupted(signal, guard) => {
            match guard {
                Some(guard) => held(guard, client).release().await,
                None => drop(close(client, signals).await),
            }
            Ok(AcquireOutcome::Interrupted(signal))
        }
    }
}

async fn acquire(lock: &Lock, client: &Client, outside: &[u64], signals: &mut Signals) -> Acquired {
    let names: Vec<&[u8]> = lock.names.iter().map(|name| name.as_bytes()).collect();
    let declared = |wanted: holdfast_client::Lock| {
        let wanted = wanted.ttl(lock.ttl);
        outside.iter().fold(wanted, |wanted, token| wanted.holding_token(*token))
    };
    lock.wanted.acquire(client, &names, declared, signals).await
}

fn not_acquired(lock: &Lock, error: Error) -> Problem {
    let in_line = matches!(error, Error::NotAcquired(_));
    let problem = problem(error);
    let message = format!("did not get {}: {}", lock.shown(), problem.message);
    let problem = Problem { message, ..problem };
    if in_line { problem.hint(WAIT_HINT) } else { problem }
}

/// Closes the session, which abandons whatever is in progress. A signal ends the wait, and is
/// returned.
async fn close(client: Client, signals: &mut Signals) -> Option<i32> {
    tokio::select! {
        _ = timeout(CLOSE_TIMEOUT, client.close()) => None,
        signal = signals.end() => Some(signal),
    }
}

impl NativeLock {
    pub(super) fn variables(&self) -> Variables {
        env::native(&self.names, &self.guard, &self.outside, &self.servers)
    }

    pub(super) fn print_ending(&self) {
        if !self.guard.needs_recovery() {
            return;
        }
        for ending in self.guard.endings() {
            let name = String::from_utf8_lossy(&ending.name);
            let how = ending.how;
            let note = ending.note.as_deref().map(String::from_utf8_lossy);
            let note = note.map_or_else(String::new, |note| format!(", note: {note}"));
            let token = ending.token;
            eprint_line!(
                "holdfast: the previous holder of {name} died ({how}), token {token}{note}"
            );
        }
    }

    pub(super) async fn release(self) {
        let left = self.guard.remaining();
        match timeout(RELEASE_TIMEOUT, self.guard.release()).await {
            Ok(Ok(())) => {
                let _ = timeout(CLOSE_TIMEOUT, self.client.close()).await;
            }
            Ok(Err(error)) => eprint_line!("holdfast: not released: {error}"),
            Err(_) => eprint_line!(
                "holdfast: not released: no server answers; the lock is free in {}s, or a little \
                 later",
                left.as_secs()
            ),
        }
    }

    pub(super) async fn abandon(self, signals: &mut Signals) -> Option<i32> {
        // The session must not renew it any longer, or nobody would ever be next.
        std::mem::forget(self.guard);
        close(self.client, signals).await
    }
}
