//! Taking a lock: set the key on a majority, or wait and try again.

use super::hold::RedisHold;
use super::quorum::{Answers, Quorum, count, fault};
use super::reply::Fault;
use super::server::{Busy, Server, Taken};
use super::wakeup::Listening;
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request, Validity, label_of};
use crate::error::Error;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pauses between attempts: most clients of this recipe never say that they released, so waiters
/// have to look. Each pause is jittered, so that waiters don't come all at once.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a round of attempts came to.
enum Round {
    Won,
    Lost(Busy),
    /// Too few servers answered.
    Undecided(Fault),
}

pub(super) async fn acquire(quorum: &Arc<Quorum>, request: &Request) -> Result<Acquired, Error> {
    let hold = RedisHold::new(quorum, &request.name, &request.owner());
    let mut waits = Waits::new(quorum, &request.name);
    // Since when no majority has answered.
    let mut silent_since = None;
    // The servers that may have the key, by their places in the list.
    let mut possible = BTreeSet::new();
    loop {
        let sent = Moment::now();
        let round = round(quorum, &hold, request.ttl, &mut possible).await;
        let validity = Validity::of_ttl(sent, request.ttl);
        let busy = match round {
            Round::Won if !validity.valid_until.has_passed() => {
                return Ok(Acquired::Held(Held { hold, token: None, ending: None, validity }));
            }
            // It took too long.
            Round::Won => Busy::default(),
            Round::Lost(busy) => busy,
            Round::Undecided(fault) => {
                let since = *silent_since.get_or_insert(sent);
                let refused = matches!(fault.error, Error::Refused(_));
                let too_long = since.plus(quorum.patience()).has_passed();
                if refused || too_long || request.caller.has_changed().is_err() {
                    let unsure = left_behind(quorum, &hold, request, possible, &fault.error).await;
                    return Err(unsure.unwrap_or(fault.error));
                }
                clean_up(quorum, &hold, &mut possible).await;
                sleep(waits.next_pause(None)).await;
                continue;
            }
        };
        silent_since = None;
        clean_up(quorum, &hold, &mut possible).await;
        if !waits.pause(request, &busy).await {
            let holder = busy.owner.as_deref().map(label_of);
            let late = Error::Unreachable("the answers came too late".to_owned());
            return match left_behind(quorum, &hold, request, possible, &late).await {
                Some(unsure) => Err(unsure),
                None => Ok(Acquired::Busy { holder }),
            };
        }
    }
}

/// One attempt on each server.
async fn round(
    quorum: &Quorum,
    hold: &RedisHold,
    ttl: Duration,
    possible: &mut BTreeSet<usize>,
) -> Round {
    let (limit, majority, minority) = (quorum.limit(), quorum.majority(), quorum.minority());
    let call = |server: Arc<Server>| {
        let (name, owner) = hold.key();
        async move { server.take(&name, &owner, ttl, limit).await }
    };
    let taken = |answers: &Answers<Taken>| count(answers, |taken| matches!(taken, Taken::Yes));
    let busy = |answers: &Answers<Taken>| count(answers, |taken| matches!(taken, Taken::No(_)));
    let decided = |answers: &Answers<Taken>| taken(answers) >= majority || busy(answers) > minority;
    let answers = quorum.ask(call, decided).await;
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Some(Ok(Taken::No(_))) => {
                possible.remove(&place);
            }
            Some(Err(Fault { may_have_happened: false, .. })) => {}
            Some(Ok(Taken::Yes) | Err(_)) | None => {
                possible.insert(place);
            }
        }
    }
    if taken(&answers) >= majority {
        return Round::Won;
    }
    if busy(&answers) <= minority {
        return Round::Undecided(fault(&answers));
    }
    let in_the_way = answers.into_iter().filter_map(|answer| match answer {
        Some(Ok(Taken::No(busy))) => Some(busy),
        _ => None,
    });
    // The soonest end is when another attempt could succeed.
    Round::Lost(in_the_way.min_by_key(|busy| busy.ttl.unwrap_or(Duration::MAX)).unwrap_or_default())
}

/// Takes back what a minority granted: it would be in the way of others. A single server that grants
/// has granted the lock, and the next attempt finds that out.
async fn clean_up(quorum: &Quorum, hold: &RedisHold, possible: &mut BTreeSet<usize>) {
    if !quorum.is_single() {
        hold.remove_from(possible).await;
    }
}

/// Removes what attempts may have set. If too many servers may still have it, nobody can take the lock
/// for a while, and the error says so.
async fn left_behind(
    quorum: &Quorum,
    hold: &RedisHold,
    request: &Request,
    mut possible: BTreeSet<usize>,
    cause: &Error,
) -> Option<Error> {
    hold.remove_from(&mut possible).await;
    let until = Validity::unsure(request.ttl).wall_clock();
    let blocked = possible.len() > quorum.minority();
    blocked.then(|| Error::Unsure { until, cause: cause.to_string() })
}

/// The pauses of one acquire.
struct Waits<'a> {
    quorum: &'a Quorum,
    name: &'a str,
    pause: Duration,
    /// From the first pause on: wakes when a client that says so has released the lock.
    listening: Option<Listening>,
}

impl<'a> Waits<'a> {
    fn new(quorum: &'a Quorum, name: &'a str) -> Self {
        Self { quorum, name, pause: PAUSE_FIRST, listening: None }
    }

    /// Waits until another attempt makes sense; false if the wait is over.
    async fn pause(&mut self, request: &Request, busy: &Busy) -> bool {
        if request.is_given_up() {
            return false;
        }
        let most = self.next_pause(busy.ttl);
        let (quorum, name) = (self.quorum, self.name);
        let listening = self.listening.get_or_insert_with(|| quorum.listen(name));
        request.pause(most, listening.released()).await
    }

    /// The next pause, which grows, but not beyond the end of the key that is in the way.
    fn next_pause(&mut self, key_ends: Option<Duration>) -> Duration {
        let most = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let part = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        let pause = most.mul_f64(0.5 + part / 2.0);
        let just_after = |ends: Duration| ends + Duration::from_millis(1);
        pause.min(key_ends.map_or(Duration::MAX, just_after))
    }
}
