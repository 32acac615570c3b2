//! Maps gRPC messages to native requests, and answers and effects to messages.

use bytes::Bytes;
use holdfast_core::{self as core, Answer, Command, Effect, Lease, Refusal, Scope};
use holdfast_core::{Secret, SessionRef, Token};
use holdfast_gateway::ApiError;
use holdfast_gateway::request::{self, AcquireRequest, ModeKind, OperatorRequest, TicketRequest};
use holdfast_proto::v1::request::What;
use holdfast_proto::v1::{
    self as proto, outcome_reply, ticket_status, to_client, watch_event, watch_request,
};

fn missing(field: &'static str) -> ApiError {
    ApiError::bad(format!("{field} is missing"), "fill in the field and send again")
}

fn mode(mode: i32) -> Result<ModeKind, ApiError> {
    match proto::Mode::try_from(mode) {
        Ok(proto::Mode::Exclusive) => Ok(ModeKind::Exclusive),
        Ok(proto::Mode::Shared) => Ok(ModeKind::Shared),
        Ok(proto::Mode::Permit) => Ok(ModeKind::Permit),
        Err(_) => Err(ApiError::bad(format!("there is no mode {mode}"), "use one of the three")),
    }
}

/// `None` if the number is 0, which is how proto3 encodes a field that was not sent.
pub fn unless_zero<T: Default + PartialEq>(number: T) -> Option<T> {
    Some(number).filter(|number| *number != T::default())
}

/// Parses an acquire; `secret` becomes the ticket's.
pub fn acquire(
    sent: proto::Acquire,
    request_id: Option<Bytes>,
    session: Option<SessionRef>,
    secret: Secret,
) -> Result<(Option<core::RequestRef>, core::Acquire), ApiError> {
    let request = AcquireRequest {
        names: sent.names.iter().map(|name| name.to_vec()).collect(),
        mode: Some(mode(sent.mode)?),
        permits: unless_zero(sent.permits),
        ttl_ms: sent.ttl_ms,
        wait_ms: sent.wait_ms,
        label: sent.label.map(Vec::from),
        note: sent.note.map(Vec::from),
        request_id: request_id.map(Vec::from),
        session,
        lock_delay_ms: sent.lock_delay_ms,
        claims: sent.claims,
    };
    request.parse(secret)
}

/// Identifies a ticket, with its own secret or its session's as proof.
pub fn ticket(
    own: Option<proto::TicketRef>,
    session: Option<SessionRef>,
) -> Result<TicketRequest, ApiError> {
    let own = own.ok_or_else(|| missing("own"))?;
    let secret = match session {
        Some(session) if own.secret.is_empty() => session.secret,
        _ => request::secret(&own.secret)?,
    };
    Ok(TicketRequest { name: own.name.into(), token: own.token, secret })
}

/// Parses a renewal, with a new deadline or none.
pub fn renew(renew: proto::RenewRequest, session: Option<SessionRef>) -> Result<Command, ApiError> {
    let ticket = ticket(renew.own, session)?;
    match renew.ttl_ms {
        Some(ttl_ms) => ticket.renew(ttl_ms),
        None => ticket.persist(),
    }
}

/// Parses a new note.
pub fn note(note: proto::NoteRequest, session: Option<SessionRef>) -> Result<Command, ApiError> {
    ticket(note.own, session)?.note(note.note.map(Vec::from))
}

/// Parses a write to a register.
pub fn put(put: proto::PutRequest) -> Result<Command, ApiError> {
    request::put(&put.key, put.value.into(), put.token, Some(mode(put.mode)?))
}

/// Parses a token that is shown to a register.
pub fn raise(raise: &proto::RaiseRequest) -> Result<Command, ApiError> {
    request::raise(&raise.key, raise.token, Some(mode(raise.mode)?))
}

/// Parses a request to the holders of a lock to release it.
pub fn revoke(sent: proto::RevokeRequest) -> Result<Command, ApiError> {
    let (within_ms, force) = (sent.within_ms, sent.force);
    operator(sent.name, sent.token, sent.by, sent.reason).revoke(within_ms, force)
}

/// Parses a request to end the holders of a lock.
pub fn force(sent: proto::ForceRequest) -> Result<Command, ApiError> {
    operator(sent.name, sent.token, sent.by, sent.reason).force()
}

fn operator(name: Bytes, token: Option<u64>, by: Bytes, reason: Bytes) -> OperatorRequest {
    OperatorRequest { name: name.into(), token, by: by.into(), reason: reason.into() }
}

/// Parses which locks to watch.
pub fn scope(sent: proto::WatchRequest) -> Result<Scope, ApiError> {
    Ok(match sent.scope {
        Some(watch_request::Scope::Name(name)) => Scope::Name(request::name(&name)?),
        Some(watch_request::Scope::Prefix(prefix)) if !prefix.is_empty() => {
            Scope::Prefix(Some(request::name(&prefix)?))
        }
        _ => Scope::Prefix(None),
    })
}

/// Parses a request of a session's stream. `secret` generates the secret of a new ticket.
pub fn request(
    sent: proto::Request,
    session: SessionRef,
    secret: impl FnOnce() -> Secret,
) -> Result<(core::RequestRef, Command), ApiError> {
    let id = request::in_session(session, sent.id, sent.lowest)?;
    let owned = |own| ticket(Some(own), Some(session));
    let command = match sent.what.ok_or_else(|| missing("what"))? {
        What::Acquire(sent) => Command::Acquire(acquire(sent, None, Some(session), secret())?.1),
        What::Release(own) => owned(own)?.release()?,
        What::Cancel(own) => owned(own)?.cancel()?,
        What::Recovered(own) => owned(own)?.recovered()?,
        What::Downgrade(own) => owned(own)?.downgrade()?,
        What::Upgrade(sent) => {
            ticket(sent.own, Some(session))?.upgrade(sent.wait_ms, sent.claims, Some(session))?
        }
        What::Renew(sent) => renew(sent, Some(session))?,
        What::Note(sent) => note(sent, Some(session))?,
        What::Put(sent) => put(sent)?,
        What::Raise(sent) => raise(&sent)?,
    };
    Ok((id, command))
}

fn bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Why a ticket ended, as the enum's number.
pub fn how(how: core::EndReason) -> i32 {
    let how = match how {
        core::EndReason::Released => proto::EndReason::Released,
        core::EndReason::Expired => proto::EndReason::Expired,
        core::EndReason::Closed => proto::EndReason::Closed,
        core::EndReason::Forced => proto::EndReason::Forced,
        core::EndReason::Cancelled => proto::EndReason::Cancelled,
        core::EndReason::TimedOut => proto::EndReason::TimedOut,
        core::EndReason::Restored => proto::EndReason::Restored,
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

/// How a holder ended, with its label and note.
pub fn ending(ending: &core::Ending) -> proto::Ending {
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

/// A grant. The secret is included only for its holder.
pub fn grant(grant: &core::Grant, for_holder: bool) -> proto::Grant {
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
            .map(|after| proto::PriorEndings {
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

/// The status of a ticket.
pub fn ticket_status(status: &core::TicketStatus) -> proto::TicketStatus {
    let what = match status {
        core::TicketStatus::Waiting { token, secret, place, .. } => {
            ticket_status::What::Waiting(proto::Waiting {
                token: token.0,
                secret: secret.as_ref().map_or_else(Bytes::new, |secret| bytes(&secret.0)),
                place: place.map_or(0, |place| place as u64),
            })
        }
        core::TicketStatus::Held(held) => ticket_status::What::Held(grant(held, true)),
        core::TicketStatus::Over { token, how: ended } => {
            ticket_status::What::Over(proto::Over { token: token.0, how: how(*ended) })
        }
    };
    proto::TicketStatus { what: Some(what) }
}

/// The content of a register.
pub fn fence(fence: &core::Fence) -> proto::Fence {
    proto::Fence {
        highest_exclusive: fence.highest_exclusive.0,
        highest: fence.highest.0,
        value: fence.value.as_ref().map(|value| bytes(value.as_bytes())),
    }
}

/// Why a request was refused, and what to do.
pub fn refused(error: ApiError) -> proto::Refused {
    proto::Refused {
        code: error.code.as_str().to_owned(),
        message: error.message,
        hint: error.hint.to_owned(),
        highest: error.highest.unwrap_or(0),
        how: error.how.map_or_else(|| proto::EndReason::Unknown.into(), how),
    }
}

/// The outcome of a request with a request id of its own.
pub fn outcome(answered: Result<Answer, Refusal>) -> Result<proto::OutcomeReply, ApiError> {
    let what = match answered {
        Ok(Answer::TicketStatus(now)) => outcome_reply::What::Status(ticket_status(&now)),
        Ok(Answer::Barred) => outcome_reply::What::Never(proto::Never {}),
        Ok(_) => return Err(ApiError::unexpected()),
        Err(refusal) => outcome_reply::What::Refused(refused(refusal.into())),
    };
    Ok(proto::OutcomeReply { what: Some(what) })
}

/// The answer to a request of a session's stream.
pub fn answer(answer: Answer) -> to_client::What {
    use to_client::What;
    let done = |token: Token| What::Done(proto::Done { token: token.0 });
    match answer {
        Answer::TicketStatus(now) => What::Status(ticket_status(&now)),
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
            What::SessionEnded(proto::SessionEnded { how: how(core::EndReason::Closed) })
        }
        Answer::Ticked
        | Answer::SessionOpened(_)
        | Answer::RevocationAsked(_)
        | Answer::Forced(_)
        | Answer::Transacted(_)
        | Answer::SessionAttached { .. }
        | Answer::AccessChanged
        | Answer::TokenAdded { .. }
        | Answer::Recorded
        | Answer::Written(_)
        | Answer::Barred => What::Done(proto::Done { token: 0 }),
    }
}

/// What a session is notified of; `None` if it is not concerned.
pub fn news(effect: &Effect, now_ms: u64) -> Option<to_client::What> {
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

/// What a watcher is notified of, without secrets; `None` if it is not concerned.
pub fn watched(effect: &Effect, now_ms: u64) -> Option<watch_event::What> {
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
        | Effect::Published { .. }
        | Effect::NodeChanged { .. }
        | Effect::SessionAttached { .. }
        | Effect::AccessChanged(_)
        | Effect::Audited(_) => return None,
    })
}

fn ticket_view(view: &core::TicketView, now_ms: u64) -> proto::Ticket {
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

/// A lock and its line.
pub fn lock(view: &core::LockView, now_ms: u64) -> proto::Lock {
    proto::Lock {
        name: bytes(view.name.as_bytes()),
        permits: view.permits,
        holders: view.holders.iter().map(|view| ticket_view(view, now_ms)).collect(),
        holding: view.holding as u64,
        waiters: view.waiters.iter().map(|view| ticket_view(view, now_ms)).collect(),
        waiting: view.waiting as u64,
        last: view.last.as_deref().map(ending),
        needs_recovery: view.needs_recovery.as_deref().map(ending),
        delayed_for_ms: view.delayed_until_ms.map(|until_ms| until_ms.saturating_sub(now_ms)),
    }
}
