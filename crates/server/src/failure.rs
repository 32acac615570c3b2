//! What went wrong, in one shape for every native door: a code for programs, a message, and what
//! to do.

use crate::engine::Trouble;
use holdfast_core::{How, Refusal};

/// Of which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request makes no sense.
    Bad,
    /// It is longer than is taken.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
    /// There is more than the client takes.
    TooMuch,
    /// There is no such thing.
    NotFound,
    /// It is asked in another way.
    WrongMethod,
    /// Who asks did not prove that it may.
    Unauthenticated,
    /// Only the owner may.
    Denied,
    /// It can't be done as things stand.
    Conflict,
    /// Not now: it may work later, or at another node.
    Unavailable,
}

/// An answer that is not the one hoped for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
    /// The highest token that the fence has seen.
    pub(crate) highest: Option<u64>,
    /// How the ticket ended that is not held any more.
    pub(crate) how: Option<How>,
}

impl Failure {
    pub(crate) fn new(
        kind: Kind,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { kind, code, message: message.into(), hint, highest: None, how: None }
    }

    pub(crate) fn bad(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Kind::Bad, "bad_request", message, hint)
    }

    pub(crate) fn too_large(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Kind::TooLarge, "too_large", message, hint)
    }

    pub(crate) fn too_slow() -> Self {
        let hint = "send the body at once";
        Self::new(Kind::TooSlow, "too_slow", "the body did not arrive in time", hint)
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Kind::NotFound, "not_found", message, hint)
    }

    pub(crate) fn conflict(
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self::new(Kind::Conflict, code, message, hint)
    }

    /// An answer that belongs to another question.
    pub(crate) fn unexpected() -> Self {
        Self::conflict("other_request", "this is the answer to something else", "try again")
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let unavailable =
            |code, message: &str, hint| Self::new(Kind::Unavailable, code, message, hint);
        match trouble {
            Trouble::QueueFull => {
                unavailable("busy", "too much is in line at this node", "try again in a moment")
            }
            Trouble::DiskFull => unavailable(
                "disk_full",
                "the disk of this node is full: nothing was done",
                "free some space, or ask another node; it goes on by itself",
            ),
            Trouble::OlderMember => unavailable(
                "older_member",
                "a member of the cluster runs an older version, which does not know this: nothing \
                 was done",
                "upgrade all nodes; then it works by itself",
            ),
            Trouble::TooLarge => Self::too_large(
                "the request does not fit into one entry of the log (1 MiB): nothing was done",
                "split it into smaller ones",
            ),
            Trouble::Withdrawn => unavailable(
                "no_leader",
                "the cluster has no leader that answers: nothing was done",
                "try again; is a majority of the nodes running?",
            ),
            Trouble::Unknown => unavailable(
                "unknown",
                "the request was not answered in time: it may or may not take effect",
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
        let (kind, code, hint) = kind(&refusal);
        let mut failure = Self::new(kind, code, refusal.to_string(), hint);
        match refusal {
            Refusal::Fenced { highest, .. } => failure.highest = Some(highest.0),
            Refusal::NotHeld { how, .. } => failure.how = how,
            _ => {}
        }
        failure
    }
}

fn kind(refusal: &Refusal) -> (Kind, &'static str, &'static str) {
    match refusal {
        Refusal::Busy { .. } => {
            (Kind::Conflict, "not_acquired", "give wait_ms to stand in line, or try later")
        }
        Refusal::NotOwner => {
            (Kind::Denied, "not_owner", "send the secret that came with the lock or the session")
        }
        Refusal::NoSession(_) => (Kind::Conflict, "session_ended", "open a new session"),
        Refusal::NotHeld { .. } | Refusal::ClaimNotHeld(_) => {
            (Kind::Conflict, "not_held", "look at the lock to see who holds it; acquire anew")
        }
        Refusal::NotYetServed(_) => {
            (Kind::Conflict, "not_yet_served", "wait for the grant, or cancel the wait")
        }
        Refusal::AlreadyServed(_) => (Kind::Conflict, "already_served", "release it instead"),
        Refusal::OtherKind { .. } => (
            Kind::Conflict,
            "other_kind",
            "ask in the mode that the line has, or wait until it is empty",
        ),
        Refusal::AlreadyHeld { .. } => {
            (Kind::Conflict, "already_held", "leave out the name that you hold already")
        }
        Refusal::WouldDeadlock(_) | Refusal::TooTangled => (
            Kind::Conflict,
            "would_deadlock",
            "release what you hold, or take all names in one step",
        ),
        Refusal::UpgradeBlocked(_) => {
            (Kind::Conflict, "upgrade_blocked", "release the shared lock and acquire anew")
        }
        Refusal::WrongMode(_) | Refusal::SessionLease(_) | Refusal::NameTheToken(_) => {
            (Kind::Conflict, "wrong_mode", "look at the lock to see how it is held")
        }
        Refusal::BadRequest(_) => (Kind::Bad, "bad_request", "correct the field and send again"),
        Refusal::NeverDrawn(_) => {
            (Kind::Bad, "never_drawn", "send the fencing_token that came with the grant")
        }
        Refusal::Full(_) => (Kind::Unavailable, "full", "try again later, with a new request_id"),
        Refusal::TooOldToKnow(_) => {
            (Kind::Conflict, "too_old_to_know", "the session said that it had this answer")
        }
        Refusal::Barred => (Kind::Conflict, "barred", "use a new request_id"),
        Refusal::OtherRequest => {
            (Kind::Conflict, "other_request", "use a new random request_id for each request")
        }
        Refusal::Fenced { .. } => {
            (Kind::Conflict, "fenced", "a later holder has been here: stop, and acquire anew")
        }
        Refusal::OtherTerm => (Kind::Unavailable, "other_term", "try again"),
        Refusal::Changed { .. } => (Kind::Conflict, "changed", "read again, and write anew"),
        Refusal::Held { .. } => {
            (Kind::Conflict, "held", "release it through the door that it was taken through")
        }
        Refusal::InUse { .. } => {
            (Kind::Conflict, "in_use", "use another name, or delete what is kept under this one")
        }
    }
}
