//! Taking a lock: draw a ticket, then wait until it is the first.

use super::hold::MemoryHold;
use super::space::{Entered, Space};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request, Validity, label_of};
use std::sync::Arc;
use std::time::Duration;

/// How long a waiter sleeps at most, whatever the holder's deadline is.
const LOOK_EVERY: Duration = Duration::from_secs(60);

pub(super) async fn acquire(space: &Arc<Space>, request: &Request) -> Acquired {
    let (name, owner) = (request.name.as_str(), request.owner());
    let Entered { token, moved } = space.enter(name, owner.clone(), request.note.clone());
    loop {
        let sent = Moment::now();
        let turn = space.with_line(name, |line| {
            let first = line.tickets.front_mut()?;
            if first.owner != owner {
                return Some(Err((label_of(&first.owner), first.deadline)));
            }
            first.deadline = Some(sent.plus(request.ttl));
            // The next in line waits for this deadline.
            if let Some(next) = line.tickets.get(1) {
                next.moved.notify_one();
            }
            Some(Ok(()))
        });
        let (holder, deadline) = match turn {
            Some(Ok(())) => {
                let hold = MemoryHold { space: space.clone(), name: name.to_owned(), owner };
                return Acquired::Held(Held {
                    hold: Arc::new(hold),
                    token: Some(token),
                    ending: space.take_death(name),
                    validity: Validity::of_ttl(sent, request.ttl),
                });
            }
            Some(Err((holder, deadline))) => (Some(holder), deadline),
            None => (None, None),
        };
        let most = deadline.map_or(LOOK_EVERY, Moment::remaining).min(LOOK_EVERY);
        if !request.pause(most, moved.notified()).await {
            space.with_line(name, |line| line.remove(&owner));
            return Acquired::Busy { holder };
        }
    }
}
