//! Between gRPC's messages and the core's commands, answers and effects. Pure.

use crate::failure::Failure;
use crate::random;
use crate::times;
use bytes::Bytes;
use holdfast_core::{
    self as core, Answer, BadText, Command, Door, Effect, Label, Lease, LockName, Note, Proof,
    Reason, RequestId, RequestKey, Secret, SessionRef, Target, Token, Value, Wait,
};
use holdfast_proto::v1::{self as proto, request, standing, to_client, watch_event};

/// A wait that ends only with its session.
const FOREVER: u64 = u64::MAX;

fn bad(error: BadText) -> Failure {
    Failure::bad(error.to_string(), "correct the field and send again")
}

fn missing(field: &'static str) -> Failure {
    Failure::bad(format!("{field} is missing"), "fill in the field and send again")
}

pub(super) fn name(bytes: &Bytes) -> Result<LockName, Failure> {
    LockName::parse(bytes).map_err(bad)
}

pub(super) fn label(bytes: Option<Bytes>) -> Result<Option<Label>, Failure> {
    bytes.map(Label::parse).transpose().map_err(bad)
}

pub(super) fn reason(bytes: &Bytes) -> Result<Reason, Failure> {
    Reason::parse(bytes).map_err(bad)
}

pub(super) fn secret(bytes: &Bytes) -> Result<Secret, Failure> {
    let secret = <[u8; 16]>::try_from(bytes.as_ref());
    secret
        .map(Secret)
        .map_err(|_| Failure::bad("a secret has 16 bytes", "send the secret as it was received"))
}

pub(super) fn request_key(bytes: &Bytes) -> Result<RequestKey, Failure> {
    RequestKey::parse(bytes).map_err(bad)
}

pub(super) fn mode(mode: i32, permits: u32) -> Result<core::Mode, Failure> {
    match proto::Mode::try_from(mode) {
        Ok(proto::Mode::Exclusive) => Ok(core::Mode::Exclusive),
        Ok(proto::Mode::Shared) => Ok(core::Mode::Shared),
        Ok(proto::Mode::Permit) => Ok(core::Mode::Permit { of: permits }),
        Err(_) => Err(Failure::bad(format!("there is no mode {mode}"), "use one of the three")),
    }
}

/// A session owns its waits, so they may be as long as it likes.
fn wait(wait_ms: Option<u64>, session: Option<SessionRef>) -> Result<Wait, Failure> {
    match (wait_ms, session) {
        (Some(FOREVER), _) => Ok(Wait::Forever),
        (Some(ms @ 1..), Some(_)) => Ok(Wait::For { ms }),
        (wait_ms, _) => times::wait(wait_ms),
    }
}

pub(super) fn acquire(
    acquire: proto::Acquire,
    session: Option<SessionRef>,
) -> Result<core::Acquire, Failure> {
    let lease = match (acquire.ttl_ms, session) {
        (Some(ttl_ms), _) => Lease::Deadline { ttl_ms: times::ttl_ms(ttl_ms)? },
        (None, Some(_)) => Lease::Session,
        (None, None) => return Err(missing("ttl_ms")),
    };
    Ok(core::Acquire {
        names: acquire.names.iter().map(name).collect::<Result<_, _>>()?,
        mode: mode(acquire.mode, acquire.permits)?,
        session,
        lease,
        wait: wait(acquire.wait_ms, session)?,
        label: label(acquire.label)?,
        note: acquire.note.map(Note::parse).transpose().map_err(bad)?,
        secret: Some(Secret(random::bytes())),
        claims: acquire.claims.into_iter().map(Token).collect(),
        lock_delay_ms: acquire.lock_delay_ms,
        door: Door::Native,
    })
}

/// Whose ticket it is: proved by its own secret, or by the stream's session.
pub(super) fn own(
    own: Option<proto::Own>,
    session: Option<SessionRef>,
) -> Result<(Target, Proof), Failure> {
    let own = own.ok_or_else(|| missing("own"))?;
    let target = Target { name: name(&own.name)?, token: Some(Token(own.token)) };
    let proof = match session {
        Some(session) if own.secret.is_empty() => session.secret,
        _ => secret(&own.secret)?,
    };
    Ok((target, Proof::Secret(proof)))
}

pub(super) fn renew(
    renew: proto::RenewRequest,
    session: Option<SessionRef>,
) -> Result<Command, Failure> {
    let (target, proof) = own(renew.own, session)?;
    Ok(match renew.ttl_ms {
        Some(ttl_ms) => Command::Renew { target, proof, ttl_ms: times::ttl_ms(ttl_ms)? },
        None => Command::Persist { target, proof },
    })
}

pub(super) fn note(
    note: proto::NoteRequest,
    session: Option<SessionRef>,
) -> Result<Command, Failure> {
    let (target, proof) = own(note.own, session)?;
    let note = note.note.map(Note::parse).transpose().map_err(bad)?;
    Ok(Command::Note { target, proof, note })
}

pub(super) fn put(put: &proto::PutRequest) -> Result<Command, Failure> {
    Ok(Command::Put {
        key: name(&put.key)?,
        value: Value::parse(&put.value).map_err(bad)?,
        token: Token(put.token),
        mode: mode(put.mode, 1)?,
    })
}

pub(super) fn raise(raise: &proto::RaiseRequest) -> Result<Command, Failure> {
    let (key, mode) = (name(&raise.key)?, mode(raise.mode, 1)?);
    Ok(Command::Raise { key, token: Token(raise.token), mode })
}

/// A request of a session's stream.
pub(super) fn request(
    request: proto::Request,
    session: SessionRef,
) -> Result<(core::Request, Command), Failure> {
    let number = |number, field| RequestId::new(number).ok_or_else(|| missing(field));
    let id = core::Request::InSession {
        session,
        id: number(request.id, "id")?,
        lowest: number(request.lowest, "lowest")?,
    };
    let owned = |sent| own(Some(sent), Some(session));
    let command = match request.what.ok_or_else(|| missing("what"))? {
        request::What::Acquire(sent) => Command::Acquire(acquire(sent, Some(session))?),
        request::What::Release(sent) => {
            owned(sent).map(|(target, proof)| Command::Release { target, proof })?
        }
        request::What::Cancel(sent) => {
            owned(sent).map(|(target, proof)| Command::Cancel { target, proof })?
        }
        request::What::Recovered(sent) => {
            owned(sent).map(|(target, proof)| Command::Recovered { target, proof })?
        }
        request::What::Downgrade(sent) => {
            owned(sent).map(|(target, proof)| Command::Downgrade { target, proof })?
        }
        request::What::Upgrade(sent) => {
            let (target, proof) = own(sent.own, Some(session))?;
            let claims = sent.claims.into_iter().map(Token).collect();
            let wait = wait(sent.wait_ms, Some(session))?;
            Command::Upgrade { target, proof, wait, claims }
        }
        request::What::Renew(sent) => renew(sent, Some(session))?,
        request::What::Note(sent) => note(sent, Some(session))?,
        request::What::Put(sent) => put(&sent)?,
        request::What::Raise(sent) => raise(&sent)?,
    };
    Ok((id, command))
}

fn bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

pub(super) fn how(how: core::How) -> i32 {
    let how = match how {
        core::How::Released => proto::How::Released,
        core::How::Expired => proto::How::Expired,
        core::How::Closed => proto::How::Closed,
        core::How::Forced => proto::How::Forced,
        core::How::Cancelled => proto::How::Cancelled,
        core::How::TimedOut => proto::How::TimedOut,
        core::How::Restored => proto::How::Restored,
    };
    how.into()
}

fn mode_out(mode: core::Mode) -> i32 {
    let mode = match mode {
        core::Mode::Exclusive => proto::Mode::Exclusive,
        core::Mode::Shared => proto::Mode::Shared,
        core::Mode::Permit { .. } => proto::Mode::Permit,
    };
    mode.into()
}

fn names(names: &core::Names) -> Vec<Bytes> {
    names.as_slice().iter().map(|name| bytes(name.as_bytes())).collect()
}

pub(super) fn ending(ending: &core::Ending) -> proto::Ending {
    proto::Ending {
        how: how(ending.how),
        token: ending.token.0,
        label: ending.label.as_ref().map(|label| bytes(label.as_bytes())),
        note: ending.note.as_ref().map(|note| bytes(note.as_bytes())),
        wall_ms: ending.wall_ms,
        by: ending.forced.as_ref().map(|forced| bytes(forced.by.as_bytes())),
        reason: ending.forced.as_ref().map(|forced| bytes(forced.reason.as_bytes())),
    }
}

/// A grant; its secret only for its holder.
pub(super) fn grant(grant: &core::Grant, for_holder: bool) -> proto::Grant {
    let after = grant.after.as_deref().unwrap_or_default().iter();
    proto::Grant {
        token: grant.token.0,
        names: names(&grant.names),
        mode: mode_out(grant.mode),
        secret: match &grant.secret {
            Some(secret) if for_holder => bytes(&secret.0),
            _ => Bytes::new(),
        },
        label: grant.label.as_ref().map(|label| bytes(label.as_bytes())),
        waited_ms: grant.waited_ms,
        ttl_ms: match grant.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => Some(ttl_ms),
            Lease::Session | Lease::Permanent => None,
        },
        after: after
            .map(|after| proto::After {
                name: bytes(after.name.as_bytes()),
                last: after.last.as_deref().map(ending),
                needs_recovery: after.recover.as_deref().map(ending),
            })
            .collect(),
    }
}

fn ended(ended: &core::Ended) -> proto::Ended {
    proto::Ended {
        token: ended.token.0,
        names: names(&ended.names),
        how: how(ended.how),
        held: ended.held,
        label: ended.label.as_ref().map(|label| bytes(label.as_bytes())),
        note: ended.note.as_ref().map(|note| bytes(note.as_bytes())),
    }
}

pub(super) fn standing(standing: &core::Standing) -> proto::Standing {
    let what = match standing {
        core::Standing::Waiting { token, secret, place, .. } => {
            standing::What::Waiting(proto::Waiting {
                token: token.0,
                secret: secret.as_ref().map_or_else(Bytes::new, |secret| bytes(&secret.0)),
                place: place.map_or(0, |place| place as u64),
            })
        }
        core::Standing::Held(held) => standing::What::Held(grant(held, true)),
        core::Standing::Over { token, how: ended } => {
            standing::What::Over(proto::Over { token: token.0, how: how(*ended) })
        }
    };
    proto::Standing { what: Some(what) }
}

pub(super) fn fence(fence: &core::Fence) -> proto::Fence {
    proto::Fence {
        highest_exclusive: fence.highest_exclusive.0,
        highest: fence.highest.0,
        value: fence.value.as_ref().map(|value| bytes(value.as_bytes())),
    }
}

pub(super) fn refused(failure: Failure) -> proto::Refused {
    proto::Refused {
        code: failure.code.to_owned(),
        message: failure.message,
        hint: failure.hint.to_owned(),
        highest: failure.highest.unwrap_or(0),
        how: failure.how.map_or_else(|| proto::How::Unknown.into(), how),
    }
}

/// The answer to a request of a session's stream.
pub(super) fn answer(answer: Answer) -> to_client::What {
    use to_client::What;
    let done = |token: Token| What::Done(proto::Done { token: token.0 });
    match answer {
        Answer::Standing(now) => What::Standing(standing(&now)),
        Answer::Released(token)
        | Answer::Cancelled(token)
        | Answer::Renewed { token, .. }
        | Answer::Downgraded(token)
        | Answer::Noted(token) => done(token),
        Answer::Recovered(death) => {
            What::Recovered(proto::RecoveredReply { death: death.as_deref().map(ending) })
        }
        Answer::Passed(now) => What::Fence(fence(&now)),
        Answer::SessionEnded(_) => {
            What::SessionEnded(proto::SessionEnded { how: how(core::How::Closed) })
        }
        Answer::Ticked
        | Answer::SessionOpened(_)
        | Answer::RevocationAsked(_)
        | Answer::Forced(_)
        | Answer::Transacted(_)
        | Answer::Barred => What::Done(proto::Done { token: 0 }),
    }
}

/// What a session hears of itself and its tickets.
pub(super) fn news(effect: &Effect, now_ms: u64) -> Option<to_client::What> {
    use to_client::What;
    Some(match effect {
        Effect::Granted(granted) => What::Granted(grant(granted, true)),
        Effect::Ended(over) => What::Ended(ended(over)),
        Effect::RevocationAsked { .. } => What::Revocation(revocation(effect, now_ms)?),
        Effect::SessionEnded { how: ended, .. } => {
            What::SessionEnded(proto::SessionEnded { how: how(*ended) })
        }
        _ => return None,
    })
}

fn revocation(effect: &Effect, now_ms: u64) -> Option<proto::RevocationAsked> {
    let Effect::RevocationAsked { token, name, by, reason, until_ms, force, .. } = effect else {
        return None;
    };
    Some(proto::RevocationAsked {
        token: token.0,
        name: bytes(name.as_bytes()),
        by: bytes(by.as_bytes()),
        reason: bytes(reason.as_bytes()),
        within_ms: until_ms.saturating_sub(now_ms),
        force: *force,
    })
}

/// What a watcher hears: no secrets.
pub(super) fn watched(effect: &Effect, now_ms: u64) -> Option<watch_event::What> {
    use watch_event::What;
    Some(match effect {
        Effect::Granted(granted) => What::Granted(grant(granted, false)),
        Effect::Ended(over) => What::Ended(ended(over)),
        Effect::Delayed { name, until_ms, after } => What::Delayed(proto::Delayed {
            name: bytes(name.as_bytes()),
            for_ms: until_ms.saturating_sub(now_ms),
            after: Some(ending(after)),
        }),
        Effect::RevocationAsked { .. } => What::Revocation(revocation(effect, now_ms)?),
        Effect::Noted { token, names: of, note } => What::Noted(proto::Noted {
            token: token.0,
            names: names(of),
            note: note.as_ref().map(|note| bytes(note.as_bytes())),
        }),
        Effect::Downgraded { token, names: of } => {
            What::Downgraded(proto::Downgraded { token: token.0, names: names(of) })
        }
        Effect::Recovered { name, token, death } => What::Recovered(proto::Recovery {
            name: bytes(name.as_bytes()),
            token: token.0,
            death: Some(ending(death)),
        }),
        Effect::SessionEnded { .. }
        | Effect::Relabelled { .. }
        | Effect::ObjectChanged { .. }
        | Effect::Published { .. } => return None,
    })
}

fn ticket(view: &core::TicketView, now_ms: u64) -> proto::Ticket {
    proto::Ticket {
        token: view.token.0,
        label: view.label.as_ref().map(|label| bytes(label.as_bytes())),
        note: view.note.as_ref().map(|note| bytes(note.as_bytes())),
        session: view.session.map(|session| session.0.get()),
        mode: mode_out(view.mode),
        for_ms: view.for_ms,
        ends_in_ms: view.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        names: names(&view.names),
    }
}

pub(super) fn lock(view: &core::LockView, now_ms: u64) -> proto::Lock {
    proto::Lock {
        name: bytes(view.name.as_bytes()),
        permits: view.permits,
        holders: view.holders.iter().map(|view| ticket(view, now_ms)).collect(),
        holding: view.holding as u64,
        waiters: view.waiters.iter().map(|view| ticket(view, now_ms)).collect(),
        waiting: view.waiting as u64,
        last: view.last.as_deref().map(ending),
        needs_recovery: view.needs_recovery.as_deref().map(ending),
        delayed_for_ms: view.delayed_until_ms.map(|until_ms| until_ms.saturating_sub(now_ms)),
    }
}
