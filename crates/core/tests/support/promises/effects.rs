//! What each effect says about the lines.

use super::{Mark, Promises, must};
use crate::support::run::Wrong;
use holdfast_core::{
    Command, Effect, EndReason, Ended, Grant, Lease, Limits, LockName, Mode, OpenSession, Proof,
    Proposal, SessionId, SessionKind, Token,
};

impl Promises {
    pub(super) fn check_effect(
        &mut self,
        proposal: &Proposal,
        effect: &Effect,
    ) -> Result<(), Wrong> {
        match effect {
            Effect::Granted(grant) => self.check_grant(grant),
            Effect::Ended(ended) => self.check_ended(proposal, ended),
            Effect::Delayed { name, until_ms, .. } => {
                self.lines.entry(name.clone()).or_default().delayed_until_ms = *until_ms;
                Ok(())
            }
            Effect::Downgraded { token, names } => {
                for name in names.as_slice() {
                    let line = self.lines.entry(name.clone()).or_default();
                    for (_, mode) in line.holders.iter_mut().filter(|(held, _)| held == token) {
                        *mode = Mode::Shared;
                    }
                }
                Ok(())
            }
            Effect::Recovered { name, death, .. } => {
                let at = self.marks.iter().position(|mark| mark.name == *name);
                let mark = at.map(|at| self.marks.remove(at));
                let known = mark.as_ref().is_some_and(|mark| mark.first.contains(&death.token));
                must(known, "the dead are known", || {
                    format!("{name}: recovered from {}, not from {mark:?}", death.token)
                })
            }
            Effect::SessionEnded { session, how } => self.check_session(proposal, *session, *how),
            Effect::ObjectChanged { name, now, version } => {
                self.check_object(proposal, name, *now, *version)
            }
            Effect::RevocationAsked { .. }
            | Effect::Noted { .. }
            | Effect::Relabelled { .. }
            | Effect::Published { .. }
            | Effect::NodeChanged { .. }
            | Effect::SessionAttached { .. }
            | Effect::AccessChanged(_)
            | Effect::Audited(_) => Ok(()),
        }
    }

    fn check_grant(&mut self, grant: &Grant) -> Result<(), Wrong> {
        let token = grant.token;
        for name in grant.names.as_slice() {
            self.check_grant_of(name, grant)
                .map_err(|wrong| Wrong { what: format!("{name}: {}", wrong.what), ..wrong })?;
        }
        let Some(seen) = self.tickets.get_mut(&token) else {
            return must(false, "one effect", || format!("{token} was granted but never drawn"));
        };
        let once = !seen.held;
        seen.held = true;
        // A ticket that is served at once needs no confirmation.
        let confirmed = matches!(
            (seen.lease, grant.lease),
            (Lease::Unconfirmed { ttl_ms: asked }, Lease::Deadline { ttl_ms }) if asked == ttl_ms
        );
        if confirmed {
            seen.lease = grant.lease;
        }
        seen.not_before_ms = match seen.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                self.now_ms.saturating_add(ttl_ms)
            }
            Lease::Session | Lease::Permanent => u64::MAX,
        };
        let session = seen.session;
        must(once, "one effect", || format!("{token} was granted twice"))?;
        let dead = session.is_some_and(|session| self.ended(session).is_some());
        must(!dead, "sessions", || format!("{token} was served after its session's end"))
    }

    fn check_grant_of(&mut self, name: &LockName, grant: &Grant) -> Result<(), Wrong> {
        let token = grant.token;
        let (now_ms, kept_ms) = (self.now_ms, self.limits.death_kept_ms);
        let line = self.lines.entry(name.clone()).or_default();
        must(line.highest.is_none_or(|highest| token > highest), "tokens rise", || {
            format!("{token} was granted after {:?}", line.highest)
        })?;
        line.highest = Some(token);
        let overtaken = line.waiters.iter().find(|waiter| **waiter < token);
        must(overtaken.is_none(), "first come, first served", || {
            format!("{token} was served before {overtaken:?}")
        })?;
        let room = match grant.mode {
            Mode::Exclusive => line.holders.is_empty(),
            Mode::Shared => line.holders.iter().all(|(_, mode)| *mode == Mode::Shared),
            Mode::Permit { of } => line.holders.len() < of as usize,
        };
        must(room, "one at a time", || {
            format!("{token} ({:?}) was served beside {:?}", grant.mode, line.holders)
        })?;
        must(!self.objects.contains_key(name), "one at a time", || {
            format!("{token} was served, but there is an object")
        })?;
        must(line.delayed_until_ms <= now_ms, "lock-delay", || {
            format!("{token} was served at {now_ms}, delayed until {}", line.delayed_until_ms)
        })?;
        let after = grant.after.iter().flat_map(|after| after.iter());
        let after: Vec<_> = after.filter(|after| after.name == *name).collect();
        let last = after.iter().find_map(|after| Some(after.last.as_ref()?.token));
        let recover = after.iter().find_map(|after| Some(after.recover.as_ref()?.token));
        let mark = self.marks.iter().find(|mark| mark.name == *name);
        let kept = mark.is_some_and(|mark| mark.at_ms.saturating_add(kept_ms) > now_ms);
        let announced = match recover {
            Some(recover) => mark.is_some_and(|mark| mark.first.contains(&recover)),
            None => !kept,
        };
        must(announced, "the dead are known", || {
            format!("{token} was told that {recover:?} needs recovery, not {mark:?}")
        })?;
        let announced = !kept || line.died_last.is_none() || last == line.died_last;
        must(announced, "the dead are known", || {
            format!("{token} was told of {last:?}, the last was {:?}", line.died_last)
        })?;
        line.waiters.retain(|waiter| *waiter != token);
        line.holders.push((token, grant.mode));
        Ok(())
    }

    fn check_ended(&mut self, proposal: &Proposal, ended: &Ended) -> Result<(), Wrong> {
        let Ended { token, how, held, .. } = *ended;
        let Some(seen) = self.tickets.remove(&token) else {
            return must(false, "one effect", || format!("{token} ended, but did not stand"));
        };
        self.over.insert(token, self.now_ms);
        if held && how == EndReason::Released {
            self.released.insert(token, (ended.names.as_slice().to_vec(), self.effects));
        }
        must(seen.held == held, "certain outcome", || format!("{token}: held is not {held}"))?;
        let announced = !(held && matches!(seen.lease, Lease::Unconfirmed { .. }));
        let bound =
            seen.session.filter(|_| !seen.held || seen.lease == Lease::Session || !announced);
        let died_of = bound.and_then(|session| self.ended(session));
        let right = match how {
            EndReason::Closed => died_of == Some(EndReason::Closed),
            EndReason::Expired if died_of.is_some() => died_of == Some(EndReason::Expired),
            EndReason::Expired | EndReason::TimedOut => self.now_ms >= seen.not_before_ms,
            EndReason::Released | EndReason::Cancelled => died_of.is_none(),
            EndReason::Forced => true,
            // No command restores a backup.
            EndReason::Restored => false,
        };
        must(right, "leases", || format!("{token} must not end now: {how:?}, {seen:?}"))?;
        if let Command::Release { target, proof } | Command::Cancel { target, proof } =
            &proposal.command
            && target.token == Some(token)
            && matches!(how, EndReason::Released | EndReason::Cancelled)
        {
            let proven = matches!(proof, Proof::Label(_)) || self.proves(&seen, proof);
            must(proven, "owners", || format!("{token} was ended by somebody else"))?;
        }
        if let Command::Transact(transaction) = &proposal.command {
            must(seen.door == transaction.door, "doors", || {
                format!("{token} was ended through another door: {seen:?}")
            })?;
        }
        for name in ended.names.as_slice() {
            let line = self.lines.entry(name.clone()).or_default();
            line.holders.retain(|(holder, _)| *holder != token);
            line.waiters.retain(|waiter| *waiter != token);
            // A holder that was never notified leaves nothing behind.
            if held && announced {
                line.died_last = (how != EndReason::Released).then_some(token);
            }
            if held && announced && how != EndReason::Released {
                self.mark(name, token);
            }
        }
        Ok(())
    }

    /// The first death that nobody has recovered from stays the one to recover from.
    fn mark(&mut self, name: &LockName, died: Token) {
        let Limits { death_kept_ms, deaths_max, .. } = self.limits;
        let at = self.marks.iter().position(|mark| mark.name == *name);
        let mark = at.map(|at| self.marks.remove(at));
        let kept = |mark: &Mark| mark.at_ms.saturating_add(death_kept_ms) > self.now_ms;
        let first = match mark {
            None => vec![died],
            Some(mark) if kept(&mark) => mark.first,
            Some(mark) => [mark.first, vec![died]].concat(),
        };
        self.marks.push(Mark { name: name.clone(), first, at_ms: self.now_ms });
        while self.marks.len() > deaths_max {
            self.marks.remove(0);
        }
    }

    fn check_session(
        &mut self,
        proposal: &Proposal,
        session: SessionId,
        how: EndReason,
    ) -> Result<(), Wrong> {
        let asked = match &proposal.command {
            Command::CloseSession(owner) => {
                let secret = self.sessions.get(&owner.id).map(|(secret, _)| *secret);
                owner.id == session && how == EndReason::Closed && secret == Some(owner.secret)
            }
            Command::ExpireSession { session: id, decided_in } => {
                *id == session && how == EndReason::Expired && *decided_in == self.term
            }
            // A new process of the same node.
            Command::OpenSession(OpenSession {
                secret,
                kind: SessionKind::NodeOf { node },
                ..
            }) => {
                let other = self.sessions.get(&session).is_some_and(|(known, _)| known != secret);
                self.nodes.get(&session) == Some(node) && how == EndReason::Closed && other
            }
            _ => false,
        };
        let once = self.ended(session).is_none();
        if let Some((_, ended)) = self.sessions.get_mut(&session) {
            *ended = Some(how);
        }
        must(asked && once, "sessions", || format!("session {session} must not end now: {how:?}"))
    }
}
