//! Planted mistakes: switches that break one rule each, so that the simulator can show that its
//! checkers would notice. Compiled in only with the feature `mistakes`; otherwise every switch is
//! a constant `false`.

/// A rule of the node to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMistake {
    /// Confirms heartbeats without asking a majority: a stale leader keeps its clients believing.
    ConfirmAlone,
    /// Confirms heartbeats before everything up to the read index is applied.
    ConfirmUnapplied,
    /// Confirms heartbeats of a session whose end is already proposed.
    ConfirmEnding,
    /// Gives sessions no full TTL when it takes over as leader.
    NoGrace,
    /// Takes everything for durable when the first of it is.
    PersistedTooEarly,
    /// Calls a read current without a round.
    ReadAlone,
    /// Proposes without numbers.
    Unnumbered,
    /// Tells twice the time that passed.
    DoubleTime,
    /// Ends sessions after half their TTL.
    HalfTtl,
    /// Writes its term down, but not whom it voted for.
    ForgetVote,
    /// As a new leader, counts the time that the election took.
    ClockInElection,
    /// As a new leader, counts silence from when it was started.
    SilenceBeforeElection,
    /// Asks for confirmations under the same few numbers again and again, as other nodes do.
    PlainRounds,
    /// Answers heartbeats by the session's id, whatever their secret.
    TrustAnySecret,
    /// Says that a request was withdrawn although it had been sent, and may take effect.
    WithdrawSent,
    /// Lets the deadline of a wait without a session run although its node may be gone.
    DeadlineAtOnce,
}

impl NodeMistake {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::ConfirmAlone,
        Self::ConfirmUnapplied,
        Self::ConfirmEnding,
        Self::NoGrace,
        Self::PersistedTooEarly,
        Self::ReadAlone,
        Self::Unnumbered,
        Self::DoubleTime,
        Self::HalfTtl,
        Self::ForgetVote,
        Self::ClockInElection,
        Self::SilenceBeforeElection,
        Self::PlainRounds,
        Self::TrustAnySecret,
        Self::WithdrawSent,
        Self::DeadlineAtOnce,
    ];
}

/// The switches of one node.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    #[cfg(feature = "mistakes")]
    pub(crate) planted: Option<NodeMistake>,
    /// Planted again in every state that is loaded.
    #[cfg(feature = "mistakes")]
    pub(crate) in_core: Option<holdfast_core::Mistake>,
}

impl Mistakes {
    #[cfg(feature = "mistakes")]
    pub(crate) fn makes(&self, mistake: NodeMistake) -> bool {
        self.planted == Some(mistake)
    }

    #[cfg(not(feature = "mistakes"))]
    #[inline(always)]
    pub(crate) fn makes(&self, _: NodeMistake) -> bool {
        false
    }
}
