//! Why a server refuses a request, for programs.

use std::fmt;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident = $text:literal,)+) => {
        /// Why a request was refused, for programs.
        ///
        /// ```
        /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
        /// # fn main() { with_server(async |servers| {
        /// # let client = Client::connect(servers).await?;
        /// # let old = client.lock("ledger").acquire().await?;
        /// # let ledger = client.register("ledger");
        /// use holdfast_client::{Error, ErrorCode};
        ///
        /// match ledger.put("balance 40", &old).await {
        ///     Ok(_) => println!("written"),
        ///     Err(Error::Refused { code: ErrorCode::Fenced, .. }) => println!("stop"),
        ///     Err(error) => return Err(error),
        /// }
        /// # Ok(()) }) }
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $code,)+
            /// A code of a newer server that this version of the client does not know.
            Other(String),
        }

        impl ErrorCode {
            /// As the server writes it, for instance `fenced`.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $text,)+
                    Self::Other(code) => code,
                }
            }
        }

        impl From<&str> for ErrorCode {
            fn from(code: &str) -> Self {
                match code {
                    $($text => Self::$code,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

codes! {
    /// A later holder has shown its token to the fence: stop.
    Fenced = "fenced",
    /// The wait would close a cycle of waits, which the message describes.
    WouldDeadlock = "would_deadlock",
    /// There are waiters, so a reader can't become the writer: release the lock and acquire it
    /// again.
    UpgradeBlocked = "upgrade_blocked",
    /// The lock is exclusive or shared and a permit was requested, or the other way round; or it
    /// has a different number of permits.
    OtherKind = "other_kind",
    /// This client already holds one of several names.
    AlreadyHeld = "already_held",
    /// This client has acquired the lock more than once, so its mode can't be changed.
    Reentered = "reentered",
    /// The user has no right to do this.
    Forbidden = "forbidden",
    /// The password is missing or wrong.
    Unauthenticated = "unauthenticated",
    /// A field is out of range; the message says which.
    BadRequest = "bad_request",
    /// The request is larger than the server accepts.
    TooLarge = "too_large",
    /// A limit of the cluster is reached.
    Full = "full",
    /// The secret does not match the ticket.
    NotOwner = "not_owner",
    /// The ticket is not held, or a token that the request claims to hold is not.
    NotHeld = "not_held",
    /// The ticket is still waiting.
    NotYetServed = "not_yet_served",
    /// The ticket is held, so it can't leave the line.
    AlreadyServed = "already_served",
    /// The mode in which the lock is held does not allow this.
    WrongMode = "wrong_mode",
    /// No ticket with this number was ever drawn.
    NeverDrawn = "never_drawn",
    /// The name is in use as something that is not a lock.
    InUse = "in_use",
    /// The ticket was taken through another protocol.
    Held = "held",
    /// What the request refers to does not exist.
    NotFound = "not_found",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn unknown_codes_are_kept() {
        assert_eq!(ErrorCode::from("fenced"), ErrorCode::Fenced);
        let newer = ErrorCode::from("out_of_paper");
        assert_eq!(newer, ErrorCode::Other("out_of_paper".to_owned()));
        assert_eq!(newer.to_string(), "out_of_paper");
    }
}
