//! A guard that says that it holds a lock is right: by the clock of its client, nobody else is served in
//! its way meanwhile, no two guards that exclude each other are good at once, and its ticket is not
//! over. Only an operator can break that, and then the guard is told soon.

use super::{Applied, Violation};
use holdfast_core::{Effect, EndReason, Ended, Grant, LockName, Mode, Token};
use std::collections::BTreeMap;

/// How long a guard may be good after its lease would have run out, if an operator has ended its
/// ticket: as long as its node may lag behind the leader that confirms its heartbeats.
const NOTIFIED_WITHIN_US: u64 = 20_000_000;

/// How long it may take without any fault.
const KNOWN_WITHIN_US: u64 = 3_000_000;

/// A guard, or a caller without a session, that says now that it holds a lock.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) client: usize,
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) mode: Mode,
    pub(crate) ttl_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// Held tickets that are over: how, and since when.
    over: BTreeMap<Token, (EndReason, u64)>,
    /// The writer's tickets that upgrades got, by the reader's.
    writers: BTreeMap<Token, Token>,
}

impl Guards {
    pub(crate) fn applied(
        &mut self,
        applied: &Applied<'_>,
        beliefs: &[Belief],
    ) -> Result<(), Violation> {
        let mut released: Vec<&Ended> = Vec::new();
        for effect in applied.effects {
            match effect {
                Effect::Ended(ended) if ended.held => {
                    self.over.insert(ended.token, (ended.how, applied.now_us));
                    match ended.how {
                        EndReason::Released => released.push(ended),
                        EndReason::Forced => {}
                        how => self.ended(ended.token, how, beliefs)?,
                    }
                }
                Effect::Granted(grant) => {
                    // Its reader went in the step before.
                    let upgraded = released.iter().rev().find(|reader| {
                        grant.mode == Mode::Exclusive
                            && reader.session == grant.session
                            && reader.names == grant.names
                    });
                    if let Some(reader) = upgraded {
                        self.writers.insert(reader.token, grant.token);
                    }
                    self.granted(grant, applied.now_us, beliefs)?;
                }
                _ => {}
            }
        }
        // Whoever lets go says so no longer; only an upgrade ends the reader's ticket by itself.
        released.retain(|reader| !self.writers.contains_key(&reader.token));
        released.iter().try_for_each(|ended| self.ended(ended.token, ended.how, beliefs))
    }

    /// The ticket that a guard has, whether or not it knows yet that its upgrade was served.
    fn ticket(&self, belief: &Belief) -> Token {
        self.writers.get(&belief.token).copied().unwrap_or(belief.token)
    }

    /// Whether an operator has ended its ticket, and it need not know yet.
    fn is_forced(&self, belief: &Belief) -> bool {
        matches!(self.over.get(&self.ticket(belief)), Some((EndReason::Forced, _)))
    }

    fn ended(&self, token: Token, how: EndReason, beliefs: &[Belief]) -> Result<(), Violation> {
        match beliefs.iter().find(|belief| self.ticket(belief) == token) {
            Some(Belief { client, name, .. }) => Err(format!(
                "guards: client {client} says that it holds {name}, but token {token} is {how}"
            )),
            None => Ok(()),
        }
    }

    fn granted(&self, grant: &Grant, now_us: u64, beliefs: &[Belief]) -> Result<(), Violation> {
        for name in grant.names.as_slice() {
            let conflicts = |belief: &&Belief| {
                belief.name == *name
                    && ![belief.token, self.ticket(belief)].contains(&grant.token)
                    && (belief.mode == Mode::Exclusive || grant.mode == Mode::Exclusive)
                    && !self.is_forced(belief)
            };
            if let Some(belief) = beliefs.iter().find(conflicts) {
                return Err(format!(
                    "guards: {name} was granted as {} at {now_us} while client {} says that it holds it as \
                     {}",
                    grant.token, belief.client, belief.token
                ));
            }
        }
        Ok(())
    }

    /// Looks at all of them.
    pub(crate) fn look(&self, beliefs: &[Belief], now_us: u64) -> Result<(), Violation> {
        let mut by_name: BTreeMap<&LockName, Vec<&Belief>> = BTreeMap::new();
        for belief in beliefs {
            let Belief { client, name, token, .. } = belief;
            if let Some((how, at_us)) = self.over.get(&self.ticket(belief))
                && now_us > at_us + belief.ttl_ms * 1_000 + NOTIFIED_WITHIN_US
            {
                return Err(format!(
                    "guards: client {client} still says that it holds {name}, and token {token} is {how} \
                     since {} ms",
                    (now_us - at_us) / 1_000
                ));
            }
            if !self.is_forced(belief) {
                by_name.entry(name).or_default().push(belief);
            }
        }
        for (name, beliefs) in by_name {
            let exclusive = beliefs.iter().any(|belief| belief.mode == Mode::Exclusive);
            let permits = beliefs.iter().find_map(|belief| match belief.mode {
                Mode::Permit { of } => Some(of as usize),
                _ => None,
            });
            let most = if exclusive { 1 } else { permits.unwrap_or(usize::MAX) };
            if beliefs.len() > most {
                return Err(format!("guards: {name} is held by {beliefs:?}"));
            }
        }
        Ok(())
    }

    /// A caller that asked at that time was told that it holds a ticket.
    pub(crate) fn told_held(&self, token: Token, asked_us: u64) -> Result<(), Violation> {
        match self.over.get(&token) {
            Some((how, at_us)) if *at_us < asked_us => Err(format!(
                "definite outcome: somebody was told that it holds token {token}, which was {how} before it \
                 asked"
            )),
            _ => Ok(()),
        }
    }

    /// A minute after the last fault every guard knows how its ticket stands.
    pub(crate) fn judge_the_end(&self, beliefs: &[Belief], now_us: u64) -> Result<(), Violation> {
        for belief in beliefs {
            let over = self.over.get(&self.ticket(belief));
            if let Some((how, at_us)) = over.filter(|(_, at_us)| at_us + KNOWN_WITHIN_US < now_us) {
                let Belief { client, name, token, .. } = belief;
                return Err(format!(
                    "guards: client {client} says that it holds {name}, and token {token} is {how} since {} \
                     ms",
                    (now_us - at_us) / 1_000
                ));
            }
        }
        Ok(())
    }

    /// A client was told that a ticket is over; one that ran out by its own clock may be held a little
    /// longer.
    pub(crate) fn lost(
        &self,
        client: usize,
        token: Token,
        how: holdfast_client::EndReason,
    ) -> Result<(), Violation> {
        use holdfast_client::EndReason::{Closed, Expired};
        let ticket = self.writers.get(&token).unwrap_or(&token);
        if matches!(how, Expired | Closed) || self.over.contains_key(ticket) {
            return Ok(());
        }
        Err(format!("nothing lost: client {client} was told that token {token} is over ({how})"))
    }

    /// Nothing acknowledged is lost: a client let go in time, and was told that it did not hold the lock.
    pub(crate) fn not_held(&self, client: usize, token: Token) -> Result<(), Violation> {
        if matches!(self.over.get(&token), Some((EndReason::Forced, _))) {
            return Ok(());
        }
        Err(format!(
            "nothing lost: client {client} let go of token {token} in time and was refused"
        ))
    }
}
