//! What went wrong, in one shape: a code for programs, a message, and what to do.

use crate::engine::Trouble;
use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use holdfast_core::Refusal;
use serde::Serialize;

/// An answer that is not the one hoped for.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: Box<Body>,
}

#[derive(Debug, Serialize)]
struct Body {
    code: &'static str,
    message: String,
    hint: &'static str,
    /// The highest token that the fence has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    highest: Option<u64>,
}

impl Failure {
    fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { status, body: Box::new(Body { code, message: message.into(), hint, highest: None }) }
    }

    pub(crate) fn bad(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
    }

    pub(crate) fn too_large(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, hint)
    }

    pub(crate) fn too_slow() -> Self {
        let hint = "send the body at once";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time", hint)
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message, hint)
    }

    pub(crate) fn conflict(
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, code, message, hint)
    }

    pub(crate) fn no_leader() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_leader",
            "the cluster has no leader that answers: the request may or may not take effect",
            "ask for the outcome of its request_id, or look at the lock; is a majority running?",
        )
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let unavailable = |code, message: &str, hint| {
            Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message, hint)
        };
        match trouble {
            Trouble::QueueFull => {
                unavailable("busy", "too much is in line at this node", "try again in a moment")
            }
            Trouble::DiskFull => unavailable(
                "disk_full",
                "the disk of this node is full: nothing was done",
                "free some space, or ask another node; it goes on by itself",
            ),
            Trouble::Unknown => unavailable(
                "unknown",
                "this node lost track of the request: it may or may not take effect",
                "ask for the outcome of its request_id, or look at the lock",
            ),
            Trouble::Stopped => unavailable(
                "stopping",
                "this node is stopping: the request may or may not take effect",
                "ask another node for the outcome",
            ),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (status, code, hint) = kind(&refusal);
        let mut failure = Self::new(status, code, refusal.to_string(), hint);
        if let Refusal::Fenced { highest, .. } = refusal {
            failure.body.highest = Some(highest.0);
        }
        failure
    }
}

fn kind(refusal: &Refusal) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match refusal {
        Refusal::Busy { .. } => {
            (S::CONFLICT, "not_acquired", "give wait_ms to stand in line, or try later")
        }
        Refusal::NotOwner => {
            (S::FORBIDDEN, "not_owner", "send the secret that came with the lock or the session")
        }
        Refusal::NoSession(_) => (S::CONFLICT, "session_ended", "open a new session"),
        Refusal::NotHeld { .. } | Refusal::ClaimNotHeld(_) => {
            (S::CONFLICT, "not_held", "look at the lock to see who holds it; acquire anew")
        }
        Refusal::NotYetServed(_) => {
            (S::CONFLICT, "not_yet_served", "wait for the grant, or cancel the wait")
        }
        Refusal::AlreadyServed(_) => (S::CONFLICT, "already_served", "release it instead"),
        Refusal::OtherKind { .. } => (
            S::CONFLICT,
            "other_kind",
            "ask in the mode that the line has, or wait until it is empty",
        ),
        Refusal::AlreadyHeld { .. } => {
            (S::CONFLICT, "already_held", "leave out the name that you hold already")
        }
        Refusal::WouldDeadlock(_) | Refusal::TooTangled => {
            (S::CONFLICT, "would_deadlock", "release what you hold, or take all names in one step")
        }
        Refusal::UpgradeBlocked(_) => {
            (S::CONFLICT, "upgrade_blocked", "release the shared lock and acquire anew")
        }
        Refusal::WrongMode(_) | Refusal::SessionLease(_) | Refusal::NameTheToken(_) => {
            (S::CONFLICT, "wrong_mode", "look at the lock to see how it is held")
        }
        Refusal::BadRequest(_) => {
            (S::BAD_REQUEST, "bad_request", "correct the field and send again")
        }
        Refusal::NeverDrawn(_) => {
            (S::BAD_REQUEST, "never_drawn", "send the fencing_token that came with the grant")
        }
        Refusal::Full(_) => {
            (S::SERVICE_UNAVAILABLE, "full", "try again later, with a new request_id")
        }
        Refusal::TooOldToKnow(_) => {
            (S::CONFLICT, "too_old_to_know", "the session said that it had this answer")
        }
        Refusal::Barred => (S::CONFLICT, "barred", "use a new request_id"),
        Refusal::Fenced { .. } => {
            (S::CONFLICT, "fenced", "a later holder has been here: stop, and acquire anew")
        }
        Refusal::OtherTerm => (S::SERVICE_UNAVAILABLE, "other_term", "try again"),
    }
}

pub(crate) async fn no_such_path(uri: Uri) -> Failure {
    Failure::not_found(format!("there is no {}", uri.path()), "see / for what there is")
}

pub(crate) async fn wrong_method(uri: Uri) -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        format!("{} is not asked in this way", uri.path()),
        "what changes something is a POST, what only looks is a GET",
    )
}
