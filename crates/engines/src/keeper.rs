//! Keeps one lease alive and ends it: the part of a lock that is the same on every engine.
//!
//! Requests for one lease are sent one after the other ([`Keeper::turn`]), and an unanswered
//! request counts as whichever outcome is worse: the holder counts on the shorter lease, and a
//! release allows for the longer one.

use crate::clock::{Moment, safe_part};
use crate::driver::{Hold, Validity, reached};
use crate::error::Error;
use crate::guard::Lost;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

/// A lease is renewed this many times per TTL, so that two renewals may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// The pause after a failed renewal or release: short compared to any TTL, long for a busy engine.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How long to keep trying for an acknowledged last release, once no late take can arrive any more.
const LAST_RELEASE: Duration = Duration::from_secs(60);

/// One held lease and what is known about it.
pub(crate) struct Keeper {
    name: String,
    hold: Arc<dyn Hold>,
    /// Whether other processes may have the proof too: then only the engine can tell that it is
    /// over.
    shared: bool,
    validity: watch::Sender<Validity>,
    state: watch::Sender<State>,
    /// Held while a request for this lease is in progress.
    turn: Mutex<Turn>,
}

/// What earlier requests may still do.
#[derive(Default)]
struct Turn {
    /// The shortest unanswered extension: it may take effect at any time.
    unanswered: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Held,
    /// Released, detached or dropped: it is no longer renewed or extended.
    Stopped,
    Lost(Lost),
}

impl Keeper {
    /// For a lease that this process took.
    pub(crate) fn new(name: String, hold: Arc<dyn Hold>, validity: Validity) -> Arc<Self> {
        Self::start(name, hold, validity, false)
    }

    /// For a lease that was handed over.
    pub(crate) fn attached(name: String, hold: Arc<dyn Hold>, validity: Validity) -> Arc<Self> {
        Self::start(name, hold, validity, true)
    }

    fn start(name: String, hold: Arc<dyn Hold>, validity: Validity, shared: bool) -> Arc<Self> {
        let (validity, state) = (watch::Sender::new(validity), watch::Sender::new(State::Held));
        Arc::new(Self { name, hold, shared, validity, state, turn: Mutex::default() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hold(&self) -> &Arc<dyn Hold> {
        &self.hold
    }

    pub(crate) fn validity(&self) -> Validity {
        *self.validity.borrow()
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

    /// Resolves when the lease is over, according to the engine or the clock.
    pub(crate) async fn lost(&self) -> Lost {
        let (mut state, mut validity) = (self.state.subscribe(), self.validity.subscribe());
        loop {
            if let State::Lost(lost) = &*state.borrow_and_update() {
                return lost.clone();
            }
            let valid_until = validity.borrow_and_update().valid_until;
            tokio::select! {
                // These can't fail: `self` keeps the senders alive.
                _ = state.changed() => {}
                _ = validity.changed() => {}
                () = reached(Some(valid_until)) => { self.remaining(); }
            }
        }
    }

    /// Marks the lease as lost. Once lost, it stays lost.
    fn lose(&self, why: &str) {
        self.state.send_if_modified(|state| {
            let first = !matches!(state, State::Lost(_));
            if first {
                *state = State::Lost(Lost { why: why.to_owned() });
            }
            first
        });
    }

    /// Stops the renewal, and any extension in progress.
    pub(crate) fn stop(&self) {
        self.state.send_if_modified(|state| {
            let held = *state == State::Held;
            if held {
                *state = State::Stopped;
            }
            held
        });
    }

    /// Waits for `answer`; `None` if the lease is no longer this keeper's to extend.
    async fn while_held<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            // This can't fail: `self` keeps the sender alive.
            _ = state.wait_for(|state| *state != State::Held) => None,
        }
    }

    /// An error if nothing may be sent for this lease any more.
    fn check_held(&self) -> Result<(), Error> {
        if !self.shared {
            self.remaining();
        }
        match &*self.state.borrow() {
            State::Held => Ok(()),
            State::Stopped => Err(Error::NotHeld("it was released or handed over".to_owned())),
            State::Lost(lost) => Err(Error::NotHeld(lost.to_string())),
        }
    }

    /// Extends the lease once. A definite "not held" loses it.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let mut turn = self.turn.lock().await;
        if turn.unanswered.is_some_and(|shortest| shortest < ttl)
            && let Some(Ok(None)) = self.while_held(self.hold.settle()).await
        {
            turn.unanswered = None;
        }
        self.check_held()?;
        let (before, sent) = (self.validity(), Moment::now());
        // Until the reply arrives, the extension may or may not have taken effect.
        self.validity.send_modify(|known| {
            known.valid_until = known.valid_until.min(sent.plus(safe_part(ttl)));
            known.over_by = known.over_by.max(Validity::unsure(ttl));
        });
        let Some(extended) = self.while_held(self.hold.extend(ttl)).await else {
            return self.check_held();
        };
        match extended {
            // A lock that was reported as lost is never reported as held again.
            Ok(_) if !self.shared && self.remaining().is_zero() => {
                Err(Error::NotHeld("it was lost before it was renewed".to_owned()))
            }
            Ok(mut validity) => {
                // An unanswered extension that arrives after this one shortens the lease, counted
                // from its arrival.
                if let Some(shortest) = turn.unanswered {
                    let at_least = sent.plus(safe_part(shortest));
                    validity.valid_until = validity.valid_until.min(at_least);
                }
                self.validity.send_replace(validity);
                Ok(())
            }
            Err(Error::NotHeld(why)) => {
                self.lose(&why);
                Err(Error::NotHeld(why))
            }
            // Nothing was sent.
            Err(Error::Unsupported(why)) => {
                self.validity.send_replace(before);
                Err(Error::Unsupported(why))
            }
            Err(error) => {
                turn.unanswered = Some(turn.unanswered.map_or(ttl, |shortest| shortest.min(ttl)));
                Err(error)
            }
        }
    }

    /// Stops the renewal so that another process can go on: returns once nothing that was sent can
    /// take effect any more. After an error the lease is kept as before.
    pub(crate) async fn hand_over(&self) -> Result<Validity, Error> {
        loop {
            let mut turn = self.turn.lock().await;
            self.check_held()?;
            let settled = match turn.unanswered {
                Some(_) => self.hold.settle().await?,
                None => None,
            };
            let Some(later) = settled else {
                turn.unanswered = None;
                self.check_held()?;
                self.stop();
                return Ok(self.validity());
            };
            // The lease is renewed in the meantime.
            drop(turn);
            reached(Some(later)).await;
        }
    }

    /// How long until the next renewal. Some engines grant less than the requested TTL, and even
    /// then one renewal must be allowed to fail.
    fn renewal_pause(&self, ttl: Duration) -> Duration {
        (ttl / RENEWALS_PER_TTL).min(self.validity().valid_until.remaining() / 2)
    }

    /// Renews the lease until it is stopped or lost. Runs in the background.
    pub(crate) async fn run(self: Arc<Self>, ttl: Duration) {
        let (mut state, mut validity) = (self.state.subscribe(), self.validity.subscribe());
        let mut pause = self.renewal_pause(ttl);
        while *state.borrow_and_update() == State::Held {
            validity.borrow_and_update();
            tokio::select! {
                _ = state.changed() => continue,
                // Someone extended it, perhaps to less.
                _ = validity.changed() => { pause = pause.min(self.renewal_pause(ttl)); continue }
                why = self.hold.lost() => { self.lose(&why); continue }
                () = sleep(pause) => {}
            }
            pause = match self.extend(ttl).await {
                Ok(()) => self.renewal_pause(ttl),
                Err(_) => RETRY_PAUSE.min(ttl / RENEWALS_PER_TTL),
            };
        }
    }

    /// Watches a lease that is not renewed. Runs in the background.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = state.wait_for(|state| *state != State::Held) => {}
            why = self.hold.lost() => self.lose(&why),
            _ = self.lost() => {}
        }
    }
}

/// Retries the release until the result is definite or `limit` has passed; without a limit, until
/// the lease is over. Only the engine's reply is definite: an engine that was down may count leases
/// from its restart, and another process may have extended a lease that was handed over.
pub(crate) async fn release_until_definite(
    keeper: &Keeper,
    limit: Option<Duration>,
) -> Result<(), Error> {
    keeper.stop();
    let give_up = limit.map(|limit| Moment::now().plus(limit));
    let mut ambiguous = false;
    // A request in progress ends at once, as the keeper is stopped.
    let turn = tokio::select! {
        turn = keeper.turn.lock() => Some(turn),
        () = reached(give_up) => None,
    };
    loop {
        let attempt = tokio::select! {
            released = keeper.hold.release(), if turn.is_some() => released,
            () = reached(give_up) => Err(Error::Unreachable("no answer in time".to_owned())),
        };
        let Validity { valid_until, over_by } = keeper.validity();
        let cause = match attempt {
            Ok(()) => return Ok(()),
            // Only an earlier attempt of ours can have ended a lease that is still valid.
            Err(Error::NotHeld(_)) if ambiguous && !valid_until.has_passed() => return Ok(()),
            Err(Error::NotHeld(why)) => return Err(Error::NotHeld(why)),
            Err(error) => error.to_string(),
        };
        if give_up.map_or(over_by, |give_up| give_up).has_passed() {
            return Err(Error::Unsure { until: over_by.wall_clock(), cause });
        }
        ambiguous = true;
        sleep(RETRY_PAUSE).await;
    }
}

/// What is left to do after a release with this result, if anything: continue it, and release again
/// whatever a late take brings back.
pub(crate) fn after_release(
    keeper: &Arc<Keeper>,
    result: &Result<(), Error>,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let unsure = matches!(result, Err(Error::Unsure { .. }));
    let unfinished = unsure || keeper.hold.revives_until().is_some();
    unfinished.then(|| release_for_good(keeper.clone(), !unsure))
}

/// Releases the lease until that is acknowledged or the lease is over, and then until nothing can
/// bring it back. `released`: the release was already acknowledged.
pub(crate) async fn release_for_good(keeper: Arc<Keeper>, released: bool) {
    if !released {
        drop(release_until_definite(&keeper, None).await);
    }
    let Some(until) = keeper.hold.revives_until() else { return };
    let give_up = until.plus(LAST_RELEASE);
    loop {
        let last = until.has_passed();
        let definite = matches!(keeper.hold.release().await, Ok(()) | Err(Error::NotHeld(_)));
        if last && (definite || give_up.has_passed()) {
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Step;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// An engine that gives these replies, one after the other.
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
    async fn release_whose_reply_was_lost_counts_as_released() {
        let keeper = keeper(LONG, [Err(unreachable()), Err(not_held())]);
        assert_eq!(release_until_definite(&keeper, None).await, Ok(()));
    }

    #[tokio::test]
    async fn release_of_a_lease_ended_by_another_is_refused() {
        let keeper = keeper(LONG, [Err(not_held())]);
        assert_eq!(release_until_definite(&keeper, None).await, Err(not_held()));
    }

    #[tokio::test]
    async fn unanswered_release_is_unknown_until_the_lease_ends() {
        let keeper = keeper(LONG, []);
        let released = release_until_definite(&keeper, Some(SHORT)).await;
        let Err(Error::Unsure { until, .. }) = released else { panic!("{released:?}") };
        assert!(until > std::time::SystemTime::now());
    }

    #[tokio::test]
    async fn unanswered_release_is_settled_when_the_lease_ends() {
        let keeper = keeper(SHORT, []);
        let released = release_until_definite(&keeper, None).await;
        assert!(matches!(released, Err(Error::Unsure { .. })), "{released:?}");
    }

    #[tokio::test]
    async fn unconfirmed_lease_is_lost_for_good() {
        let keeper = keeper(SHORT, []);
        keeper.lost().await;
        assert!(keeper.remaining().is_zero());
        keeper.validity.send_replace(Validity::of_ttl(Moment::now(), LONG));
        assert!(keeper.remaining().is_zero(), "a lost lease must not come back");
    }

    #[tokio::test]
    async fn late_renewal_is_refused() {
        let keeper = keeper(SHORT, [Ok(())]);
        sleep(SHORT).await;
        let extended = keeper.extend(LONG).await;
        assert!(matches!(extended, Err(Error::NotHeld(_))), "{extended:?}");
    }

    #[tokio::test]
    async fn definite_refusal_loses_the_lease_immediately() {
        let keeper = keeper(LONG, [Err(not_held())]);
        assert!(keeper.extend(LONG).await.is_err());
        assert_eq!(keeper.lost().await.to_string(), "no such lease");
    }

    /// ZooKeeper limits session timeouts, to 40s by default. A lock with a longer TTL was renewed
    /// after a third of that TTL, long after it was lost.
    #[tokio::test]
    async fn lease_shorter_than_its_ttl_is_renewed_in_time() {
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

    /// The guard kept counting on the long lease, although the engine may have had the short one.
    #[tokio::test]
    async fn unanswered_shorter_extension_counts() {
        let keeper = keeper(LONG, [Err(unreachable())]);
        let lost = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.lost().await }
        });
        tokio::task::yield_now().await;
        assert!(keeper.extend(SHORT).await.is_err());
        assert!(keeper.remaining() <= SHORT, "{:?}", keeper.remaining());
        // Tasks that wait for the loss must notice the new deadline.
        tokio::time::timeout(LONG / 4, lost).await.unwrap().unwrap();
    }

    /// An engine that takes its time, and lets extensions arrive late.
    #[derive(Default)]
    struct Slow {
        in_progress: AtomicUsize,
        overlapping: AtomicBool,
        extensions: Mutex<Vec<Duration>>,
        settled: AtomicBool,
    }

    impl Hold for Slow {
        fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
            Box::pin(async move {
                if self.in_progress.fetch_add(1, Ordering::SeqCst) > 0 {
                    self.overlapping.store(true, Ordering::SeqCst);
                }
                let sent = Moment::now();
                sleep(SHORT).await;
                self.extensions.lock().unwrap().push(ttl);
                self.in_progress.fetch_sub(1, Ordering::SeqCst);
                // The shortest ones are never answered.
                if ttl == SHORT { Err(unreachable()) } else { Ok(Validity::of_ttl(sent, ttl)) }
            })
        }

        fn release(&self) -> Step<'_, ()> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn settle(&self) -> Step<'_, Option<Moment>> {
            let later = Moment::now().plus(SHORT);
            let settled = self.settled.load(Ordering::SeqCst);
            Box::pin(std::future::ready(Ok((!settled).then_some(later))))
        }

        fn check(&self) -> Step<'_, Duration> {
            Box::pin(std::future::ready(Ok(LONG)))
        }

        fn proof(&self) -> Option<String> {
            Some(String::new())
        }
    }

    fn slow() -> (Arc<Slow>, Arc<Keeper>) {
        let hold = Arc::new(Slow::default());
        let validity = Validity::of_ttl(Moment::now(), LONG);
        (hold.clone(), Keeper::new("seat".to_owned(), hold, validity))
    }

    /// Two concurrent extensions took effect in one order and were answered in the other: the guard
    /// counted on the long lease, and the engine had the short one.
    #[tokio::test]
    async fn extensions_are_sent_sequentially() {
        let (hold, keeper) = slow();
        let (one, other) = tokio::join!(keeper.extend(LONG), keeper.extend(LONG / 2));
        assert_eq!((one, other), (Ok(()), Ok(())));
        assert!(!hold.overlapping.load(Ordering::SeqCst));
        let last = *hold.extensions.lock().unwrap().last().unwrap();
        assert!(keeper.remaining() <= last);
    }

    /// A short extension that arrives after a longer one was confirmed shortens the lease.
    #[tokio::test]
    async fn unanswered_extension_may_arrive_after_the_next() {
        let (hold, keeper) = slow();
        keeper.extend(LONG).await.unwrap();
        assert_eq!(keeper.extend(SHORT).await, Err(unreachable()));
        // The guard has lost the lease by now, as it should have; another one goes on from here.
        let keeper = Keeper::attached(
            "seat".to_owned(),
            hold.clone(),
            Validity::of_ttl(Moment::now(), LONG),
        );
        keeper.extend(SHORT).await.unwrap_err();
        keeper.extend(LONG).await.unwrap();
        assert!(keeper.validity().valid_until.remaining() <= SHORT);
        hold.settled.store(true, Ordering::SeqCst);
        keeper.extend(LONG).await.unwrap();
        assert!(keeper.validity().valid_until.remaining() > LONG / 2);
    }

    /// A renewal in progress shortened what the next process had extended.
    #[tokio::test]
    async fn nothing_is_sent_after_a_hand_over() {
        let (hold, keeper) = slow();
        let renewing = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.extend(LONG / 2).await }
        });
        while hold.in_progress.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        keeper.hand_over().await.unwrap();
        assert_eq!(hold.in_progress.load(Ordering::SeqCst), 0, "it is still under way");
        renewing.await.unwrap().unwrap();
        assert!(matches!(keeper.extend(LONG).await, Err(Error::NotHeld(_))));
        assert_eq!(*hold.extensions.lock().unwrap(), [LONG / 2]);
    }

    #[tokio::test]
    async fn hand_over_waits_until_nothing_can_arrive_late() {
        let (hold, keeper) = slow();
        keeper.turn.lock().await.unanswered = Some(LONG);
        let handing_over = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.hand_over().await }
        });
        sleep(SHORT * 3).await;
        assert!(!handing_over.is_finished());
        hold.settled.store(true, Ordering::SeqCst);
        handing_over.await.unwrap().unwrap();
    }

    /// Another process had extended the lease, and the engine did not answer: by the clock of the
    /// process that released it the lease was over, and that was reported as a fact.
    #[tokio::test]
    async fn only_the_engine_decides_that_a_lease_is_over() {
        let hold = Arc::new(Scripted(Mutex::new(VecDeque::new())));
        let stale = Validity { valid_until: Moment::now(), over_by: Moment::now() };
        let keeper = Keeper::attached("seat".to_owned(), hold, stale);
        let released = release_until_definite(&keeper, Some(SHORT)).await;
        assert!(matches!(released, Err(Error::Unsure { .. })), "{released:?}");
    }

    #[tokio::test]
    async fn release_continues_after_an_unknown_outcome() {
        let keeper = keeper(LONG, [Err(unreachable()), Err(unreachable()), Ok(())]);
        let released = release_until_definite(&keeper, Some(Duration::ZERO)).await;
        assert!(matches!(released, Err(Error::Unsure { .. })), "{released:?}");
        let rest = after_release(&keeper, &released).expect("it goes on");
        tokio::time::timeout(LONG / 4, rest).await.expect("until it is acknowledged");
        assert!(after_release(&keeper, &Ok(())).is_none());
    }
}
