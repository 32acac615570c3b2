//! The one error type of all doors: a code for programs, a message that says what is wrong, and a
//! hint that says what to do.
//!
//! The table of [`Code`] is the only place that maps a code to each protocol's own form. A door never
//! invents a status: it asks the code.

use holdfast_core::{AccessRefusal, EndReason, Refusal};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident = $text:literal, $http:literal, $grpc:ident, $resp:literal;)+) => {
        /// What went wrong, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[doc = $doc])+ $code,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// As in JSON and gRPC messages.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)+
                }
            }

            /// The status of an HTTP response.
            pub fn http_status(self) -> u16 {
                match self {
                    $(Self::$code => $http,)+
                }
            }

            /// The status of a gRPC call.
            pub fn grpc_status(self) -> GrpcStatus {
                match self {
                    $(Self::$code => GrpcStatus::$grpc,)+
                }
            }

            /// The first word of an error in RESP, which Redis clients match on.
            pub fn resp_word(self) -> &'static str {
                match self {
                    $(Self::$code => $resp,)+
                }
            }
        }
    };
}

/// The statuses of gRPC that Holdfast uses, with gRPC's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "gRPC's own names")]
pub enum GrpcStatus {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unavailable = 14,
    Unauthenticated = 16,
}

// Code, its text, HTTP status, gRPC status, first word in RESP.
codes! {
    /// A field is missing, unknown, of the wrong type or out of range.
    BadRequest = "bad_request", 400, InvalidArgument, "ERR";
    /// No ticket with this token was ever drawn.
    NeverDrawn = "never_drawn", 400, InvalidArgument, "ERR";
    /// The password is missing or wrong.
    Unauthenticated = "unauthenticated", 401, Unauthenticated, "NOAUTH";
    /// The secret is not that of the ticket or session.
    NotOwner = "not_owner", 403, PermissionDenied, "ERR";
    /// The user has no right to do this.
    Forbidden = "forbidden", 403, PermissionDenied, "NOPERM";
    /// A web page of another site sent the request.
    OtherOrigin = "other_origin", 403, PermissionDenied, "ERR";
    /// The request names a host that this node does not answer to.
    UnknownHost = "unknown_host", 403, PermissionDenied, "ERR";
    /// There is no such path, call or member.
    NotFound = "not_found", 404, NotFound, "ERR";
    /// The path exists, but not with this method.
    WrongMethod = "wrong_method", 405, InvalidArgument, "ERR";
    /// The request did not arrive in time.
    TooSlow = "too_slow", 408, DeadlineExceeded, "ERR";
    /// The request exceeds a size limit.
    TooLarge = "too_large", 413, InvalidArgument, "ERR";
    /// A watcher or session did not read its events fast enough.
    Lagged = "lagged", 429, ResourceExhausted, "ERR";
    /// The lock was busy, or the wait timed out.
    NotAcquired = "not_acquired", 409, FailedPrecondition, "HELD";
    /// The client closed its connection while it waited.
    ConnectionClosed = "connection_closed", 409, FailedPrecondition, "ERR";
    /// The session has ended or never existed.
    SessionEnded = "session_ended", 409, FailedPrecondition, "ERR";
    /// No such ticket is held.
    NotHeld = "not_held", 409, FailedPrecondition, "ERR";
    /// The ticket of a repeated request has ended.
    Ended = "ended", 409, FailedPrecondition, "ERR";
    /// The ticket is still waiting.
    NotYetServed = "not_yet_served", 409, FailedPrecondition, "ERR";
    /// The ticket is held, so its wait can't be cancelled.
    AlreadyServed = "already_served", 409, FailedPrecondition, "ERR";
    /// The line is exclusive/shared and a permit was asked for, or the other way round.
    OtherKind = "other_kind", 409, FailedPrecondition, "HELD";
    /// The session holds one of several names already.
    AlreadyHeld = "already_held", 409, FailedPrecondition, "HELD";
    /// The wait would close a cycle of declared claims.
    WouldDeadlock = "would_deadlock", 409, FailedPrecondition, "ERR";
    /// There are waiters, so a shared ticket can't be upgraded.
    UpgradeBlocked = "upgrade_blocked", 409, FailedPrecondition, "ERR";
    /// The mode in which the ticket is held does not allow this.
    WrongMode = "wrong_mode", 409, FailedPrecondition, "ERR";
    /// The session has acknowledged the reply to this request, so it is no longer known.
    TooOldToKnow = "too_old_to_know", 409, FailedPrecondition, "ERR";
    /// An outcome was asked for before the request arrived.
    Barred = "barred", 409, FailedPrecondition, "ERR";
    /// The request id was used for another request.
    OtherRequest = "other_request", 409, FailedPrecondition, "ERR";
    /// A later holder has shown its token to the register.
    Fenced = "fenced", 409, FailedPrecondition, "ERR";
    /// A key has changed since it was read.
    Changed = "changed", 409, FailedPrecondition, "TRYAGAIN";
    /// The ticket was drawn through another door.
    Held = "held", 409, FailedPrecondition, "HELD";
    /// The name is in use as something that is not a lock.
    InUse = "in_use", 409, FailedPrecondition, "WRONGTYPE";
    /// The membership could not be changed.
    NotChanged = "not_changed", 409, FailedPrecondition, "ERR";
    /// A limit of the cluster is reached.
    Full = "full", 503, Unavailable, "TRYAGAIN";
    /// A queue of this node is full. Nothing was done.
    Busy = "busy", 503, Unavailable, "TRYAGAIN";
    /// The disk of this node is full. Nothing was done.
    DiskFull = "disk_full", 503, Unavailable, "MISCONF";
    /// A member runs a version that does not support this. Nothing was done.
    OlderMember = "older_member", 503, Unavailable, "ERR";
    /// No leader took the request in time. Nothing was done.
    NoLeader = "no_leader", 503, Unavailable, "TRYAGAIN";
    /// The request may or may not take effect.
    Unknown = "unknown", 503, Unavailable, "NOLEADER";
    /// The node is stopping; the request may or may not take effect.
    Stopping = "stopping", 503, Unavailable, "NOLEADER";
    /// The leader changed before this was decided.
    OtherTerm = "other_term", 503, Unavailable, "TRYAGAIN";
    /// The node installed a snapshot, so events were missed.
    Missed = "missed", 503, Unavailable, "ERR";
}

impl Code {
    /// Whether the same request may succeed later, or at another node.
    pub fn may_work_later(self) -> bool {
        self.grpc_status() == GrpcStatus::Unavailable
    }

    /// The code of a refusal.
    pub fn of(refusal: &Refusal) -> Self {
        code_and_hint(refusal).0
    }
}

/// Why the node could not take or answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// Too much is queued at this node. It had no effect.
    QueueFull,
    /// The disk of this node is full. It had no effect.
    DiskFull,
    /// A member runs an older program that could not read it. It had no effect.
    OlderMember,
    /// It is larger than one entry of the log may be. It had no effect.
    TooLarge,
    /// No leader took it in time, and it was withdrawn. It had no effect, and never will.
    Withdrawn,
    /// It may or may not have had an effect: ask for the outcome.
    Unknown,
    /// The node has stopped. It may or may not have had an effect.
    Stopped,
}

/// Why a request failed, the same for every door.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// For programs.
    pub code: Code,
    /// What is wrong, in the user's terms.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
    /// The highest token that the fence has seen.
    pub highest: Option<u64>,
    /// How the ticket ended, if it is no longer held.
    pub how: Option<EndReason>,
}

impl ApiError {
    /// Creates an error without `highest` and `how`.
    pub fn new(code: Code, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint, highest: None, how: None }
    }

    /// An invalid field.
    pub fn bad(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Code::BadRequest, message, hint)
    }

    /// A body that did not arrive in time.
    pub fn too_slow() -> Self {
        Self::new(Code::TooSlow, "the body did not arrive in time", "send the body at once")
    }

    /// An answer of the wrong kind.
    pub fn unexpected() -> Self {
        Self::new(Code::OtherRequest, "unexpected reply", "try again")
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let (code, message, hint) = match error {
            SubmitError::QueueFull => {
                (Code::Busy, "too many requests are queued at this node", "try again in a moment")
            }
            SubmitError::DiskFull => (
                Code::DiskFull,
                "the disk of this node is full: nothing was done",
                "free some space, or ask another node; this one resumes on its own",
            ),
            SubmitError::OlderMember => (
                Code::OlderMember,
                "a member of the cluster runs an older version that does not support this: nothing \
                 was done",
                "upgrade all nodes",
            ),
            SubmitError::TooLarge => (
                Code::TooLarge,
                "the request does not fit into one entry of the log (1 MiB): nothing was done",
                "split it into smaller ones",
            ),
            SubmitError::Withdrawn => (
                Code::NoLeader,
                "the cluster has no reachable leader: nothing was done",
                "try again; is a majority of the nodes running?",
            ),
            SubmitError::Unknown => (
                Code::Unknown,
                "the request was not answered in time: it may or may not take effect",
                "ask for the outcome of its request_id, or look at the lock",
            ),
            SubmitError::Stopped => (
                Code::Stopping,
                "this node is stopping: the request may or may not take effect",
                "ask another node for the outcome",
            ),
        };
        Self::new(code, message, hint)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (code, hint) = code_and_hint(&refusal);
        let mut error = Self::new(code, refusal.to_string(), hint);
        match refusal {
            Refusal::Fenced { highest, .. } => error.highest = Some(highest.0),
            Refusal::NotHeld { how, .. } => error.how = how,
            _ => {}
        }
        error
    }
}

fn code_and_hint(refusal: &Refusal) -> (Code, &'static str) {
    match refusal {
        Refusal::Busy { .. } => (Code::NotAcquired, "set wait_ms to wait in line, or try later"),
        Refusal::NotOwner => {
            (Code::NotOwner, "send the secret that came with the lock or the session")
        }
        Refusal::NoSession(_) => (Code::SessionEnded, "open a new session"),
        Refusal::NotHeld { .. } | Refusal::ClaimNotHeld(_) => {
            (Code::NotHeld, "look at the lock to see who holds it; acquire it again")
        }
        Refusal::NotYetServed(_) => (Code::NotYetServed, "wait for the grant, or cancel the wait"),
        Refusal::AlreadyServed(_) => (Code::AlreadyServed, "release it instead"),
        Refusal::OtherKind { .. } => {
            (Code::OtherKind, "ask in the mode that the line has, or wait until it is empty")
        }
        Refusal::AlreadyHeld { .. } => {
            (Code::AlreadyHeld, "leave out the name that you hold already")
        }
        Refusal::WouldDeadlock(_) | Refusal::TooTangled => {
            (Code::WouldDeadlock, "release what you hold, or take all names in one step")
        }
        Refusal::UpgradeBlocked(_) => {
            (Code::UpgradeBlocked, "release the shared lock and acquire it again")
        }
        Refusal::WrongMode(_) | Refusal::SessionLease(_) | Refusal::NameTheToken(_) => {
            (Code::WrongMode, "look at the lock to see how it is held")
        }
        Refusal::BadRequest(_) => (Code::BadRequest, "correct the field and send again"),
        Refusal::NeverDrawn(_) => {
            (Code::NeverDrawn, "send the fencing_token that came with the grant")
        }
        Refusal::Full(_) => (Code::Full, "try again later, with a new request_id"),
        Refusal::TooOldToKnow(_) => {
            (Code::TooOldToKnow, "the session has confirmed this reply already")
        }
        Refusal::Barred => (Code::Barred, "use a new request_id"),
        Refusal::OtherRequest => {
            (Code::OtherRequest, "use a new random request_id for each request")
        }
        Refusal::Fenced { .. } => {
            (Code::Fenced, "a later holder has used this fence: stop, and acquire the lock again")
        }
        Refusal::OtherTerm => (Code::OtherTerm, "try again"),
        Refusal::Changed { .. } => (Code::Changed, "read again, and repeat the write"),
        Refusal::Held { .. } => {
            (Code::Held, "release it through the protocol that it was taken through")
        }
        Refusal::InUse { .. } => {
            (Code::InUse, "use another name, or delete what is kept under this one")
        }
        Refusal::SessionMoved(_) => (Code::SessionEnded, "use the newer connection"),
        Refusal::Node { .. } => (Code::BadRequest, "look at the znodes, and repeat the request"),
        Refusal::Access(why) => of_access(why),
        Refusal::NoRight { user: None, .. } => {
            (Code::Unauthenticated, "send the name and password of a user, or a token")
        }
        Refusal::NoRight { .. } => {
            (Code::Forbidden, "ask an administrator for a role with this right")
        }
    }
}

fn of_access(refusal: &AccessRefusal) -> (Code, &'static str) {
    match refusal {
        AccessRefusal::NoUser(_) | AccessRefusal::NoRole(_) | AccessRefusal::NoToken(_) => {
            (Code::NotFound, "list users and roles to see what there is")
        }
        AccessRefusal::UserExists(_) | AccessRefusal::RoleInUse { .. } | AccessRefusal::NoAdmin => {
            (Code::NotChanged, "nothing was changed")
        }
        AccessRefusal::ReservedName(_)
        | AccessRefusal::BuiltInRole(_)
        | AccessRefusal::BadRule
        | AccessRefusal::Full { .. } => (Code::BadRequest, "nothing was changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Catches two codes with the same text, and forms that contradict each other: a code that may
    /// work later is 503 and Unavailable, and no other code is.
    #[test]
    fn every_code_maps_to_every_protocol() {
        let texts: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(code.may_work_later(), code.http_status() == 503, "{code:?}");
            let word = code.resp_word();
            assert!(word.bytes().all(|byte| byte.is_ascii_uppercase()), "{code:?}: {word}");
        }
    }
}
