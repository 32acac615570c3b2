//! Taking a lock: set the key on a majority, or wait and try again.

use super::hold::RedisHold;
use super::quorum::{Answers, Quorum, count, fault};
use super::reply::Fault;
use super::server::{Busy, Server, SetResult, late_until};
use super::wakeup::Listening;
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request, Validity, label_of};
use crate::error::Error;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pauses between attempts: most clients of this recipe don't publish their releases, so waiters
/// have to poll. Each pause is jittered, so that waiters don't all come at once.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The pause between attempts to remove what an attempt may have left behind.
const SWEEP_PAUSE: Duration = Duration::from_millis(200);

/// The result of one round of attempts.
enum Round {
    Won,
    Lost(Busy),
    /// Too few servers answered.
    Undecided(Error),
}

/// The servers that may have the key after a round, by their index in the list.
#[derive(Default)]
struct Possible {
    granted: BTreeSet<usize>,
    /// These may still set it, until the round's requests are too late.
    unanswered: BTreeSet<usize>,
}

impl Possible {
    fn all(&self) -> BTreeSet<usize> {
        &self.granted | &self.unanswered
    }
}

pub(super) async fn acquire(quorum: &Arc<Quorum>, request: &Request) -> Result<Acquired, Error> {
    let mut waits = Pauses::new(quorum, &request.name);
    // Since when no majority has answered.
    let mut silent_since = None;
    let mut owner = request.owner();
    for number in 1_u64.. {
        let hold = RedisHold::new(quorum, &request.name, &owner);
        let sent = Moment::now();
        let (round, possible) = round(quorum, &hold, request.ttl).await;
        let validity = Validity::of_ttl(sent, request.ttl);
        let late = late_until(sent, quorum.limit(), quorum.limit());
        if matches!(round, Round::Won) && !validity.valid_until.has_passed() {
            let hold = hold.taken((!possible.unanswered.is_empty()).then_some(late));
            let hold = Arc::new(hold);
            return Ok(Acquired::Held(Held { hold, token: None, ending: None, validity }));
        }
        // What is still in flight, of this attempt or of its removal, must not affect the next one.
        if !possible.all().is_empty() {
            owner = format!("{}.{number}", request.owner());
        }
        let rest =
            Leftover { hold, possible, late, over_by: late.plus(request.ttl + request.ttl / 10) };
        let busy = match round {
            Round::Lost(busy) => busy,
            // It took too long.
            Round::Won => Busy::default(),
            Round::Undecided(error) => {
                let since = *silent_since.get_or_insert(sent);
                let refused = matches!(error, Error::Refused(_));
                let too_long = since.plus(quorum.round_timeout()).has_passed();
                if refused || too_long || request.caller.has_changed().is_err() {
                    let unsure = rest.remove(quorum, request, &error).await;
                    return Err(unsure.unwrap_or(error));
                }
                rest.remove_later(request);
                sleep(waits.next_pause(None)).await;
                continue;
            }
        };
        silent_since = None;
        let late = Error::Unreachable("the answers came too late".to_owned());
        let unsure = rest.remove(quorum, request, &late).await;
        if !waits.pause(request, &busy).await {
            let others = busy.owner.filter(|owner| !owner.starts_with(&request.owner()));
            let holder = others.as_deref().map(label_of);
            return unsure.map_or(Ok(Acquired::Busy { holder }), Err);
        }
    }
    Err(Error::Unreachable("internal error: no more attempts".to_owned()))
}

/// Makes one attempt on each server.
async fn round(quorum: &Quorum, hold: &RedisHold, ttl: Duration) -> (Round, Possible) {
    let (limit, majority, minority) = (quorum.limit(), quorum.majority(), quorum.minority());
    let call = |server: Arc<Server>| {
        let (name, owner) = hold.key();
        async move { server.take(&name, &owner, ttl, limit).await }
    };
    let taken =
        |answers: &Answers<SetResult>| count(answers, |taken| matches!(taken, SetResult::Yes));
    let busy =
        |answers: &Answers<SetResult>| count(answers, |taken| matches!(taken, SetResult::No(_)));
    let decided =
        |answers: &Answers<SetResult>| taken(answers) >= majority || busy(answers) > minority;
    let answers = quorum.ask(call, decided).await;
    let mut possible = Possible::default();
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Some(Ok(SetResult::No(_)) | Err(Fault { may_have_happened: false, .. })) => false,
            Some(Ok(SetResult::Yes)) => possible.granted.insert(place),
            Some(Err(_)) | None => possible.unanswered.insert(place),
        };
    }
    if taken(&answers) >= majority {
        return (Round::Won, possible);
    }
    if busy(&answers) <= minority {
        return (Round::Undecided(fault(&answers).error), possible);
    }
    let in_the_way = answers.into_iter().filter_map(|answer| match answer {
        Some(Ok(SetResult::No(busy))) => Some(busy),
        _ => None,
    });
    // The next attempt could succeed when the first of these keys expires.
    let busy = in_the_way.min_by_key(|busy| busy.ttl.unwrap_or(Duration::MAX));
    (Round::Lost(busy.unwrap_or_default()), possible)
}

/// What is left of an attempt that did not take the lock: it would be in the way of others.
struct Leftover {
    hold: RedisHold,
    possible: Possible,
    /// Until when it may still set the key.
    late: Moment,
    /// When the key has expired in any case.
    over_by: Moment,
}

impl Leftover {
    /// Removes it, and continues in the background with the servers that don't answer. If too many
    /// servers may still have it, nobody can take the lock for a while, and an error says so.
    async fn remove(self, quorum: &Quorum, request: &Request, cause: &Error) -> Option<Error> {
        let mut left = self.possible.all();
        self.hold.remove_from(&mut left).await;
        let blocked = left.len() > quorum.minority();
        let until = self.over_by.wall_clock();
        left.extend(&self.possible.unanswered);
        if !left.is_empty() {
            request.finish_later(self.sweep(left));
        }
        blocked.then(|| Error::Unsure { until, cause: cause.to_string() })
    }

    fn remove_later(self, request: &Request) {
        let left = self.possible.all();
        if !left.is_empty() {
            request.finish_later(self.sweep(left));
        }
    }

    /// Continues until the key is certainly gone.
    async fn sweep(self, mut left: BTreeSet<usize>) {
        loop {
            let last = self.late.has_passed();
            let mut silent = left.clone();
            self.hold.remove_from(&mut silent).await;
            if last {
                left = silent;
            }
            if left.is_empty() || self.over_by.has_passed() {
                return;
            }
            sleep(SWEEP_PAUSE).await;
        }
    }
}

/// The pauses of one acquire.
struct Pauses<'a> {
    quorum: &'a Quorum,
    name: &'a str,
    pause: Duration,
    /// Set at the first pause: wakes when a client that publishes its releases has released the
    /// lock.
    listening: Option<Listening>,
}

impl<'a> Pauses<'a> {
    fn new(quorum: &'a Quorum, name: &'a str) -> Self {
        Self { quorum, name, pause: PAUSE_FIRST, listening: None }
    }

    /// Waits until another attempt makes sense; returns false if the wait is over.
    async fn pause(&mut self, request: &Request, busy: &Busy) -> bool {
        if request.is_given_up() {
            return false;
        }
        let most = self.next_pause(busy.ttl);
        let (quorum, name) = (self.quorum, self.name);
        let listening = self.listening.get_or_insert_with(|| quorum.listen(name));
        request.pause(most, listening.released()).await
    }

    /// The next pause. Pauses grow, but not beyond the expiry of the key in the way.
    fn next_pause(&mut self, key_ends: Option<Duration>) -> Duration {
        let most = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let part = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        let pause = most.mul_f64(0.5 + part / 2.0);
        let just_after = |ends: Duration| ends + Duration::from_millis(1);
        pause.min(key_ends.map_or(Duration::MAX, just_after))
    }
}
