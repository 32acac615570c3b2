//! A lock on an engine other than Holdfast, through `holdfast-locks`.

use super::Lock;
use super::env::{self, Variables};
use super::held::{AcquireOutcome, CLOSE_TIMEOUT, RELEASE_TIMEOUT, WAIT_HINT};
use super::signals::Signals;
use super::target::Engine;
use crate::exit::{Exit, Problem};
use crate::stderr::eprint_line;
use holdfast_locks::{Error, Guard, Locks, Promises};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Timeout for connecting and for other calls to the engine.
const TIMEOUT: Duration = Duration::from_secs(8);

/// How long a reply may take beyond the end of the wait: longer than the drivers' own timeouts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct EngineLock {
    pub(super) guard: Guard,
    locks: Locks,
    engine: Engine,
}

pub(super) async fn take(
    lock: &Lock,
    engine: &Engine,
    signals: &mut Signals,
) -> Result<AcquireOutcome<EngineLock>, Problem> {
    let name = check(lock, engine)?;
    let connecting = Locks::builder().timeout(TIMEOUT).connect(&engine.url);
    let locks = tokio::select! {
        connected = connecting => connected.map_err(|error| problem(lock, error))?,
        signal = signals.end() => return Ok(AcquireOutcome::Interrupted(signal)),
    };
    let taken = async {
        check_note(lock, locks.promises())?;
        acquire(lock, &locks, name).await
    };
    // Dropping this on a signal leaves the line and releases whatever was granted in the meantime.
    let taken = tokio::select! {
        taken = taken => taken,
        signal = signals.end() => {
            close(locks, signals).await;
            return Ok(AcquireOutcome::Interrupted(signal));
        }
    };
    match taken {
        Ok(guard) => Ok(AcquireOutcome::Held(EngineLock { guard, locks, engine: engine.clone() })),
        Err(problem) => {
            close(locks, signals).await;
            Err(problem)
        }
    }
}

/// Refuses what `holdfast-locks` can't do on any engine; returns the name.
fn check<'a>(lock: &'a Lock, engine: &Engine) -> Result<&'a str, Problem> {
    const SERVERS_CAN: &str = "Holdfast servers can: use --server instead of --on";
    let refuse = |why: &str| Problem::usage(format!("--on takes {why}")).hint(SERVERS_CAN);
    let [name] = lock.names.as_slice() else {
        return Err(refuse("one lock, not several in one step"));
    };
    if lock.wanted.shared {
        return Err(refuse("a lock exclusively: --shared can't be used with it"));
    }
    if lock.wanted.permits.is_some() {
        return Err(refuse("a lock exclusively: --permits can't be used with it"));
    }
    if engine.name() == "memory" {
        let why = "--on memory: is a lock inside this process, which excludes no other command";
        return Err(Problem::usage(why).hint("name an engine that other processes reach"));
    }
    name.to_str().ok_or_else(|| {
        let shown = name.to_string_lossy();
        Problem::usage(format!("--on takes names in UTF-8, and `{shown}` is not")).hint(SERVERS_CAN)
    })
}

/// A note is for the next holder, in case this one dies: not every engine can pass it on.
fn check_note(lock: &Lock, promises: &Promises) -> Result<(), Problem> {
    if lock.wanted.note.is_none() || promises.reports_death.holds {
        return Ok(());
    }
    let Promises { engine, recipe, reports_death, .. } = promises;
    let why = format!("{engine} ({recipe}) can't keep a --note: {}", reports_death.because);
    Err(Problem::usage(why).hint("leave out --note, or see docs/engines.md for engines that can"))
}

async fn acquire(lock: &Lock, locks: &Locks, name: &str) -> Result<Guard, Problem> {
    let wait = lock.wanted.wait();
    let mut wanted = locks.lock(name).ttl(lock.ttl).label(lock.wanted.label());
    if let Some(note) = &lock.wanted.note {
        wanted = wanted.note(note);
    }
    if let Some(wait) = wait {
        wanted = wanted.wait(wait);
    }
    let limit = wait.map_or(Duration::MAX, |wait| wait.saturating_add(ANSWER_TIMEOUT));
    match timeout(limit, wanted.acquire()).await {
        Ok(answer) => answer.map_err(|error| problem(lock, error)),
        Err(_) => Err(problem(lock, Error::Unreachable("it does not answer".to_owned()))),
    }
}

/// Uses the same exit codes as with Holdfast servers.
fn problem(lock: &Lock, error: Error) -> Problem {
    let shown = lock.shown();
    let (exit, hint) = match &error {
        Error::BadUrl(_) => return Problem::usage(format!("--on: {error}")),
        Error::Unsupported(_) => return Problem::usage(format!("can't take {shown}: {error}")),
        Error::Unreachable(_) | Error::Unsure { .. } => (Exit::NoServer, ""),
        Error::TimedOut { .. } => (Exit::NotAcquired, WAIT_HINT),
        _ => (Exit::NotAcquired, ""),
    };
    Problem::new(exit, format!("did not get {shown}: {error}")).hint(hint)
}

/// Waits until nothing is in progress any more, for at most `CLOSE_TIMEOUT`. A signal ends the
/// wait, and is returned.
async fn close(locks: Locks, signals: &mut Signals) -> Option<i32> {
    tokio::select! {
        _ = timeout(CLOSE_TIMEOUT, locks.close()) => None,
        signal = signals.end() => Some(signal),
    }
}

/// Stops the renewal without a release. Returns the guard if its lock is tied to this process's
/// connection.
async fn end_renewal(mut guard: Guard) -> Option<Guard> {
    const RETRY_PAUSE: Duration = Duration::from_millis(200);
    loop {
        guard = match guard.detach().await {
            Ok(_) => return None,
            Err((guard, Error::Unsupported(_))) => return Some(guard),
            // A lost lock is no longer renewed.
            Err((guard, _)) if guard.is_lost() => {
                std::mem::forget(guard);
                return None;
            }
            Err((guard, _)) => guard,
        };
        sleep(RETRY_PAUSE).await;
    }
}

impl EngineLock {
    pub(super) fn variables(&self) -> Variables {
        env::on_engine(&self.guard, self.locks.promises(), &self.engine)
    }

    pub(super) fn print_ending(&self) {
        let Some(ending) = self.guard.ending().filter(|ending| ending.died) else { return };
        let name = self.guard.name();
        let token = ending.token.map_or_else(String::new, |token| format!(", token {token}"));
        let note = ending.note.as_ref().map_or_else(String::new, |note| format!(", note: {note}"));
        eprint_line!("holdfast: the previous holder of {name} died{token}{note}");
    }

    pub(super) async fn release(self) {
        let left = self.guard.remaining();
        match timeout(RELEASE_TIMEOUT, self.guard.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprint_line!("holdfast: not released: {error}"),
            Err(_) => eprint_line!(
                "holdfast: not released: {} does not answer; the lock is free in {}s, or a little \
                 later",
                self.engine.name(),
                left.as_secs()
            ),
        }
        // The release may still be in progress, and so may the clean-up of earlier attempts.
        let _ = timeout(CLOSE_TIMEOUT, self.locks.close()).await;
    }

    pub(super) async fn abandon(self, command_ended: bool, signals: &mut Signals) -> Option<i32> {
        let mut ending = Box::pin(end_renewal(self.guard));
        let Ok(attached) = timeout(RELEASE_TIMEOUT, &mut ending).await else {
            // Dropping it would release the lock.
            std::mem::forget(ending);
            return close(self.locks, signals).await;
        };
        let Some(guard) = attached else { return close(self.locks, signals).await };
        // A lock that is tied to this process's connection would last as long as this process,
        // which may get in line for it again. No engine with such locks tells anybody how they
        // ended.
        if !command_ended {
            // The process exits next.
            std::mem::forget(guard);
            return None;
        }
        tokio::select! {
            _ = timeout(RELEASE_TIMEOUT, guard.release()) => close(self.locks, signals).await,
            signal = signals.end() => Some(signal),
        }
    }
}
