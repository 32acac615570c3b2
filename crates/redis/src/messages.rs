//! What goes wrong, in Redis's words: a code that clients know, what happened, what to do.

use crate::error::Error;
use crate::resp::Reply;
use holdfast_gateway::{ApiError, Code, SubmitError};

/// More connections than there may be.
pub const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Connections keep more at this node than they may.
pub const NO_MEMORY: Error = Error::fixed(
    "ERR too much is kept at this node for clients that have not sent all of a request, do not read \
     their replies, or have much in a MULTI: try again later, or ask another node",
);

/// A request that does not go on.
pub const TOO_SLOW: Error =
    Error::fixed("ERR Protocol error: the rest of the request did not arrive in time");

/// Requests that nobody can take while the one before them waits.
pub const TOO_MUCH_BEHIND_WAIT: Error = Error::fixed(
    "ERR more than 1 MiB was sent behind a command that waits: send it when the reply has come, or \
     over another connection",
);

/// What was read has changed again and again.
pub const CONTENDED: Error = Error::fixed(
    "TRYAGAIN others changed the same keys again and again: nothing was done; try again",
);

/// Other scripts have taken the time of this one.
pub const SCRIPTS_BUSY: Error = Error::fixed(
    "TRYAGAIN other scripts and long commands kept this node busy: nothing was done; try again, or \
     ask another node",
);

/// More names are waited for than there may be.
pub const TOO_MANY_WAIT: Error = Error::fixed(
    "TRYAGAIN too many lists are waited for at this node: try again later, or ask another node",
);

/// Nobody answered in time. `wrote` says whether something may take effect later.
pub fn no_leader(wrote: bool) -> Error {
    if wrote {
        Error::fixed(
            "NOLEADER the cluster has no leader that answers: the command may or may not take \
             effect; read the key before you try again",
        )
    } else {
        Error::fixed(
            "TRYAGAIN the cluster has no leader that answers: nothing was done; try again, and \
             see that a majority of the nodes runs",
        )
    }
}

/// What became of something that has no answer.
pub fn trouble(error: SubmitError) -> Error {
    let ApiError { code, message, hint, .. } = error.into();
    // A Redis client has no request_id to ask about.
    let hint = match code {
        Code::Unknown | Code::Stopping => "connect again, and read the key",
        _ => hint,
    };
    Error::new(format!("{} {message}; {hint}", code.resp_word()))
}

/// Why nothing can be subscribed to.
pub fn not_subscribed(error: &ApiError) -> Error {
    let ApiError { code, message, .. } = error;
    Error::new(format!("{} {message}; connect and subscribe again", code.resp_word()))
}

/// Why a lock was not acquired.
pub fn not_acquired(error: &ApiError) -> Reply {
    let ApiError { code, message, hint, .. } = error;
    match code {
        Code::NotAcquired => Reply::Null,
        Code::InUse => Reply::Error(Error::WRONG_TYPE),
        code => Reply::Error(Error::new(format!("{} {message}; {hint}", code.resp_word()))),
    }
}
