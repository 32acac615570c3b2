//! Error messages in Redis's style: a code that clients know, what happened, and what to do.

use crate::error::Error;
use crate::resp::Reply;
use holdfast_gateway::{ApiError, Code, SubmitError};

/// There are too many connections.
pub const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Connections use too much memory at this node.
pub const NO_MEMORY: Error = Error::fixed(
    "ERR too much is kept at this node for clients that have not sent all of a request, do not read \
     their replies, or have much in a MULTI: try again later, or ask another node",
);

/// The rest of a request did not arrive in time.
pub const TOO_SLOW: Error =
    Error::fixed("ERR Protocol error: the rest of the request did not arrive in time");

/// Too many bytes were sent behind a waiting command.
pub const TOO_MUCH_BEHIND_WAIT: Error = Error::fixed(
    "ERR more than 1 MiB was sent behind a command that waits: send it when the reply has come, or \
     over another connection",
);

/// The keys that were read kept changing.
pub const CONTENDED: Error = Error::fixed(
    "TRYAGAIN others changed the same keys again and again: nothing was done; try again",
);

/// Other scripts used up this one's time.
pub const SCRIPTS_BUSY: Error = Error::fixed(
    "TRYAGAIN other scripts and long commands kept this node busy: nothing was done; try again, or \
     ask another node",
);

/// Too many names are being waited for.
pub const TOO_MANY_WAIT: Error = Error::fixed(
    "TRYAGAIN too many lists are waited for at this node: try again later, or ask another node",
);

/// There was no answer in time. `wrote` means that something may take effect later.
pub fn no_leader(wrote: bool) -> Error {
    if wrote {
        Error::fixed(
            "NOLEADER the cluster has no reachable leader: the command may or may not take \
             effect; read the key before you try again",
        )
    } else {
        Error::fixed(
            "TRYAGAIN the cluster has no reachable leader: nothing was done; try again, and \
             see that a majority of the nodes runs",
        )
    }
}

/// The error for a request without an answer.
pub fn trouble(error: SubmitError) -> Error {
    let ApiError { code, message, hint, .. } = error.into();
    // A Redis client has no request_id to query.
    let hint = match code {
        Code::Unknown | Code::Stopping => "connect again, and read the key",
        _ => hint,
    };
    Error::new(format!("{} {message}; {hint}", code.resp_word()))
}

/// Why a subscription failed.
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
