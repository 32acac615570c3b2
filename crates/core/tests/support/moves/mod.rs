//! Random moves, chosen before it is known which tickets and sessions will exist.
//!
//! A move says "release the third held ticket with the right secret"; the [`Player`] turns it into
//! a command when it is played. So a sequence stays meaningful when a move is removed, and a
//! failing one can be shrunk.
//!
//! [`Player`]: super::player::Player

mod strategies;

pub(crate) use strategies::moves;

use holdfast_core::{Door, Expiry, Lease, NodeKind, Wait};

/// One of however many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick(pub(crate) u8);

impl Pick {
    pub(crate) fn of<T>(self, from: &[T]) -> Option<&T> {
        from.get(usize::from(self.0).checked_rem(from.len())?)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) verb: Verb,
    pub(crate) request: RequestPick,
    pub(crate) from: FromPick,
}

#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Tick {
        elapsed: Elapsed,
        next_term: bool,
    },
    Open {
        /// `None` for a client, 0 for a node without its id.
        node: Option<u8>,
        /// Repeats what the node's living session was opened with.
        again: bool,
        label: Option<u8>,
        ttl_ms: u64,
    },
    Close {
        session: Pick,
        right: bool,
    },
    Expire {
        session: Pick,
        right_term: bool,
    },
    Acquire(AcquireMove),
    Upgrade {
        ticket: TicketPick,
        proof: ProofPick,
        wait: Wait,
        claims: Vec<ClaimPick>,
    },
    OwnerMove {
        what: OwnerMove,
        ticket: TicketPick,
        proof: ProofPick,
    },
    Revoke {
        ticket: TicketPick,
        within_ms: u64,
        force: bool,
    },
    Force {
        ticket: TicketPick,
    },
    /// Repeats an earlier request.
    Again {
        request: Pick,
        forget: bool,
        changed: Changed,
    },
    /// Asks for the outcome of an earlier request, or of one that has not been sent.
    Outcome {
        request: Pick,
        unseen: bool,
    },
    Transact(TransactMove),
    Tree(TreeMove),
    Fence {
        key: Pick,
        value: Option<u8>,
        token: FencePick,
        mode: ModePick,
    },
}

/// How a repeated request differs from the first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Changed {
    Nothing,
    /// In what a retry may change: secrets, the wait, the label and the note of a new ticket.
    Reworded,
    /// It is another request: the command of a different one.
    Other(Pick),
    /// It is almost the same request: another lease, mode or name.
    Slightly(u8),
}

/// What the owner of a ticket does with it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OwnerMove {
    Release,
    Cancel,
    Renew { ttl_ms: u64 },
    Persist,
    Note(Option<u8>),
    Recovered,
    Downgrade,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Elapsed {
    Ms(u64),
    /// To the next due time, a millisecond before it, or after it.
    NextDue(i8),
}

#[derive(Debug, Clone)]
pub(crate) struct AcquireMove {
    pub(crate) names: Vec<Pick>,
    pub(crate) mode: ModePick,
    pub(crate) session: Option<Pick>,
    pub(crate) lease: Lease,
    pub(crate) wait: Wait,
    pub(crate) label: Option<u8>,
    pub(crate) note: Option<u8>,
    pub(crate) secret: bool,
    pub(crate) claims: Vec<ClaimPick>,
    pub(crate) lock_delay_ms: u64,
    pub(crate) door: Door,
    /// A wrong secret of the session.
    pub(crate) wrong: bool,
    /// Conflicting fields are left as they are.
    pub(crate) odd: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct TransactMove {
    pub(crate) door: Door,
    pub(crate) reads: Vec<ReadMove>,
    /// All keys were listed, now or earlier.
    pub(crate) all: Option<When>,
    pub(crate) writes: Vec<WriteMove>,
    pub(crate) publish: u8,
    /// The same name may be written twice.
    pub(crate) odd: bool,
}

/// Changes to znodes, or an attachment if there are none.
#[derive(Debug, Clone)]
pub(crate) struct TreeMove {
    pub(crate) session: Pick,
    /// With the right secret and the latest attachment.
    pub(crate) right: bool,
    pub(crate) newest: bool,
    pub(crate) ops: Vec<NodeMove>,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeMove {
    pub(crate) what: NodePick,
    pub(crate) path: Pick,
    /// The current version, or another one.
    pub(crate) version: Option<bool>,
    pub(crate) data: u8,
    pub(crate) closed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum NodePick {
    Create(NodeKind, bool),
    /// A contender, with one of the markers.
    Contend(Pick, bool),
    Delete,
    Set,
    /// Asks for a release as Curator does.
    Revoke,
    Acl,
    Check,
}

/// A key that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMove {
    pub(crate) name: Pick,
    pub(crate) when: When,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Now,
    /// What was read then may have changed since.
    Earlier(Pick),
}

#[derive(Debug, Clone)]
pub(crate) struct WriteMove {
    /// Mostly one of the names that are mostly keys.
    pub(crate) name: KeyPick,
    pub(crate) what: WritePick,
    pub(crate) expiry: Expiry,
    pub(crate) fresh: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyPick {
    Usual(Pick),
    Any(Pick),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum WritePick {
    Text(u8),
    /// The current text.
    SameText,
    Relabel(u8),
    /// This many fields.
    Hash(u8),
    /// This many items.
    List(u8),
    Expiring,
    Gone {
        forced: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ModePick {
    Exclusive,
    Shared,
    /// The usual number of permits.
    Permit,
    /// Another number of permits.
    OddPermit(u32),
    /// Whatever the names are mostly used for; `shared` decides between the two.
    Usual {
        shared: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum TicketPick {
    /// One to which this applies.
    Fit(Pick),
    /// The only holder of its name, without its number.
    ByName(Pick),
    /// Any that ever existed.
    Any(Pick),
    /// One to which this applies, under another name.
    OtherName(Pick, Pick),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ProofPick {
    Right,
    OfSession,
    Wrong,
    Label,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ClaimPick {
    Held(Pick),
    Any(u8),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FencePick {
    Drawn(Pick),
    Newest,
    /// Never drawn: 0, or this far above the last.
    Never(u8),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestPick {
    None,
    /// The usual kind for this command, with this many earlier answers still needed.
    Usual {
        needed: u8,
    },
    /// Of any session, on any command.
    InSession {
        session: Pick,
        fault: RequestFault,
    },
    Alone,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestFault {
    None,
    BelowLowest,
    WrongSecret,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FromPick {
    None,
    Next(Pick),
    /// A number that was already accepted.
    Again(Pick),
    /// A number too high.
    Gap(Pick),
    /// Any session, including ended ones and those of clients.
    Any(Pick),
}
