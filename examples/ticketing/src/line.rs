//! The line: which lock service protects the tickets of a database.
//!
//! A lock proves something only among instances that ask the same lock service, and tokens can only be
//! compared if one service has counted them. Addresses don't tell: `localhost` and `127.0.0.1` may be
//! one service, and a server that was restarted without its data is another one at the same address. So
//! the line has an identity of its own, and it is kept in two places:
//!
//! - **In the lock service**, as a lock named `.../line` that nobody releases. Its label has a random id.
//!   The first instance that does not find it takes it, and the lock service sees to it that only one
//!   does. A lease of a year carries it, or, on engines whose locks live by a session, the instance that
//!   took it; another instance takes it over with the same id when that one leaves. If the service loses
//!   its data, the lock is gone, and the next one has another id.
//! - **In the database**, as the setting `line`. One row decides: every reservation and every sale is
//!   written in a transaction that requires the id which its instance has seen in its lock service. An
//!   instance with other locks can't write, however it got in, and neither can one that was stopped while
//!   the locks were changed.
//!
//! A reservation must not be written for a service that has lost its data since the last look: it would be
//! ended a moment later. So whoever has taken a seat's lock looks whether the line's lock is still there. If
//! locks live by sessions, the line's may be gone although no data is lost; there, each instance has a
//! witness, a lock of its own that shares the session with its seats, and was seen together with the line.
//! A service that has the witness has not lost its data, and an instance without one reserves nothing until
//! it has a new one.
//!
//! Each instance looks at its lock service every two seconds and notes the id beside its sign of life.
//! The setting changes only when no live instance sees another id than the new one (`Store::agree_on`).
//! The change ends all reservations and begins new fences, because neither the leases nor the tokens of
//! the old line mean anything in the new one. That is how a shop recovers by itself from a lock service
//! that has lost its data, and how it moves to another one: stop all instances, start them with the new
//! LOCK_URL.

use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The line that this instance writes for.
pub(crate) struct Line {
    /// Its id, or why this instance may not write at the moment.
    state: Mutex<Result<String, String>>,
    /// What is wrong with the lock service, as of the last look; `None` if it has answered.
    trouble: Mutex<Option<String>>,
    /// Somebody has doubts: look again at once.
    pub(crate) doubted: Notify,
}

impl Line {
    pub(crate) fn new(id: String) -> Self {
        Self { state: Mutex::new(Ok(id)), trouble: Mutex::new(None), doubted: Notify::new() }
    }

    /// The id that a transaction must find in the database.
    pub(crate) fn id(&self) -> Result<String, String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, state: Result<String, String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Why tickets can't be reserved or booked here at the moment; `None` if they can.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.or_else(|| self.id().err())
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Asks for a look at the lock service and the database right away.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }
}

/// The label of the lock that carries the id. The slash at the end is for engines that cut off what
/// follows the last one.
pub(crate) fn label(id: &str) -> String {
    format!("line/{id}/")
}

/// The id in such a label, however a door shows it; `None` if it is no such label.
pub(crate) fn id_in(label: &str) -> Option<&str> {
    let id = label.strip_prefix("line/")?.split('/').next()?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_found_however_a_door_shows_the_label() {
        let id = "0123456789abcdef0123456789abcdef";
        let plain = label(id);
        let cut = plain.trim_end_matches('/').to_owned();
        for shown in [plain.clone(), cut, format!("{plain}/secret")] {
            assert_eq!(id_in(&shown), Some(id), "{shown}");
        }
        for other in ["line/", "line/12", "ana", "host:12"] {
            assert_eq!(id_in(other), None, "{other}");
        }
    }
}
