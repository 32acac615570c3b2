//! A held lock: the key has this owner's value on a majority.

use super::quorum::{Answers, Quorum, count, fault};
use super::server::{Server, late_until};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::error::Error;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct RedisHold {
    quorum: Arc<Quorum>,
    name: String,
    /// Unique to the acquisition, so it also serves as the proof.
    owner: String,
    /// The servers on which an earlier attempt to release has deleted the key.
    released: Mutex<BTreeSet<usize>>,
    /// Until when a server that did not answer may still set the key.
    taken_late: Option<Moment>,
    /// Until when a server that did not answer may still extend it.
    extended_late: Mutex<Option<Moment>>,
}

fn over() -> Error {
    Error::NotHeld("the key has expired or was deleted".to_owned())
}

impl RedisHold {
    pub(super) fn new(quorum: &Arc<Quorum>, name: &str, owner: &str) -> Self {
        Self {
            quorum: quorum.clone(),
            name: name.to_owned(),
            owner: owner.to_owned(),
            released: Mutex::default(),
            taken_late: None,
            extended_late: Mutex::default(),
        }
    }

    /// Sets until when a server that did not answer may still set the key.
    pub(super) fn taken(self, late: Option<Moment>) -> Self {
        Self { taken_late: late, ..self }
    }

    /// The key and its value.
    pub(super) fn key(&self) -> (String, String) {
        (self.name.clone(), self.owner.clone())
    }

    /// Deletes the key on these servers, and removes from the set those that certainly no longer
    /// have it.
    pub(super) async fn remove_from(&self, places: &mut BTreeSet<usize>) {
        if places.is_empty() {
            return;
        }
        let decided = |answers: &Answers<bool>| {
            places.iter().all(|place| answers.get(*place).is_some_and(Option::is_some))
        };
        let limit = self.quorum.limit();
        let call = |server: Arc<Server>| {
            let (name, owner) = self.key();
            async move { server.remove(&name, &owner, limit).await }
        };
        let answers = self.quorum.ask(call, decided).await;
        places.retain(|place| !matches!(answers.get(*place), Some(Some(Ok(_)))));
    }

    async fn extend_majority(&self, ttl: Duration) -> Result<Validity, Error> {
        let (majority, minority) = (self.quorum.majority(), self.quorum.minority());
        // Leaves time for another attempt before the lease ends.
        let limit = self.quorum.limit().min(ttl / 3);
        let sent = Moment::now();
        // Set first: this future may be dropped at any await.
        self.extended_late().replace(late_until(sent, limit, self.quorum.limit()));
        let call = |server: Arc<Server>| {
            let (name, owner) = self.key();
            async move { server.extend(&name, &owner, ttl, limit).await }
        };
        let extended = |answers: &Answers<bool>| count(answers, |extended| *extended);
        let gone = |answers: &Answers<bool>| count(answers, |extended| !*extended);
        let decided =
            |answers: &Answers<bool>| extended(answers) >= majority || gone(answers) > minority;
        let answers = self.quorum.ask(call, decided).await;
        if extended(&answers) >= majority {
            Ok(Validity::of_ttl(sent, ttl))
        } else if gone(&answers) > minority {
            Err(over())
        } else {
            Err(fault(&answers).error)
        }
    }

    async fn release_majority(&self) -> Result<(), Error> {
        let (limit, majority) = (self.quorum.limit(), self.quorum.majority());
        let call = |server: Arc<Server>| {
            let (name, owner) = self.key();
            async move { server.release(&name, &owner, limit).await }
        };
        let decided = |answers: &Answers<bool>| count(answers, |_| true) >= majority;
        let answers = self.quorum.ask(call, decided).await;
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        let deleted = |(place, answer): (usize, &Option<Result<bool, _>>)| {
            matches!(answer, Some(Ok(true))).then_some(place)
        };
        released.extend(answers.iter().enumerate().filter_map(deleted));
        let mut was_gone = 0;
        for (place, answer) in answers.iter().enumerate() {
            was_gone += usize::from(matches!(answer, Some(Ok(_))) && !released.contains(&place));
        }
        if was_gone >= majority {
            Err(over())
        } else if was_gone + released.len() >= majority {
            Ok(())
        } else {
            Err(fault(&answers).error)
        }
    }

    fn extended_late(&self) -> MutexGuard<'_, Option<Moment>> {
        self.extended_late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check_majority(&self) -> Result<Duration, Error> {
        let (limit, majority) = (self.quorum.limit(), self.quorum.majority());
        let call = |server: Arc<Server>| {
            let (name, owner) = self.key();
            async move { server.check(&name, &owner, limit).await }
        };
        let gone = |answers: &Answers<Option<Duration>>| count(answers, Option::is_none);
        let known = |answers: &Answers<Option<Duration>>| count(answers, Option::is_some);
        let decided = |answers: &Answers<Option<Duration>>| {
            known(answers) >= majority || gone(answers) > self.quorum.minority()
        };
        let answers = self.quorum.ask(call, decided).await;
        if gone(&answers) > self.quorum.minority() {
            return Err(over());
        }
        if known(&answers) < majority {
            return Err(fault(&answers).error);
        }
        let left = answers.into_iter().filter_map(|answer| answer?.ok()?);
        let mut left: Vec<Duration> = left.collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        // The lease is over once fewer than a majority of the keys are left.
        Ok(left.get(majority - 1).copied().unwrap_or_default())
    }
}

impl Hold for RedisHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(self.extend_majority(ttl))
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(self.release_majority())
    }

    fn settle(&self) -> Step<'_, Option<Moment>> {
        let late = self.extended_late().filter(|late| !late.has_passed());
        Box::pin(std::future::ready(Ok(late)))
    }

    fn revives_until(&self) -> Option<Moment> {
        self.taken_late
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(self.check_majority())
    }

    fn proof(&self) -> Option<String> {
        Some(self.owner.clone())
    }
}
