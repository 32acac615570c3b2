//! Native requests of every transport: each is validated here, once.
//!
//! A transport maps its fields to these types and functions and decides nothing, so all transports
//! give the same answer to the same request. Every limit that is not the core's own is here.

use crate::{ApiError, Code};
use holdfast_core::{
    Acquire, BadText, Command, Door, Label, Lease, LockName, Mode, Note, OpenSession, Proof,
    Reason, RequestId, RequestKey, RequestRef, Revoke, Secret, SessionId, SessionKind, SessionRef,
    Target, Token, Value, Wait,
};
use std::num::NonZeroU64;

/// The longest TTL of a lock: a year.
pub const TTL_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// The longest wait without a session: a day. With a request id nobody owns the wait, and only its
/// deadline ends it.
pub const WAIT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// A wait that ends only with its session.
pub const WAIT_FOREVER: u64 = u64::MAX;

/// Locks, sessions or events on a page.
pub const PAGE_MAX: usize = 1_000;

/// The page size if a request has no limit.
pub const PAGE_DEFAULT: usize = 100;

/// The longest address of a peer: the longest host name has 253 bytes.
const ADDRESS_BYTES_MAX: usize = 300;

/// How a lock is to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeKind {
    /// By one ticket.
    Exclusive,
    /// Together with other shared tickets.
    Shared,
    /// As one of a number of permits.
    Permit,
}

/// A request for a lock. `None` or an empty list means that the field was not sent.
#[derive(Debug, Default)]
pub struct AcquireRequest {
    /// Several are taken in one step.
    pub names: Vec<Vec<u8>>,
    /// Default: a permit if `permits` is given, otherwise exclusive.
    pub mode: Option<ModeKind>,
    /// How many permits the lock has.
    pub permits: Option<u32>,
    /// Default: the session's heartbeat keeps the lock.
    pub ttl_ms: Option<u64>,
    /// How long to wait in line. Default: not at all.
    pub wait_ms: Option<u64>,
    /// The holder's name for itself.
    pub label: Option<Vec<u8>>,
    /// What the holder leaves on the lock.
    pub note: Option<Vec<u8>>,
    /// A random id for a retry, without a session.
    pub request_id: Option<Vec<u8>>,
    /// The session that owns the ticket, if any.
    pub session: Option<SessionRef>,
    /// If this holder dies, nobody is served for this long.
    pub lock_delay_ms: u64,
    /// Tokens that the caller's work keeps while it waits.
    pub claims: Vec<u64>,
}

impl AcquireRequest {
    /// Returns the request id and the command; `secret` becomes the ticket's.
    pub fn parse(self, secret: Secret) -> Result<(Option<RequestRef>, Acquire), ApiError> {
        let lease = match (self.ttl_ms, self.session) {
            (Some(ms), _) => Lease::Deadline { ttl_ms: ttl_ms(ms)? },
            (None, Some(_)) => Lease::Session,
            (None, None) => {
                return Err(ApiError::bad(
                    "ttl_ms is missing: without a session only a deadline ends a lock whose holder \
                     died",
                    "give ttl_ms, for instance 15000",
                ));
            }
        };
        if self.request_id.is_some() && self.session.is_some() {
            return Err(ApiError::bad(
                "request_id and session can't be combined",
                "leave out one of the two",
            ));
        }
        let request = self.request_id.as_deref().map(request_key).transpose()?;
        let acquire = Acquire {
            names: self.names.iter().map(|bytes| name(bytes)).collect::<Result<_, _>>()?,
            mode: mode(self.mode, self.permits)?,
            session: self.session,
            lease,
            wait: wait(self.wait_ms, self.session)?,
            label: label(self.label)?,
            note: note(self.note)?,
            secret: Some(secret),
            claims: tokens(self.claims)?,
            lock_delay_ms: self.lock_delay_ms,
            door: Door::Native,
        };
        Ok((request.map(RequestRef::Alone), acquire))
    }
}

/// Identifies a ticket, with the proof that the caller owns it.
#[derive(Debug)]
pub struct TicketRequest {
    /// One of the names of the ticket.
    pub name: Vec<u8>,
    /// The number of the ticket.
    pub token: u64,
    /// The secret of the ticket or of its session.
    pub secret: Secret,
}

impl TicketRequest {
    /// The form that the core's commands take.
    pub fn parse(&self) -> Result<(Target, Proof), ApiError> {
        let target = Target { name: name(&self.name)?, token: Some(token(self.token)?) };
        Ok((target, Proof::Secret(self.secret)))
    }

    /// Releases a held ticket.
    pub fn release(&self) -> Result<Command, ApiError> {
        self.parse().map(|(target, proof)| Command::Release { target, proof })
    }

    /// Leaves the line.
    pub fn cancel(&self) -> Result<Command, ApiError> {
        self.parse().map(|(target, proof)| Command::Cancel { target, proof })
    }

    /// Reports that the work of a dead holder has been recovered.
    pub fn recovered(&self) -> Result<Command, ApiError> {
        self.parse().map(|(target, proof)| Command::Recovered { target, proof })
    }

    /// Turns a writer into a reader.
    pub fn downgrade(&self) -> Result<Command, ApiError> {
        self.parse().map(|(target, proof)| Command::Downgrade { target, proof })
    }

    /// Turns a reader into the writer, once the other readers are gone.
    pub fn upgrade(
        &self,
        wait_ms: Option<u64>,
        claims: Vec<u64>,
        session: Option<SessionRef>,
    ) -> Result<Command, ApiError> {
        let (target, proof) = self.parse()?;
        let (wait, claims) = (wait(wait_ms, session)?, tokens(claims)?);
        Ok(Command::Upgrade { target, proof, wait, claims })
    }

    /// Sets a new deadline for a held ticket.
    pub fn renew(&self, ms: u64) -> Result<Command, ApiError> {
        let (target, proof) = self.parse()?;
        Ok(Command::Renew { target, proof, ttl_ms: ttl_ms(ms)? })
    }

    /// Removes the deadline of a held ticket.
    pub fn persist(&self) -> Result<Command, ApiError> {
        self.parse().map(|(target, proof)| Command::Persist { target, proof })
    }

    /// Replaces the note of a ticket; `None` removes it.
    pub fn note(&self, text: Option<Vec<u8>>) -> Result<Command, ApiError> {
        let (target, proof) = self.parse()?;
        Ok(Command::Note { target, proof, note: note(text)? })
    }
}

/// Opens a session.
pub fn open_session(
    secret: Secret,
    ttl_ms: u64,
    text: Option<Vec<u8>>,
) -> Result<Command, ApiError> {
    let kind = SessionKind::Client;
    Ok(Command::OpenSession(OpenSession { secret, ttl_ms, label: label(text)?, kind }))
}

/// Writes to a register, unless a later holder's token has been seen.
pub fn put(
    key: &[u8],
    text: Vec<u8>,
    number: u64,
    kind: Option<ModeKind>,
) -> Result<Command, ApiError> {
    let value = Value::parse(text).map_err(|bad| bad_text(bad, "keep large values elsewhere"))?;
    Ok(Command::Put { key: name(key)?, value, token: token(number)?, mode: fenced_mode(kind)? })
}

/// Shows a token to a register without writing.
pub fn raise(key: &[u8], number: u64, kind: Option<ModeKind>) -> Result<Command, ApiError> {
    Ok(Command::Raise { key: name(key)?, token: token(number)?, mode: fenced_mode(kind)? })
}

/// Which holders an operator acts on, with the operator's name and reason.
#[derive(Debug)]
pub struct OperatorRequest {
    /// The lock.
    pub name: Vec<u8>,
    /// One holder; `None` means all.
    pub token: Option<u64>,
    /// Who acts.
    pub by: Vec<u8>,
    /// Why, for the record.
    pub reason: Vec<u8>,
}

impl OperatorRequest {
    /// Asks the holders to release by a deadline; with `force`, the lock is broken then.
    pub fn revoke(self, within_ms: u64, force: bool) -> Result<Command, ApiError> {
        if within_ms > TTL_MS_MAX {
            let message =
                format!("within_ms is {within_ms}, and must be at most {TTL_MS_MAX}, a year");
            return Err(ApiError::bad(message, "give milliseconds, for instance 30000"));
        }
        let (name, token, by, reason) = self.parse()?;
        Ok(Command::Revoke(Revoke { name, token, by, reason, within_ms, force }))
    }

    /// Ends the holders without their consent.
    pub fn force(self) -> Result<Command, ApiError> {
        let (name, token, by, reason) = self.parse()?;
        Ok(Command::Force { name, token, by, reason })
    }

    fn parse(self) -> Result<(LockName, Option<Token>, Label, Reason), ApiError> {
        let by = Label::parse(self.by)
            .map_err(|bad| bad_text(bad, "name who is asking, in a few words"))?;
        let reason = Reason::parse(self.reason)
            .map_err(|bad| bad_text(bad, "give the reason, in a few words"))?;
        Ok((name(&self.name)?, self.token.map(token).transpose()?, by, reason))
    }
}

/// A request of a session: its number, and the lowest one still unanswered.
pub fn in_session(session: SessionRef, id: u64, lowest: u64) -> Result<RequestRef, ApiError> {
    let number = |number, field| {
        RequestId::new(number).ok_or_else(|| {
            ApiError::bad(format!("{field} is missing or 0"), "number requests from 1")
        })
    };
    Ok(RequestRef::InSession { session, id: number(id, "id")?, lowest: number(lowest, "lowest")? })
}

/// The id of a session.
pub fn session_id(id: u64) -> Result<SessionId, ApiError> {
    let id = NonZeroU64::new(id).map(SessionId);
    id.ok_or_else(|| ApiError::bad("a session's id can't be 0", "send the id it was opened with"))
}

/// The name of a lock or the key of a register.
pub fn name(bytes: &[u8]) -> Result<LockName, ApiError> {
    LockName::parse(bytes).map_err(|bad| bad_text(bad, "use a name of 1 to 512 bytes"))
}

/// Checks the prefix of lock names.
pub fn prefix(bytes: &[u8]) -> Result<(), ApiError> {
    if bytes.len() <= LockName::BYTES_MAX {
        return Ok(());
    }
    let message = format!("a prefix has at most {} bytes", LockName::BYTES_MAX);
    Err(ApiError::bad(message, "no name is longer"))
}

/// A holder's name for itself.
pub fn label(bytes: Option<Vec<u8>>) -> Result<Option<Label>, ApiError> {
    let label = bytes.map(Label::parse).transpose();
    label.map_err(|bad| bad_text(bad, "use a shorter label"))
}

fn note(bytes: Option<Vec<u8>>) -> Result<Option<Note>, ApiError> {
    let note = bytes.map(Note::parse).transpose();
    note.map_err(|bad| bad_text(bad, "use a shorter note"))
}

/// A random request id.
pub fn request_key(bytes: &[u8]) -> Result<RequestKey, ApiError> {
    let hint = "use a random string, for instance a UUID, a new one for each acquire";
    RequestKey::parse(bytes).map_err(|bad| bad_text(bad, hint))
}

/// A secret in its binary form.
pub fn secret(bytes: &[u8]) -> Result<Secret, ApiError> {
    let hint = "send the secret as it was received";
    let secret = <[u8; 16]>::try_from(bytes).map(Secret);
    secret.map_err(|_| ApiError::bad("a secret has 16 bytes, 32 hexadecimal digits", hint))
}

fn token(number: u64) -> Result<Token, ApiError> {
    if number > 0 {
        return Ok(Token(number));
    }
    Err(ApiError::bad("a fencing token can't be 0", "send the one that came with the grant"))
}

fn tokens(numbers: Vec<u64>) -> Result<Vec<Token>, ApiError> {
    numbers.into_iter().map(token).collect()
}

fn mode(kind: Option<ModeKind>, permits: Option<u32>) -> Result<Mode, ApiError> {
    match (kind, permits) {
        (None | Some(ModeKind::Exclusive), None) => Ok(Mode::Exclusive),
        (Some(ModeKind::Shared), None) => Ok(Mode::Shared),
        (None | Some(ModeKind::Permit), Some(of)) => Ok(Mode::Permit { of }),
        (Some(ModeKind::Permit), None) => {
            Err(ApiError::bad("permits is missing", "give the number of permits that the lock has"))
        }
        (Some(ModeKind::Exclusive | ModeKind::Shared), Some(_)) => Err(ApiError::bad(
            "permits is given, but the mode is not permit",
            "leave out permits, or ask for mode permit",
        )),
    }
}

/// The mode that a token was granted in, for a register.
fn fenced_mode(kind: Option<ModeKind>) -> Result<Mode, ApiError> {
    match kind {
        None | Some(ModeKind::Exclusive) => Ok(Mode::Exclusive),
        Some(ModeKind::Shared) => Ok(Mode::Shared),
        Some(ModeKind::Permit) => Err(ApiError::bad(
            "permits can't be fenced: several of them are held at once",
            "use a lock with one holder at a time",
        )),
    }
}

fn ttl_ms(ms: u64) -> Result<u64, ApiError> {
    if (1..=TTL_MS_MAX).contains(&ms) {
        return Ok(ms);
    }
    let message = format!("ttl_ms is {ms}, and must be from 1 to {TTL_MS_MAX}, a year");
    Err(ApiError::bad(message, "give milliseconds, for instance 15000; renew while you work"))
}

/// A session owns its waits, so they have no limit.
fn wait(ms: Option<u64>, session: Option<SessionRef>) -> Result<Wait, ApiError> {
    match (ms.unwrap_or_default(), session) {
        (0, _) => Ok(Wait::Try),
        (WAIT_FOREVER, Some(_)) => Ok(Wait::Forever),
        (ms, Some(_)) => Ok(Wait::For { ms }),
        (ms @ 1..=WAIT_MS_MAX, None) => Ok(Wait::For { ms }),
        (ms, None) => Err(ApiError::bad(
            format!("wait_ms is {ms}, and must be at most {WAIT_MS_MAX}, a day"),
            "wait for a shorter time, then retry with the same request_id",
        )),
    }
}

/// The page size.
pub fn limit(limit: Option<u64>) -> Result<usize, ApiError> {
    let limit = limit.map_or(Some(PAGE_DEFAULT), |limit| usize::try_from(limit).ok());
    limit.filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| {
        ApiError::bad(
            format!("limit must be from 1 to {PAGE_MAX}"),
            "ask for the next page with after",
        )
    })
}

/// Where peers reach a node: a name or an IP address, and a port.
pub fn address(text: String) -> Result<String, ApiError> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let port = port.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if port.is_none() || !plain || text.len() > ADDRESS_BYTES_MAX {
        let hint = "give the new node's port for peers: 10.0.0.4:7410";
        return Err(ApiError::bad("an address is HOST:PORT", hint));
    }
    Ok(text)
}

fn bad_text(bad: BadText, hint: &'static str) -> ApiError {
    ApiError::new(Code::BadRequest, bad.to_string(), hint)
}
