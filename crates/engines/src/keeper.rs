//! Keeps one lease alive, and ends it: the part of a lock that is the same on every engine.

use crate::clock::Moment;
use crate::driver::{Hold, Validity, reached};
use crate::error::Error;
use crate::guard::Lost;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// A lease is renewed this many times per TTL, so that two renewals may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// The pause after a failed renewal or release; short against any TTL, long for a busy engine.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// One held lease and what is known about it.
pub(crate) struct Keeper {
    name: String,
    hold: Arc<dyn Hold>,
    validity: Mutex<Validity>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Held,
    /// Released, detached or dropped: no longer renewed.
    Stopped,
    Lost(Lost),
}

impl Keeper {
    pub(crate) fn new(name: String, hold: Arc<dyn Hold>, validity: Validity) -> Arc<Self> {
        let (validity, state) = (Mutex::new(validity), watch::Sender::new(State::Held));
        Arc::new(Self { name, hold, validity, state })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hold(&self) -> &Arc<dyn Hold> {
        &self.hold
    }

    pub(crate) fn validity(&self) -> Validity {
        *self.lock_validity()
    }

    fn lock_validity(&self) -> MutexGuard<'_, Validity> {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remaining(&self) -> Duration {
        if matches!(*self.state.borrow(), State::Lost(_)) {
            return Duration::ZERO;
        }
        let left = self.validity().valid_until.remaining();
        if left.is_zero() {
            self.lose("the lease ran out without a confirmed renewal");
        }
        left
    }

    /// Resolves when the lease is over, by what the engine said or by the clock.
    pub(crate) async fn lost(&self) -> Lost {
        let mut state = self.state.subscribe();
        loop {
            if let State::Lost(lost) = &*state.borrow_and_update() {
                return lost.clone();
            }
            let valid_until = self.validity().valid_until;
            tokio::select! {
                // It can't fail: the sender is here.
                _ = state.changed() => {}
                () = reached(Some(valid_until)) => { self.remaining(); }
            }
        }
    }

    /// The lease is over. Once lost, it stays lost.
    fn lose(&self, why: &str) {
        self.state.send_if_modified(|state| {
            let first = !matches!(state, State::Lost(_));
            if first {
                *state = State::Lost(Lost { why: why.to_owned() });
            }
            first
        });
    }

    /// Ends the renewal.
    pub(crate) fn stop(&self) {
        self.state.send_if_modified(|state| {
            let held = *state == State::Held;
            if held {
                *state = State::Stopped;
            }
            held
        });
    }

    /// One renewal. A definite "not held" loses the lease.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        {
            // Until the answer is there, the extension may or may not have taken effect.
            let mut validity = self.lock_validity();
            validity.over_by = validity.over_by.max(Validity::unsure(ttl));
        }
        let extended = self.hold.extend(ttl).await;
        match &extended {
            Ok(validity) if !self.remaining().is_zero() => *self.lock_validity() = *validity,
            // Whoever was told that the lock is lost is never told otherwise.
            Ok(_) => return Err(Error::NotHeld("it was lost before it was renewed".to_owned())),
            Err(Error::NotHeld(why)) => self.lose(why),
            Err(_) => {}
        }
        extended.map(drop)
    }

    /// How long until the next renewal. Some engines grant less than the TTL that was asked for, and
    /// one renewal must be able to fail even so.
    fn renewal_pause(&self, ttl: Duration) -> Duration {
        (ttl / RENEWALS_PER_TTL).min(self.validity().valid_until.remaining() / 2)
    }

    /// Renews the lease until it is stopped or lost. Runs in the background.
    pub(crate) async fn run(self: Arc<Self>, ttl: Duration) {
        let mut state = self.state.subscribe();
        let mut pause = self.renewal_pause(ttl);
        while *state.borrow_and_update() == State::Held {
            tokio::select! {
                _ = state.changed() => continue,
                why = self.hold.lost() => { self.lose(&why); continue }
                () = sleep(pause) => {}
            }
            pause = match self.extend(ttl).await {
                Ok(()) => self.renewal_pause(ttl),
                Err(_) => RETRY_PAUSE.min(ttl / RENEWALS_PER_TTL),
            };
        }
    }

    /// Watches a lease that nobody renews. Runs in the background.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = state.wait_for(|state| *state != State::Held) => {}
            why = self.hold.lost() => self.lose(&why),
            _ = self.lost() => {}
        }
    }
}

/// Repeats the release until the answer is definite, the lease is certainly over, or `limit` has
/// passed.
pub(crate) async fn release_until_definite(
    keeper: &Keeper,
    limit: Option<Duration>,
) -> Result<(), Error> {
    let give_up = limit.map(|limit| Moment::now().plus(limit));
    let mut ambiguous = None;
    loop {
        let attempt = tokio::select! {
            released = keeper.hold.release() => released,
            () = reached(give_up) => Err(Error::Unreachable("no answer in time".to_owned())),
        };
        let Validity { valid_until, over_by } = keeper.validity();
        let cause = match attempt {
            Ok(()) => return Ok(()),
            // Nobody but an earlier attempt of ours can have ended a lease that is still good.
            Err(Error::NotHeld(_)) if ambiguous.is_some() && !valid_until.has_passed() => {
                return Ok(());
            }
            Err(Error::NotHeld(why)) => return Err(Error::NotHeld(why)),
            Err(error) => error.to_string(),
        };
        if over_by.has_passed() {
            return Err(Error::NotHeld(format!("the lease has run out ({cause})")));
        }
        if give_up.is_some_and(Moment::has_passed) {
            return Err(Error::Unsure { until: over_by.wall_clock(), cause });
        }
        ambiguous = Some(cause);
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Step;
    use std::collections::VecDeque;

    /// An engine that gives these answers, one after the other.
    struct Scripted(Mutex<VecDeque<Result<(), Error>>>);

    impl Hold for Scripted {
        fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
            let sent = Moment::now();
            Box::pin(async move { self.next().map(|()| Validity::of_ttl(sent, ttl)) })
        }

        fn release(&self) -> Step<'_, ()> {
            Box::pin(async move { self.next() })
        }

        fn check(&self) -> Step<'_, Duration> {
            Box::pin(async move { self.next().map(|()| Duration::ZERO) })
        }

        fn proof(&self) -> Option<String> {
            None
        }
    }

    impl Scripted {
        fn next(&self) -> Result<(), Error> {
            let mut answers = self.0.lock().unwrap();
            answers.pop_front().unwrap_or_else(|| Err(unreachable()))
        }
    }

    fn unreachable() -> Error {
        Error::Unreachable("cut".to_owned())
    }

    fn not_held() -> Error {
        Error::NotHeld("no such lease".to_owned())
    }

    fn keeper(ttl: Duration, answers: impl Into<VecDeque<Result<(), Error>>>) -> Arc<Keeper> {
        let hold = Arc::new(Scripted(Mutex::new(answers.into())));
        Keeper::new("seat".to_owned(), hold, Validity::of_ttl(Moment::now(), ttl))
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn a_release_whose_answer_was_lost_counts_as_released() {
        let keeper = keeper(LONG, [Err(unreachable()), Err(not_held())]);
        assert_eq!(release_until_definite(&keeper, None).await, Ok(()));
    }

    #[tokio::test]
    async fn a_release_of_what_somebody_else_ended_is_refused() {
        let keeper = keeper(LONG, [Err(not_held())]);
        assert_eq!(release_until_definite(&keeper, None).await, Err(not_held()));
    }

    #[tokio::test]
    async fn a_release_that_nobody_answers_is_unsure_until_the_lease_is_over() {
        let keeper = keeper(LONG, []);
        let released = release_until_definite(&keeper, Some(SHORT)).await;
        let Err(Error::Unsure { until, .. }) = released else { panic!("{released:?}") };
        assert!(until > std::time::SystemTime::now());
    }

    #[tokio::test]
    async fn a_release_that_nobody_answers_ends_with_the_lease() {
        let keeper = keeper(SHORT, []);
        let released = release_until_definite(&keeper, None).await;
        assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
    }

    #[tokio::test]
    async fn a_lease_that_nobody_confirms_is_lost_and_stays_lost() {
        let keeper = keeper(SHORT, []);
        keeper.lost().await;
        assert!(keeper.remaining().is_zero());
        let late = Validity::of_ttl(Moment::now(), LONG);
        *keeper.lock_validity() = late;
        assert!(keeper.remaining().is_zero(), "a lost lease must not come back");
    }

    #[tokio::test]
    async fn a_renewal_that_comes_too_late_is_refused() {
        let keeper = keeper(SHORT, [Ok(())]);
        sleep(SHORT).await;
        let extended = keeper.extend(LONG).await;
        assert!(matches!(extended, Err(Error::NotHeld(_))), "{extended:?}");
    }

    #[tokio::test]
    async fn a_definite_no_loses_the_lease_at_once() {
        let keeper = keeper(LONG, [Err(not_held())]);
        assert!(keeper.extend(LONG).await.is_err());
        assert_eq!(keeper.lost().await.to_string(), "no such lease");
    }

    /// ZooKeeper limits session timeouts, to 40s by default. A lock with a longer TTL was renewed
    /// after a third of that TTL, and so was lost long before.
    #[tokio::test]
    async fn a_lease_shorter_than_its_ttl_is_renewed_in_time() {
        let hold = Arc::new(Scripted(Mutex::new([Ok(())].into())));
        let granted = Validity::of_ttl(Moment::now(), SHORT);
        let keeper = Keeper::new("seat".to_owned(), hold.clone(), granted);
        let renewing = tokio::spawn(keeper.clone().run(LONG));
        let renewed = async {
            while !hold.0.lock().unwrap().is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let renewed = tokio::time::timeout(LONG / 4, renewed).await;
        keeper.stop();
        assert!(renewed.is_ok(), "it was not renewed");
        renewing.await.unwrap();
    }
}
