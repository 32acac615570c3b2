//! Tickets that outlived the session they were acquired in. The server notifies only a ticket's own
//! session, which is over; so their locks are watched.

use super::SessionState;
use super::io::{Output, WatchId, WatchUpdate};

/// How many locks are watched at once. The end of any other ticket is noticed when it is renewed.
const WATCHES_MAX: usize = 256;

impl SessionState {
    /// A new session has been opened. Tickets of an earlier one may already be over, so they are
    /// renewed immediately, and watched from now on.
    pub(super) fn follow_survivors(&mut self) {
        for token in self.held.with_own_lease() {
            self.follow_survivor(token);
        }
    }

    /// The same for one ticket, if it was acquired in an earlier session.
    pub(super) fn follow_survivor(&mut self, token: u64) {
        let Some(session) = self.session.as_ref().map(|session| session.number) else { return };
        let watch = WatchId(self.next_id());
        let Some(held) = self.held.get_mut(token).filter(|held| held.session != session) else {
            return;
        };
        held.renew_now = true;
        if held.watch.is_none() && self.watches.len() < WATCHES_MAX {
            held.watch = Some(watch);
            self.watches.insert(watch, token);
            let name = held.ticket.name.clone();
            self.outputs.push(Output::Watch { watch, name, token });
        }
    }

    pub(super) fn watched(&mut self, watch: WatchId, news: WatchUpdate) {
        let Some(token) = self.watches.get(&watch).copied() else { return };
        let Some(held) = self.held.get_mut(token).filter(|held| held.watch == Some(watch)) else {
            return;
        };
        match news {
            WatchUpdate::Begun => {
                held.renew_now = true;
                self.look_soon();
            }
            WatchUpdate::Ended(how) => self.ended(token, how),
            WatchUpdate::Revocation(asked) => self.ask_to_let_go(token, asked),
        }
    }

    /// Ends the watches of tickets that are no longer held.
    pub(super) fn end_watches(&mut self) {
        let (held, outputs) = (&self.held, &mut self.outputs);
        self.watches.retain(|watch, token| {
            let needed = held.get(*token).is_some_and(|held| held.watch == Some(*watch));
            if !needed {
                outputs.push(Output::Unwatch(*watch));
            }
            needed
        });
    }
}
