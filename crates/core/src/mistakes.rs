//! Planted mistakes: switches that break one rule each, so that a test can show that the checks
//! would notice. Compiled in only with the feature `mistakes`; otherwise every switch is a
//! constant `false`.

/// A rule to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Serves a ticket although the holder's lease still runs.
    SkipLeaseCheckOnGrant,
    /// Draws the same number twice.
    ReuseToken,
    /// Serves the last waiter first.
    ServeOutOfOrder,
    /// Runs a retried request again.
    ForgetRequestId,
    /// Grants without the word of how the last holder ended.
    LoseEnding,
    /// Lets a reader in while a writer waits.
    OvertakeWriter,
    /// Serves a waiter whose session has ended.
    ServeTheDead,
    /// Ends a lease a millisecond early.
    ExpireEarly,
    /// Releases with any secret.
    IgnoreSecret,
    /// Serves a ticket of several names when it heads only the first line.
    TakeOneOfSeveral,
    /// Lets the fence pass an old token.
    PassOldToken,
    /// Serves one more permit than there are.
    ExtraPermit,
    /// Leaves a ticket in its session's list when it ends.
    LeaveTicketBehind,
    /// Takes a node's proposal twice.
    TakeNumberTwice,
    /// Applies an expiry that was decided in another term.
    ExpireInAnyTerm,
    /// Serves at once although a lock-delay runs.
    IgnoreLockDelay,
    /// Lets a wait close a circle of claims.
    AllowDeadlock,
    /// Takes away the mark when the next holder releases.
    ForgetDeath,
    /// Takes a node's proposal although a lower number is missing.
    TakeNumberEarly,
    /// Answers a retry with the grant although it is over.
    ReplayGrant,
    /// Goes on, after a snapshot was loaded, from the highest ticket that still stands.
    LoseCounter,
    /// Knows no request any more after a snapshot was loaded.
    LoseRequests,
    /// Writes although a key has changed since it was read.
    IgnoreStamps,
    /// Writes what comes before the write that is refused.
    WriteInPart,
    /// Changes the holder although somebody waits.
    HandOverPastWaiters,
    /// Ends or changes tickets of other doors.
    TouchOtherDoors,
    /// Puts an object where somebody stands in line.
    ObjectOverLock,
    /// Draws a ticket for a name that is an object.
    LockAnObject,
    /// Writes an object without a new version.
    ReuseVersion,
    /// Gives a holder another label, but the key the same stamp.
    RelabelQuietly,
    /// Answers a request with what another one under the same id came to.
    AnswerOtherRequest,
    /// Forgets at once that a random request id is barred.
    ForgetBarred,
    /// Forgets how a ticket ended after some hand-offs.
    ForgetEnds,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::SkipLeaseCheckOnGrant,
        Self::ReuseToken,
        Self::ServeOutOfOrder,
        Self::ForgetRequestId,
        Self::LoseEnding,
        Self::OvertakeWriter,
        Self::ServeTheDead,
        Self::ExpireEarly,
        Self::IgnoreSecret,
        Self::TakeOneOfSeveral,
        Self::PassOldToken,
        Self::ExtraPermit,
        Self::LeaveTicketBehind,
        Self::TakeNumberTwice,
        Self::ExpireInAnyTerm,
        Self::IgnoreLockDelay,
        Self::AllowDeadlock,
        Self::ForgetDeath,
        Self::TakeNumberEarly,
        Self::ReplayGrant,
        Self::LoseCounter,
        Self::LoseRequests,
        Self::IgnoreStamps,
        Self::WriteInPart,
        Self::HandOverPastWaiters,
        Self::TouchOtherDoors,
        Self::ObjectOverLock,
        Self::LockAnObject,
        Self::ReuseVersion,
        Self::RelabelQuietly,
        Self::AnswerOtherRequest,
        Self::ForgetBarred,
        Self::ForgetEnds,
    ];
}

/// The switches of one state.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    #[cfg(feature = "mistakes")]
    planted: Option<Mistake>,
}

impl Mistakes {
    #[cfg(feature = "mistakes")]
    pub(crate) fn plant(&mut self, mistake: Mistake) {
        self.planted = Some(mistake);
    }

    #[cfg(feature = "mistakes")]
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.planted == Some(mistake)
    }

    #[cfg(not(feature = "mistakes"))]
    #[inline(always)]
    pub(crate) fn makes(&self, _: Mistake) -> bool {
        false
    }
}
